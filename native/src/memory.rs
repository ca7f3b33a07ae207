//! What one thread has met so far, and what a batch of files was decoded to.

use crate::interning::{kind, Keyed, Nodes, Texts};
use crate::keys::{self, key};
use crate::rows::{Dictionaries, FileState, Pair, Row};
use crate::values::{ensure, tag, Slot, Step, Unusual, Value, FINISHED, NO_SLOT};

/// Children of containers that any file may add beside those that it has room for.
const SPARE_CHILDREN: usize = 1 << 20;

/// A pair of a dump itself; Python reads it as three 64-bit numbers.
#[repr(C)]
pub struct Top {
    pub key: i64,
    pub value: Value,
}

/// Strings, nodes and dictionaries live as long as the memory, so what all ranks share is met once
/// for each thread; rows, pairs, threads and groups in use belong to one batch of files.
pub struct Memory {
    pub texts: Texts,
    pub nodes: Nodes,
    pub dictionaries: Dictionaries,
    pub rows: Vec<Row>,
    pub tops: Vec<Top>,
    pub threads: Vec<i64>,
    pub groups: Vec<Pair>,
    pub stack: Vec<Slot>,
    pub marks: Vec<usize>,
    pub memo: Vec<Value>,
    pub buffer: Vec<u8>,
    serial: u64,
}

impl Memory {
    pub fn new() -> Self {
        let keyed = Keyed::new();
        let mut texts = Texts::new(keyed);
        keys::intern_words(&mut texts);
        Memory {
            texts,
            nodes: Nodes::new(keyed),
            dictionaries: Dictionaries::default(),
            rows: Vec::new(),
            tops: Vec::new(),
            threads: Vec::new(),
            groups: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            buffer: Vec::new(),
            serial: 0,
        }
    }

    /// Forget the batch that was decoded last.
    pub fn next_batch(&mut self) {
        self.rows.clear();
        self.tops.clear();
        self.threads.clear();
        self.groups.clear();
    }

    /// Get ready for a file of so many bytes.
    pub fn next_file(&mut self, size: usize) -> FileState {
        self.stack.clear();
        self.marks.clear();
        self.memo.clear();
        self.nodes.budget = size / 2 + SPARE_CHILDREN;
        self.serial += 1;
        FileState::new(self.serial, size)
    }

    pub fn push(&mut self, tag: u8, bits: i64) {
        self.stack.push(Slot { value: Value::new(tag, bits), memo: NO_SLOT });
    }

    /// Make containers on the stack that nobody filled the empty ones.
    pub fn settle(&mut self, first: usize, end: usize) -> Step {
        for index in first..end {
            let value = self.stack[index].value;
            if value.is_settled() {
                continue;
            }
            let kind = match value.tag as u8 {
                tag::OPEN_LIST => kind::LIST,
                tag::OPEN_DICT => kind::DICT,
                _ => return Err(Unusual),
            };
            let number = self.nodes.intern(kind, &[])?;
            self.stack[index].value = Value::new(tag::NODE, number);
        }
        Ok(())
    }

    /// Number of a container whose children are on the stack from `first` on.
    pub fn container(&mut self, kind: i64, first: usize) -> Step<i64> {
        self.settle(first, self.stack.len())?;
        let children = &self.stack[first..];
        let fits = match kind {
            kind::TUPLE => !children.iter().any(|slot| {
                slot.value.is(tag::NODE) && self.nodes.kind_of(slot.value.bits) == kind::TUPLE
            }),
            kind::DICT => has_words_as_keys(children),
            _ => true,
        };
        ensure(fits)?;
        self.nodes.intern(kind, children)
    }

    /// Fill a container that was filled before: Python's pickler does so by the thousand items.
    pub fn fill_further(&mut self, kind: i64, into: usize) -> Step {
        let Slot { value, memo } = self.stack[into];
        ensure(value.is(tag::NODE) && self.nodes.kind_of(value.bits) == kind)?;
        ensure(memo != FINISHED && (memo < 0 || self.memo[memo as usize].is(tag::NODE)))?;
        ensure(kind != kind::DICT || has_words_as_keys(&self.stack[into + 1..]))?;
        self.settle(into + 1, self.stack.len())?;
        let known = self.nodes.children_of(value.bits).iter();
        let mut children: Vec<Slot> = known.map(|&value| Slot { value, memo: NO_SLOT }).collect();
        children.extend_from_slice(&self.stack[into + 1..]);
        let number = self.nodes.intern(kind, &children)?;
        self.fill(into, number);
        Ok(())
    }

    /// A container on the stack, and what a memo knows of it, is this node from now on.
    pub fn fill(&mut self, into: usize, number: i64) {
        let node = Value::new(tag::NODE, number);
        self.stack[into].value = node;
        let memo = self.stack[into].memo;
        if memo >= 0 {
            self.memo[memo as usize] = node;
        }
        self.stack.truncate(into + 1);
    }

    /// Write the entry whose keys and values are on the stack from `first` on as a row.
    pub fn add_row(&mut self, first: usize, file: &mut FileState) -> Step {
        for index in (first + 1..self.stack.len()).step_by(2) {
            let known = self.stack[index - 1].value;
            if known.is(tag::STRING) && known.bits <= key::AFTER as i64 {
                self.settle(index, index + 1)?;
            }
        }
        let raw = keys::raw_of(&self.stack[first..])?;
        let row = self.dictionaries.row(&raw, file, &mut self.nodes)?;
        self.rows.push(row);
        Ok(())
    }

    /// Keep pairs of the dump itself; its entries are in the rows already.
    pub fn keep_pairs(&mut self, first: usize, end: usize) -> Step {
        for index in (first..end).step_by(2) {
            let key = self.stack[index].value;
            ensure(key.is(tag::STRING))?;
            if self.stack[index + 1].value.is(tag::ENTRIES) {
                continue;
            }
            ensure(key.bits != key::ENTRIES as i64)?;
            self.settle(index + 1, index + 2)?;
            self.tops.push(Top { key: key.bits, value: self.stack[index + 1].value });
        }
        Ok(())
    }
}

/// Whether keys and values in turn are a dict's.
fn has_words_as_keys(pairs: &[Slot]) -> bool {
    pairs.chunks(2).all(|pair| pair[0].value.is(tag::STRING))
}

/// The value in a slot of the memo; a container in it is final from now on.
#[inline(always)]
pub fn fetch(memo: &mut [Value], slot: usize) -> Step<Value> {
    let known = memo.get_mut(slot).ok_or(Unusual)?;
    match known.tag as u8 {
        tag::UNSET => Err(Unusual),
        tag::NODE | tag::FETCHED => {
            known.tag = i64::from(tag::FETCHED);
            Ok(Value::new(tag::NODE, known.bits))
        }
        number if number < tag::NODE => Ok(*known),
        _ => Err(Unusual),
    }
}

/// Put a value into a slot of the memo that is free.
#[inline(always)]
pub fn put_into(memo: &mut Vec<Value>, slot: usize, value: Value) -> Step {
    if slot == memo.len() {
        memo.push(value);
        return Ok(());
    }
    if slot > memo.len() {
        memo.resize(slot + 1, Value::UNSET);
    }
    ensure(memo[slot].is(tag::UNSET))?;
    memo[slot] = value;
    Ok(())
}
