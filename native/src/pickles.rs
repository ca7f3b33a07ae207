//! A pickled dump, token by token: entries become rows, everything else interned containers.
//!
//! The rules are those of `pickles/unpickle.py` and, for a file that ends before its STOP, of
//! `pickles/salvage.py`. What is not surely read the same way there is unusual, and left to them.

use crate::grammar as op;
use crate::interning::kind;
use crate::keys::key;
use crate::memory::{fetch, put_into, Memory};
use crate::rows::FileState;
use crate::templates::{Act, Recording, Templates};
use crate::values::{ensure, tag, Slot, Step, Unusual, Value, FINISHED, NO_SLOT};

/// Decode one file into the rows and pairs of a memory; says whether it was cut short.
pub fn decode(bytes: &[u8], memory: &mut Memory, file: &mut FileState) -> Step<bool> {
    ensure(!op::too_many_containers(bytes))?;
    let mut reader = Reader {
        bytes,
        memory,
        file,
        position: 0,
        puts: 0,
        entries: None,
        closed_entry: false,
        shrunk: 0,
        templates: Templates::new(),
        recording: None,
    };
    match reader.read()? {
        End::Whole => Ok(false),
        End::Cut => reader.keep_what_is_whole().map(|()| true),
    }
}

enum End {
    Whole,
    Cut,
}

pub struct Reader<'a> {
    bytes: &'a [u8],
    pub memory: &'a mut Memory,
    file: &'a mut FileState,
    position: usize,
    /// How often something was put into the memo.
    puts: usize,
    /// Where on the stack the list of entries is, once it has one; MAX where it is done.
    pub entries: Option<usize>,
    /// The token before has closed an entry: what is put into the memo next is that.
    closed_entry: bool,
    /// Height of the stack at which what looked like a whole pair was taken away again.
    pub shrunk: usize,
    templates: Templates,
    recording: Option<Recording>,
}

impl Reader<'_> {
    fn read(&mut self) -> Step<End> {
        while let Some(&code) = self.bytes.get(self.position) {
            if code == op::EMPTY_DICT && self.is_at_entry() {
                if self.take_entry()? {
                    continue;
                }
                let records = self.templates.wants_more();
                self.recording = records.then(|| Recording::new(self.position));
            }
            let width = op::width_of(code).ok_or(Unusual)?;
            let start = self.position + 1;
            if self.bytes.len() - start < width {
                // What is left of an index is its lowest bytes: more of them only make it larger.
                let left = little_endian(&self.bytes[start..]);
                ensure(!op::is_long_index(code) || left < op::MAX_MEMO as u64)?;
                return Ok(End::Cut);
            }
            ensure(self.memory.stack.len() < op::MAX_STACK)?;
            let operand = little_endian(&self.bytes[start..start + width]);
            self.position = start + width;
            if code == op::STOP {
                let done = self.memory.marks.is_empty() && self.is_only_top();
                return if done { Ok(End::Whole) } else { Err(Unusual) };
            }
            if !self.token(code, operand, start)? {
                return Ok(End::Cut);
            }
        }
        Ok(End::Cut)
    }

    /// Apply one token; false where the file ends within it.
    #[inline(always)]
    fn token(&mut self, code: u8, operand: u64, start: usize) -> Step<bool> {
        let was_entry = std::mem::replace(&mut self.closed_entry, false);
        match code {
            op::BINGET | op::LONG_BINGET => self.get(operand as usize, start)?,
            op::BININT1 | op::BININT2 => self.number(Act::Unsigned, operand as i64, start),
            op::BININT => self.number(Act::Signed, i64::from(operand as u32 as i32), start),
            op::BINFLOAT => self.number(Act::Float, operand.swap_bytes() as i64, start),
            op::LONG1 => return self.long(operand as usize),
            op::NONE => self.memory.push(tag::NONE, 0),
            op::TRUE => self.memory.push(tag::BOOL, 1),
            op::FALSE => self.memory.push(tag::BOOL, 0),
            op::BINUNICODE | op::SHORT_BINUNICODE | op::BINUNICODE8 => {
                return Ok(self.string(operand))
            }
            op::EMPTY_DICT => self.memory.push(tag::OPEN_DICT, 0),
            op::EMPTY_LIST => self.memory.push(tag::OPEN_LIST, 0),
            op::MARK => {
                ensure(self.memory.marks.len() < op::MAX_DEPTH)?;
                self.memory.marks.push(self.memory.stack.len());
            }
            op::BINPUT | op::LONG_BINPUT => self.put(operand as usize, was_entry, Some(start))?,
            op::MEMOIZE => {
                ensure(self.puts == self.memory.memo.len())?;
                self.put(self.puts, was_entry, None)?;
            }
            op::SETITEMS => self.set_items()?,
            op::APPENDS => self.append_items()?,
            op::APPEND => self.single(kind::LIST, 1)?,
            op::SETITEM => self.single(kind::DICT, 2)?,
            op::EMPTY_TUPLE => self.tuple(self.memory.stack.len())?,
            op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                let taken = usize::from(code - op::TUPLE1) + 1;
                self.tuple(self.memory.stack.len().checked_sub(taken).ok_or(Unusual)?)?;
            }
            op::TUPLE => {
                let first = self.memory.marks.pop().ok_or(Unusual)?;
                self.tuple(first)?;
            }
            op::PROTO | op::FRAME => self.recording = None,
            _ => return Err(Unusual),
        }
        Ok(true)
    }

    /// The lowest place on the stack above the newest mark.
    fn floor(&self) -> usize {
        self.memory.marks.last().copied().unwrap_or(0)
    }

    pub fn is_only_top(&self) -> bool {
        self.memory.stack.len() == 1 && self.memory.stack[0].value.is(tag::TOP)
    }

    fn get(&mut self, slot: usize, start: usize) -> Step {
        let value = fetch(&mut self.memory.memo, slot)?;
        self.record_value(Act::Get(value.tag as u8), start);
        let memo = if value.is(tag::NODE) { FINISHED } else { NO_SLOT };
        self.memory.stack.push(Slot { value, memo });
        Ok(())
    }

    fn number(&mut self, act: Act, bits: i64, start: usize) {
        self.record_value(act, start);
        self.memory.push(if matches!(act, Act::Float) { tag::FLOAT } else { tag::INT }, bits);
    }

    fn long(&mut self, length: usize) -> Step<bool> {
        let start = self.position;
        if self.bytes.len() - start < length {
            return Ok(false);
        }
        ensure(length <= 8)?;
        self.position += length;
        let bits = little_endian(&self.bytes[start..self.position]) as i64;
        let shift = 64 - 8 * length as u32;
        let number = if length == 0 { 0 } else { bits << shift >> shift };
        match length {
            0 => self.memory.push(tag::INT, number),
            _ => self.number(Act::Signed, number, start),
        }
        Ok(true)
    }

    fn string(&mut self, length: u64) -> bool {
        let rest = &self.bytes[self.position..];
        if length > rest.len() as u64 {
            return false;
        }
        let number = self.memory.texts.intern(&rest[..length as usize]);
        self.position += length as usize;
        self.memory.push(tag::STRING, number);
        true
    }

    fn put(&mut self, slot: usize, was_entry: bool, start: Option<usize>) -> Step {
        ensure(was_entry || self.memory.stack.len() > self.floor())?;
        ensure(slot < op::MAX_MEMO)?;
        let Memory { memo, stack, .. } = &mut *self.memory;
        let value = if was_entry {
            Value::new(tag::ENTRY, 0)
        } else {
            let top = stack.last_mut().ok_or(Unusual)?;
            let settled = top.value.is_settled();
            top.memo = if settled { FINISHED } else { slot as i32 };
            if settled {
                top.value
            } else {
                Value::new(tag::PENDING, 0)
            }
        };
        put_into(memo, slot, value)?;
        self.puts += 1;
        self.closed_entry = was_entry;
        match (start, &mut self.recording) {
            (Some(start), Some(recording)) => {
                recording.put(start..self.position, slot);
            }
            _ => self.recording = None,
        }
        Ok(())
    }

    fn set_items(&mut self) -> Step {
        let mark = self.memory.marks.pop().ok_or(Unusual)?;
        let into = self.container_below(mark)?;
        ensure((self.memory.stack.len() - mark) % 2 == 0)?;
        let depth = self.memory.marks.len();
        if depth == 0 && into == 0 {
            return self.close_top(mark);
        }
        let is_open = self.memory.stack[into].value.is(tag::OPEN_DICT);
        if depth == 2 && is_open && into == self.memory.marks[1] && self.holds_entries(into - 1) {
            return self.close_entry(mark);
        }
        self.fill(kind::DICT, into)
    }

    fn append_items(&mut self) -> Step {
        let mark = self.memory.marks.pop().ok_or(Unusual)?;
        let into = self.container_below(mark)?;
        if self.memory.marks.len() == 1 && self.holds_entries(into) {
            let entries = *self.entries.get_or_insert(into);
            ensure(self.memory.stack.len() == mark && entries == into)?;
            self.memory.stack[into].value = Value::new(tag::ENTRIES, 0);
            return Ok(());
        }
        self.fill(kind::LIST, into)
    }

    /// Where the container is that is filled from a mark on.
    fn container_below(&self, mark: usize) -> Step<usize> {
        ensure(mark > self.floor())?;
        Ok(mark - 1)
    }

    fn close_top(&mut self, mark: usize) -> Step {
        let top = self.memory.stack[0].value;
        ensure(top.is(tag::OPEN_DICT) || top.is(tag::TOP))?;
        self.memory.keep_pairs(mark, self.memory.stack.len())?;
        self.memory.stack[0].value = Value::new(tag::TOP, 0);
        self.memory.stack.truncate(1);
        if self.entries.is_some() {
            self.entries = Some(usize::MAX);
        }
        Ok(())
    }

    fn close_entry(&mut self, mark: usize) -> Step {
        let into = mark - 1;
        ensure(*self.entries.get_or_insert(into - 1) == into - 1)?;
        self.memory.add_row(mark, self.file)?;
        let memo = self.memory.stack[into].memo;
        if memo >= 0 {
            self.memory.memo[memo as usize] = Value::new(tag::ENTRY, 0);
        }
        if let Some(recording) = self.recording.take() {
            let pairs = &self.memory.stack[mark..];
            let row = self.memory.rows.last().ok_or(Unusual)?;
            let memo = &self.memory.memo;
            self.templates.learn(recording, self.bytes, self.position, pairs, row, memo);
        }
        self.memory.stack.truncate(into);
        self.closed_entry = true;
        Ok(())
    }

    /// Fill a container, whose new children are all that lies above it.
    fn fill(&mut self, kind: i64, into: usize) -> Step {
        let open = if kind == kind::LIST { tag::OPEN_LIST } else { tag::OPEN_DICT };
        if !self.memory.stack[into].value.is(open) {
            return self.memory.fill_further(kind, into);
        }
        let number = self.memory.container(kind, into + 1)?;
        self.memory.fill(into, number);
        Ok(())
    }

    fn single(&mut self, kind: i64, taken: usize) -> Step {
        let into = self.memory.stack.len().checked_sub(taken + 1).ok_or(Unusual)?;
        ensure(into >= 1 && (self.memory.marks.is_empty() || into >= self.floor()))?;
        self.consume(into + 1);
        self.fill(kind, into)?;
        self.has_shrunk();
        Ok(())
    }

    fn tuple(&mut self, first: usize) -> Step {
        ensure(first >= self.floor())?;
        let marked = self.bytes[self.position - 1] == op::TUPLE;
        self.consume(first);
        let number = self.memory.container(kind::TUPLE, first)?;
        self.memory.stack.truncate(first);
        self.memory.push(tag::NODE, number);
        if !marked {
            self.has_shrunk();
        }
        Ok(())
    }

    fn has_shrunk(&mut self) {
        let top = self.memory.stack.len();
        if self.memory.marks.len() == 1 && top % 2 == 0 {
            self.shrunk = top;
        }
    }

    /// Whether a list on the stack is the value of the dump's own key `entries`.
    pub fn holds_entries(&self, list: usize) -> bool {
        let stack = &self.memory.stack;
        if self.memory.marks[0] != 1 || list < 2 || list % 2 == 1 {
            return false;
        }
        let (value, name) = (stack[list].value, stack[list - 1].value);
        (value.is(tag::OPEN_LIST) || value.is(tag::ENTRIES))
            && name == Value::new(tag::STRING, key::ENTRIES as i64)
    }

    /// Whether the next token begins an entry.
    fn is_at_entry(&self) -> bool {
        let Memory { marks, stack, .. } = &*self.memory;
        marks.len() == 2 && stack.len() == marks[1] && self.holds_entries(marks[1] - 1)
    }

    /// Take a whole entry that is like one before; false where it is like none.
    fn take_entry(&mut self) -> Step<bool> {
        let list = self.memory.marks[1] - 1;
        if self.entries.unwrap_or(list) != list {
            return Ok(false);
        }
        let rest = &self.bytes[self.position..];
        let taken = self.templates.take(rest, self.memory, self.file, &mut self.puts)?;
        if taken > 0 {
            self.position += taken;
            self.closed_entry = true;
            self.entries = Some(list);
        }
        Ok(taken > 0)
    }

    /// The key of the value that is pushed next, where it is a value of an entry itself.
    #[inline(always)]
    fn key_of_value(&self) -> Option<usize> {
        let Memory { marks, stack, .. } = &*self.memory;
        if marks.len() != 3 || (stack.len() - marks[2]) % 2 == 0 {
            return None;
        }
        let key = stack.last()?.value;
        key.is(tag::STRING).then_some(key.bits as usize)
    }

    /// Note an operand that may vary, where it is that of a value of an entry itself.
    #[inline(always)]
    fn record_value(&mut self, act: Act, start: usize) {
        if self.recording.is_none() {
            return;
        }
        let height = self.memory.stack.len();
        if let (Some(key), Some(recording)) = (self.key_of_value(), &mut self.recording) {
            recording.value(act, key, height, start..self.position);
        }
    }

    /// What lies so high on the stack becomes part of a container, and no value of an entry itself.
    fn consume(&mut self, height: usize) {
        if let Some(recording) = &mut self.recording {
            recording.consume(height);
        }
    }
}

#[inline(always)]
fn little_endian(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0 => 0,
        1 => u64::from(bytes[0]),
        2 => u64::from(u16::from_le_bytes([bytes[0], bytes[1]])),
        4 => u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
        _ => bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)),
    }
}
