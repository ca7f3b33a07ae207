//! Entries of one dump are nearly the same bytes again, with other numbers.
//!
//! While an entry is decoded token by token, it is noted which of its bytes are operands that may
//! vary: numbers, and memo indices of the values of its own keys and of what it puts into the memo.
//! The next entry is compared with that template under a mask, many bytes at a time; where it
//! matches, it consists of the same tokens, and only the operands are read. They are applied in
//! their order, with the checks that the tokens have one by one.
//!
//! Templates live for one file, since memo indices are the file's own.

use std::ops::Range;

use crate::grammar as op;
use crate::keys::{self, key, Raw};
use crate::memory::{fetch, put_into, Memory};
use crate::rows::{FileState, Row};
use crate::values::{ensure, tag, Slot, Step, Unusual, Value};

const BLOCK: usize = 32;
const LONGEST: usize = 4096;
const MOST: usize = 48;
/// What follows an entry has to reach so far, for operands are read as eight bytes.
const SPARE: usize = 8;
const NONE: usize = usize::MAX;

/// What has to be done with one operand that may vary.
#[derive(Clone, Copy)]
pub enum Act {
    /// A number of `8 - shift / 8` bytes.
    Unsigned,
    Signed,
    /// A number with the highest byte first.
    Float,
    /// A memo index; the value found there has this tag.
    Get(u8),
    /// A memo index, for this value.
    Put(Value),
}

#[derive(Clone, Copy)]
struct Operand {
    act: Act,
    key: u8,
    shift: u8,
    offset: u16,
}

impl Operand {
    #[inline(always)]
    fn read(self, bytes: &[u8]) -> Step<u64> {
        let start = self.offset as usize;
        let eight = bytes.get(start..start + 8).ok_or(Unusual)?;
        Ok(u64::from_le_bytes(eight.try_into().map_err(|_| Unusual)?) << self.shift >> self.shift)
    }
}

/// The operands of an entry that is decoded token by token.
pub struct Recording {
    start: usize,
    /// Each with the height of the stack above which its value lies; MAX where it is no value.
    operands: Vec<(Operand, usize)>,
    puts: Vec<usize>,
    /// Where the newest operand that may vary ends: what lies there is not put into the memo.
    newest: usize,
    usable: bool,
}

impl Recording {
    pub fn new(start: usize) -> Self {
        Recording { start, operands: Vec::new(), puts: Vec::new(), newest: 0, usable: true }
    }

    /// A value that is pushed at a height of the stack.
    pub fn value(&mut self, act: Act, key: usize, height: usize, place: Range<usize>) {
        self.usable &= !matches!(act, Act::Get(tag::NONE));
        self.add(act, key, height, place);
    }

    pub fn put(&mut self, place: Range<usize>, slot: usize) {
        self.usable &= place.start - 1 != self.newest;
        self.puts.push(slot);
        self.add(Act::Put(Value::UNSET), 0, NONE, place);
    }

    /// Values from this height on have become a part of another: they may not vary.
    pub fn consume(&mut self, height: usize) {
        self.operands.retain(|(_, at)| *at == NONE || *at < height);
    }

    fn add(&mut self, act: Act, key: usize, height: usize, place: Range<usize>) {
        let offset = place.start - self.start;
        self.usable &= offset < LONGEST;
        if self.usable {
            let (key, shift) = (key.min(255) as u8, 64 - 8 * place.len() as u8);
            self.operands.push((Operand { act, key, shift, offset: offset as u16 }, height));
            self.newest = place.end;
        }
    }
}

struct Template {
    bytes: Vec<u8>,
    mask: Vec<u8>,
    length: usize,
    operands: Vec<Operand>,
    row: Row,
    raw: Raw,
    varies: Varies,
    next: usize,
}

/// Whether what several keys say together has to be made anew.
#[derive(Clone, Copy)]
struct Varies {
    signature: bool,
    thread: bool,
}

pub struct Templates {
    all: Vec<Template>,
    last: usize,
}

impl Templates {
    pub fn new() -> Self {
        Templates { all: Vec::new(), last: NONE }
    }

    /// Whether there is room for one more.
    pub fn wants_more(&self) -> bool {
        self.all.len() < MOST
    }

    /// Make a template of an entry that was decoded from `recording.start` to `end`.
    pub fn learn(
        &mut self,
        recording: Recording,
        bytes: &[u8],
        end: usize,
        pairs: &[Slot],
        row: &Row,
        memo: &[Value],
    ) {
        let length = end - recording.start;
        let raw = match keys::raw_of(pairs) {
            Ok(raw) if recording.usable && length <= LONGEST => raw,
            _ => return,
        };
        let padded = (length + BLOCK - 1) / BLOCK * BLOCK;
        let mut template = Template {
            bytes: bytes[recording.start..end].to_vec(),
            mask: vec![0xff; length],
            length,
            operands: recording.operands.into_iter().map(|(operand, _)| operand).collect(),
            row: *row,
            raw,
            varies: Varies { signature: false, thread: false },
            next: NONE,
        };
        template.bytes.resize(padded, 0);
        template.mask.resize(padded, 0);
        template.finish(&recording.puts, memo);
        self.all.push(template);
        self.follow(self.all.len() - 1);
    }

    /// Take the entry at the beginning of `rest`; returns how many bytes it has, 0 for no match.
    #[inline]
    pub fn take(
        &mut self,
        rest: &[u8],
        memory: &mut Memory,
        file: &mut FileState,
        puts: &mut usize,
    ) -> Step<usize> {
        let guess = self.all.get(self.last).map_or(NONE, |last| last.next);
        if guess != NONE {
            let taken = self.all[guess].take(rest, memory, file, puts)?;
            if taken > 0 {
                self.last = guess;
                return Ok(taken);
            }
        }
        for index in (0..self.all.len()).filter(|&index| index != guess) {
            let taken = self.all[index].take(rest, memory, file, puts)?;
            if taken > 0 {
                self.follow(index);
                return Ok(taken);
            }
        }
        Ok(0)
    }

    /// Remember which template followed which.
    fn follow(&mut self, index: usize) {
        if let Some(last) = self.all.get_mut(self.last) {
            last.next = index;
        }
        self.last = index;
    }
}

impl Template {
    /// Mask what may vary, and note what is put into the memo.
    fn finish(&mut self, puts: &[usize], memo: &[Value]) {
        let mut slots = puts.iter();
        for operand in &mut self.operands {
            let width = 8 - usize::from(operand.shift) / 8;
            let start = usize::from(operand.offset);
            self.mask[start..start + width].fill(0);
            match usize::from(operand.key) {
                _ if matches!(operand.act, Act::Put(_)) => {
                    let slot = slots.next().copied().unwrap_or(NONE);
                    operand.act = Act::Put(memo.get(slot).copied().unwrap_or(Value::UNSET));
                }
                key::IN_SIZES | key::OUT_SIZES | key::IN_DTYPES | key::OUT_DTYPES => {
                    self.varies.signature = true;
                }
                key::THREAD_NAME | key::THREAD_ID => self.varies.thread = true,
                _ => {}
            }
        }
    }

    #[inline(always)]
    fn matches(&self, rest: &[u8]) -> bool {
        let rest = match rest.get(..self.bytes.len() + SPARE) {
            Some(rest) => rest,
            None => return false,
        };
        let blocks = rest.chunks_exact(BLOCK).zip(self.bytes.chunks_exact(BLOCK));
        blocks.zip(self.mask.chunks_exact(BLOCK)).all(|((one, other), mask)| {
            let words = |index: usize| word(one, index) ^ word(other, index);
            (0..BLOCK / 8).fold(0, |all, index| all | words(index) & word(mask, index)) == 0
        })
    }

    #[inline(always)]
    fn take(
        &self,
        rest: &[u8],
        memory: &mut Memory,
        file: &mut FileState,
        puts: &mut usize,
    ) -> Step<usize> {
        if !self.matches(rest) {
            return Ok(0);
        }
        let (mut row, mut raw) = (self.row, self.raw);
        let used = memory.memo.len();
        for (index, operand) in self.operands.iter().enumerate() {
            let number = operand.read(rest)?;
            match operand.act {
                Act::Unsigned => self.set(&mut row, operand, number as i64, memory)?,
                Act::Signed => {
                    let signed = (number << operand.shift) as i64 >> operand.shift;
                    self.set(&mut row, operand, signed, memory)?;
                }
                Act::Float => self.set(&mut row, operand, number.swap_bytes() as i64, memory)?,
                Act::Put(value) => {
                    ensure((number as usize) < op::MAX_MEMO)?;
                    put_into(&mut memory.memo, number as usize, value)?;
                    *puts += 1;
                }
                Act::Get(tag) => {
                    let value = fetch(&mut memory.memo, number as usize)?;
                    if !value.is(tag) {
                        *puts -= self.undo(index, rest, used, memory)?;
                        return Ok(0);
                    }
                    self.refer(&mut row, &mut raw, operand, value.bits, memory)?;
                }
            }
        }
        let Memory { dictionaries, nodes, .. } = &mut *memory;
        if self.varies.signature {
            dictionaries.set_signature(&mut row, &raw, file, nodes)?;
        }
        if self.varies.thread {
            dictionaries.set_thread(&mut row, &raw, file, nodes)?;
        }
        dictionaries.settle(&row, file)?;
        memory.rows.push(row);
        Ok(self.length)
    }

    #[inline(always)]
    fn set(&self, row: &mut Row, operand: &Operand, number: i64, memory: &mut Memory) -> Step {
        match operand.key as usize {
            key if key <= key::AFTER => memory.dictionaries.set(row, key, number),
            _ => Ok(()),
        }
    }

    /// Set what a key says by a memo index: a word, or a container.
    #[inline(always)]
    fn refer(
        &self,
        row: &mut Row,
        raw: &mut Raw,
        operand: &Operand,
        number: i64,
        memory: &mut Memory,
    ) -> Step {
        let Memory { dictionaries, nodes, .. } = &mut *memory;
        match operand.key as usize {
            key::FRAMES => dictionaries.set_stack(row, number, nodes),
            key::GROUP => return dictionaries.set_group(row, number, nodes),
            key @ (key::THREAD_NAME | key::THREAD_ID) => raw[key] = number,
            key @ (key::IN_SIZES | key::OUT_SIZES | key::IN_DTYPES | key::OUT_DTYPES) => {
                raw[key] = number;
            }
            key if key <= key::AFTER => return dictionaries.set(row, key, number),
            _ => {}
        }
        Ok(())
    }

    /// Take back what the operands before `index` put into the memo; returns how many did.
    #[cold]
    fn undo(&self, index: usize, rest: &[u8], used: usize, memory: &mut Memory) -> Step<usize> {
        memory.memo.truncate(used);
        let mut count = 0;
        for operand in &self.operands[..index] {
            if let Act::Put(_) = operand.act {
                count += 1;
                if let Some(slot) = memory.memo.get_mut(operand.read(rest)? as usize) {
                    *slot = Value::UNSET;
                }
            }
        }
        Ok(count)
    }
}

#[inline(always)]
fn word(bytes: &[u8], index: usize) -> u64 {
    bytes[8 * index..8 * index + 8].try_into().map_or(0, u64::from_le_bytes)
}
