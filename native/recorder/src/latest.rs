//! The ring of last calls in the heartbeat's file, as `record/contact/latest.py` has its layout.
//!
//! A record is found again by the address of the call's Work, which is in it.

use crate::python::{is_int, is_list, item, length_of, list_item, list_length, none, whole, Ref};

const FIRST: usize = 65536 / 8;
const RECORDS: i64 = 64;
const RECORD_WORDS: usize = 32;
const MOST_SPLITS: usize = 16;

/// Words of a record.
mod place {
    pub const NUMBER: usize = 0;
    pub const BEGUN_NS: usize = 1;
    pub const ENDED_NS: usize = 2;
    pub const SITE: usize = 3;
    pub const GROUP: usize = 4;
    pub const SEQ: usize = 5;
    pub const P2P_SEQ: usize = 6;
    pub const PEER: usize = 7;
    pub const TAG: usize = 8;
    pub const FLAGS: usize = 9;
    pub const INPUTS: usize = 10;
    pub const OUTPUTS: usize = 11;
    pub const DTYPE: usize = 12;
    pub const WORK: usize = 13;
    pub const SPLITS: usize = 14;
    pub const FIRST_SPLIT: usize = 16;
}

/// Flags of a record.
pub const EXCHANGE: i64 = 1;
const FAILED: i64 = 2;
const AWAITED: i64 = 4;
pub const ASSUMED: i64 = 16;

/// What a call is given.
pub struct Given {
    pub group: i64,
    pub seq: i64,
    pub p2p_seq: i64,
    pub peer: i64,
    pub tag: i64,
    pub flags: i64,
    pub inputs: i64,
    pub outputs: i64,
    pub dtype: i64,
}

impl Default for Given {
    fn default() -> Self {
        Given {
            group: 0,
            seq: -1,
            p2p_seq: 0,
            peer: -1,
            tag: -1,
            flags: 0,
            inputs: -1,
            outputs: -1,
            dtype: 0,
        }
    }
}

pub struct Latest {
    words: *mut i64,
    /// Addresses of torch's dtypes, which live as long as torch does, by their number.
    dtypes: Vec<usize>,
}

impl Latest {
    /// # Safety
    /// `words` is the whole file in memory; `dtypes` is a tuple.
    pub unsafe fn new(words: *mut i64, dtypes: Ref) -> Self {
        unsafe {
            let all = (0..length_of(dtypes)).map(|number| item(dtypes, number));
            let dtypes = all.map(|it| if it == none() { 0 } else { it as usize }).collect();
            Latest { words, dtypes }
        }
    }

    unsafe fn word(&self, place: usize) -> i64 {
        unsafe { self.words.add(place).read_volatile() }
    }

    unsafe fn store(&self, place: usize, value: i64) {
        unsafe { self.words.add(place).write_volatile(value) }
    }

    /// A call is about to be made; returns the first word of its record.
    pub unsafe fn begins(&self, number: i64, now: i64, site: i64, given: Given) -> usize {
        let at = first_word(number);
        unsafe {
            self.store(at + place::NUMBER, 0);
            self.store(at + place::BEGUN_NS, now);
            self.store(at + place::ENDED_NS, 0);
            self.store(at + place::SITE, site);
            self.store(at + place::GROUP, given.group);
            self.store(at + place::SEQ, given.seq);
            self.store(at + place::P2P_SEQ, given.p2p_seq);
            self.store(at + place::PEER, given.peer);
            self.store(at + place::TAG, given.tag);
            self.store(at + place::FLAGS, given.flags);
            self.store(at + place::INPUTS, given.inputs);
            self.store(at + place::OUTPUTS, given.outputs);
            self.store(at + place::DTYPE, given.dtype);
            self.store(at + place::WORK, 0);
            self.store(at + place::SPLITS, 0);
            self.store(at + place::NUMBER, number);
        }
        at
    }

    /// What a send or receive moves.
    pub unsafe fn moves(&self, at: usize, numel: i64, dtype: Option<Ref>) {
        unsafe {
            self.store(at + place::INPUTS, numel);
            self.store(at + place::OUTPUTS, numel);
            self.store(at + place::DTYPE, dtype.map_or(0, |dtype| self.dtype(dtype)));
        }
    }

    /// Keep the splits that a call is given, where both are lists of whole numbers.
    pub unsafe fn split(&self, at: usize, inputs: Ref, outputs: Ref) {
        unsafe {
            if !is_list(inputs) || !is_list(outputs) {
                return;
            }
            let (into, out) = (list_length(inputs), list_length(outputs));
            if into > MOST_SPLITS || out > MOST_SPLITS {
                return;
            }
            let kept = self.words.add(at + place::FIRST_SPLIT).cast::<u32>();
            for number in 0..into + out {
                let (list, place) =
                    if number < into { (inputs, number) } else { (outputs, number - into) };
                let size = list_item(list, place);
                let size = if is_int(size) { whole(size) } else { return };
                let size = size.and_then(|size| u32::try_from(size).ok()).unwrap_or(0);
                kept.add(number).write_volatile(size);
            }
            self.store(at + place::SPLITS, (into << 8 | out) as i64);
        }
    }

    pub unsafe fn returned(&self, at: usize, work: Ref) {
        let address = if work == none() { 1 } else { work as i64 };
        unsafe { self.store(at + place::WORK, address) }
    }

    pub unsafe fn awaited(&self, at: usize) {
        unsafe { self.store(at + place::FLAGS, self.word(at + place::FLAGS) | AWAITED) }
    }

    pub unsafe fn ends(&self, at: usize, now: i64) {
        unsafe { self.store(at + place::ENDED_NS, now) }
    }

    pub unsafe fn fails(&self, at: usize, now: i64) {
        unsafe {
            self.store(at + place::FLAGS, self.word(at + place::FLAGS) | FAILED);
            self.ends(at, now);
        }
    }

    /// The record of the newest call that returned this Work, unless that is over.
    pub unsafe fn of(&self, newest: i64, work: Ref) -> Option<usize> {
        for number in (1..=newest).rev().take(RECORDS as usize) {
            let at = first_word(number);
            unsafe {
                if self.word(at + place::WORK) == work as i64 {
                    return if self.word(at + place::ENDED_NS) == 0 { Some(at) } else { None };
                }
            }
        }
        None
    }

    /// Number of a dtype; 0 where it has none.
    pub fn dtype(&self, dtype: Ref) -> i64 {
        let found = self.dtypes.iter().position(|known| *known == dtype as usize);
        found.map_or(0, |number| number as i64 + 1)
    }
}

fn first_word(number: i64) -> usize {
    FIRST + (number % RECORDS) as usize * RECORD_WORDS
}
