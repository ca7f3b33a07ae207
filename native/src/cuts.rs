//! What is kept of a pickle that ends before its STOP, as `pickles/salvage.py` has it.

use crate::interning::kind;
use crate::memory::Memory;
use crate::pickles::Reader;
use crate::values::{ensure, tag, Step, Unusual, Value};

impl Reader<'_> {
    /// The file was cut: what is still open is as it was when it was last filled.
    pub fn keep_what_is_whole(&mut self) -> Step {
        let Memory { marks, stack, .. } = &*self.memory;
        let (depth, top) = (marks.len(), stack.len());
        if depth == 0 {
            return ensure(self.is_only_top());
        }
        let outer = stack.first().ok_or(Unusual)?.value;
        ensure(marks[0] == 1 && (outer.is(tag::OPEN_DICT) || outer.is(tag::TOP)))?;
        let last = if depth > 1 { marks[1] } else { top } - 1;
        ensure(last + 1 != self.shrunk)?; // what looked like a whole pair is the key of another
        if depth > 1 && last % 2 == 0 {
            self.keep_open_value(last)?;
        }
        self.memory.keep_pairs(1, 1 + (last & !1))
    }

    /// The value of the dump that is still open has to be one that is kept as far as it goes.
    fn keep_open_value(&mut self, last: usize) -> Step {
        let Memory { marks, stack, nodes, .. } = &*self.memory;
        let value = stack[last].value;
        let is_filled = value.is(tag::NODE) && nodes.kind_of(value.bits) == kind::DICT;
        if !self.holds_entries(last) {
            return ensure(value.is(tag::OPEN_DICT) || is_filled);
        }
        let (depth, first) = (marks.len(), marks[1]);
        let inner = if depth > 2 { marks[2] } else { stack.len() } as isize - 1;
        ensure(inner >= first as isize - isize::from(depth == 2) && inner <= first as isize)?;
        ensure(inner != first as isize || stack[first].value.is(tag::OPEN_DICT))?;
        ensure(self.entries.unwrap_or(last) == last)?;
        self.memory.stack[last].value = Value::new(tag::ENTRIES, 0);
        Ok(())
    }
}
