//! Strings and containers, each kept once and known by a number.
//!
//! What all ranks share is met once for each thread. Tables are open-addressed; the hash is keyed
//! with random numbers, so that nobody can aim at one slot.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use crate::values::{ensure, Slot, Step, Value};

const FREE: u32 = u32::MAX;

/// Kinds of nodes: containers, and two of our own making.
pub mod kind {
    pub const LIST: i64 = 0;
    pub const TUPLE: i64 = 1;
    pub const DICT: i64 = 2;
    pub const SIGNATURE: i64 = 3;
    pub const THREAD: i64 = 4;
}

#[derive(Clone, Copy)]
pub struct Keyed {
    seed: u64,
    factor: u64,
}

impl Keyed {
    pub fn new() -> Self {
        let random = RandomState::new();
        let word = |number: u8| {
            let mut hasher = random.build_hasher();
            hasher.write_u8(number);
            hasher.finish()
        };
        Keyed { seed: word(0), factor: word(1) | 1 }
    }

    #[inline(always)]
    fn mix(self, state: u64, word: u64) -> u64 {
        let product = u128::from(state ^ word) * u128::from(self.factor);
        (product as u64 ^ (product >> 64) as u64).wrapping_add(self.seed)
    }

    fn of_bytes(self, bytes: &[u8]) -> u64 {
        let mut state = self.mix(self.seed, bytes.len() as u64);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            state = self.mix(state, u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
        let rest =
            words.remainder().iter().rev().fold(0, |rest, &byte| rest << 8 | u64::from(byte));
        self.mix(state, rest)
    }

    fn of_children(self, kind: i64, children: &[Slot]) -> u64 {
        let mut state = self.mix(self.seed, (kind as u64) << 32 | children.len() as u64);
        for child in children {
            let value = child.value;
            state = self.mix(state, value.bits as u64 ^ (value.tag as u64) << 56);
        }
        state
    }
}

/// Slots of a table of hashes; at least half of them are free.
struct Places {
    slots: Vec<u32>,
}

impl Places {
    fn new() -> Self {
        Places { slots: vec![FREE; 1 << 12] }
    }

    /// The number whose entry `is_it`, or else the free slot where it belongs.
    #[inline(always)]
    fn find(&self, hash: u64, mut is_it: impl FnMut(usize) -> bool) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            match self.slots[place] {
                FREE => return Err(place),
                number if is_it(number as usize) => return Ok(number as usize),
                _ => place = (place + 1) & mask,
            }
        }
    }

    /// Take a free slot for the next number; `hashes` are those of all numbers, this one included.
    fn take(&mut self, place: usize, count: usize, hash_of: impl Fn(usize) -> u64) {
        self.slots[place] = count as u32 - 1;
        if 2 * count < self.slots.len() {
            return;
        }
        self.slots = vec![FREE; 4 * self.slots.len()];
        for number in 0..count {
            if let Err(free) = self.find(hash_of(number), |_| false) {
                self.slots[free] = number as u32;
            }
        }
    }
}

/// Where a string is in the text; Python reads it as three 64-bit numbers.
#[repr(C)]
pub struct Text {
    hash: u64,
    start: u64,
    length: u64,
}

pub struct Texts {
    keyed: Keyed,
    places: Places,
    pub all: Vec<Text>,
    pub bytes: Vec<u8>,
    /// Long strings that were met last: a list of all ranks is in every dump of a job.
    recent: [usize; RECENT],
}

/// Bytes from which on a string is compared with those met last before it is hashed.
const LONG: usize = 1 << 10;
const RECENT: usize = 4;

impl Texts {
    pub fn new(keyed: Keyed) -> Self {
        let (all, bytes, recent) = (Vec::new(), Vec::new(), [0; RECENT]);
        Texts { keyed, places: Places::new(), all, bytes, recent }
    }

    /// Number of a string.
    #[inline]
    pub fn intern(&mut self, bytes: &[u8]) -> i64 {
        if bytes.len() < LONG {
            return self.intern_hashed(bytes);
        }
        let is_it = |number: &&usize| match self.all.get(**number) {
            Some(text) => &self.bytes[text.range()] == bytes,
            None => false,
        };
        if let Some(&number) = self.recent.iter().find(is_it) {
            return number as i64;
        }
        let number = self.intern_hashed(bytes);
        self.recent.rotate_right(1);
        self.recent[0] = number as usize;
        number
    }

    #[inline]
    fn intern_hashed(&mut self, bytes: &[u8]) -> i64 {
        let hash = self.keyed.of_bytes(bytes);
        let found = self.places.find(hash, |number| {
            let text = &self.all[number];
            text.hash == hash && &self.bytes[text.range()] == bytes
        });
        match found {
            Ok(number) => number as i64,
            Err(place) => {
                let start = self.bytes.len() as u64;
                self.all.push(Text { hash, start, length: bytes.len() as u64 });
                self.bytes.extend_from_slice(bytes);
                let all = &self.all;
                self.places.take(place, all.len(), |number| all[number].hash);
                all.len() as i64 - 1
            }
        }
    }
}

impl Text {
    fn range(&self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }
}

/// A container: kind, and where its children are. Python reads it as four 64-bit numbers.
#[repr(C)]
pub struct Node {
    hash: u64,
    pub kind: i64,
    pub start: u64,
    pub length: u64,
}

pub struct Nodes {
    keyed: Keyed,
    places: Places,
    pub all: Vec<Node>,
    pub children: Vec<Value>,
    /// Children that the file which is being read may still add.
    pub budget: usize,
}

impl Nodes {
    pub fn new(keyed: Keyed) -> Self {
        let (all, children) = (Vec::new(), Vec::new());
        Nodes { keyed, places: Places::new(), all, children, budget: 0 }
    }

    /// Number of the container with these children, all of which are settled.
    #[inline]
    pub fn intern(&mut self, kind: i64, children: &[Slot]) -> Step<i64> {
        let hash = self.keyed.of_children(kind, children);
        let found = self.places.find(hash, |number| {
            let node = &self.all[number];
            node.hash == hash && node.kind == kind && {
                let known = &self.children[node.range()];
                known.len() == children.len()
                    && known.iter().zip(children).all(|(one, other)| *one == other.value)
            }
        });
        match found {
            Ok(number) => Ok(number as i64),
            Err(place) => self.add(place, hash, kind, children),
        }
    }

    fn add(&mut self, place: usize, hash: u64, kind: i64, children: &[Slot]) -> Step<i64> {
        ensure(children.len() <= self.budget)?;
        self.budget -= children.len();
        let (start, length) = (self.children.len() as u64, children.len() as u64);
        self.all.push(Node { hash, kind, start, length });
        self.children.extend(children.iter().map(|slot| slot.value));
        let all = &self.all;
        self.places.take(place, all.len(), |number| all[number].hash);
        Ok(all.len() as i64 - 1)
    }

    pub fn children_of(&self, number: i64) -> &[Value] {
        &self.children[self.all[number as usize].range()]
    }

    pub fn kind_of(&self, number: i64) -> i64 {
        self.all[number as usize].kind
    }
}

impl Node {
    fn range(&self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }
}
