//! The keys of an entry, and what each may say in torch's own layout since 2.3.

use crate::interning::Texts;
use crate::values::{ensure, tag, Slot, Step, Value};

/// Keys that are known: they are interned first, so that their numbers are these positions.
#[rustfmt::skip]
pub const KEYS: [&str; 25] = [
    "entries", "record_id", "pg_id", "process_group", "thread_name", "thread_id",
    "collective_seq_id", "p2p_seq_id", "op_id", "profiling_name", "time_created_ns",
    "duration_ms", "input_sizes", "input_dtypes", "output_sizes", "output_dtypes", "state",
    "time_discovered_started_ns", "time_discovered_completed_ns", "retired", "timeout_ms",
    "is_p2p", "frames", "seq_id", "after_record_id",
];
/// Words that `state` may say, in the order of `unhang.model.State`; interned behind the keys.
#[rustfmt::skip]
pub const STATES: [&str; 4] = [
    "scheduled", "started", "completed", "failed",
];

pub mod key {
    pub const ENTRIES: usize = 0;
    pub const RECORD: usize = 1;
    pub const PG_ID: usize = 2;
    pub const GROUP: usize = 3;
    pub const THREAD_NAME: usize = 4;
    pub const THREAD_ID: usize = 5;
    pub const SEQ: usize = 6;
    pub const P2P_SEQ: usize = 7;
    pub const OP: usize = 8;
    pub const NAME: usize = 9;
    pub const CREATED: usize = 10;
    pub const DURATION: usize = 11;
    pub const IN_SIZES: usize = 12;
    pub const IN_DTYPES: usize = 13;
    pub const OUT_SIZES: usize = 14;
    pub const OUT_DTYPES: usize = 15;
    pub const STATE: usize = 16;
    pub const STARTED: usize = 17;
    pub const COMPLETED: usize = 18;
    pub const RETIRED: usize = 19;
    pub const TIMEOUT: usize = 20;
    pub const IS_P2P: usize = 21;
    pub const FRAMES: usize = 22;
    pub const AFTER: usize = 24;
}

const WORDS: u16 = 1 << tag::STRING | 1 << tag::NONE;
const NUMBERS: u16 = 1 << tag::INT;
const TIMES: u16 = 1 << tag::INT | 1 << tag::NONE;
const LISTS: u16 = 1 << tag::NODE | 1 << tag::NONE;
const FLAG: u16 = 1 << tag::BOOL;
/// Tags that each key's value may have; any other makes the file unusual.
#[rustfmt::skip]
const ACCEPTED: [u16; 25] = [
    0, NUMBERS, NUMBERS, 1 << tag::NODE, WORDS, WORDS, NUMBERS, NUMBERS, NUMBERS,
    1 << tag::STRING, NUMBERS, 1 << tag::FLOAT | 1 << tag::NONE, LISTS, LISTS, LISTS, LISTS,
    1 << tag::STRING, TIMES, TIMES, FLAG, NUMBERS, FLAG, LISTS, 0, 0,
];
/// Keys without which an entry is of an old version, which the Python reader knows.
const REQUIRED: u32 = 1 << key::RECORD
    | 1 << key::PG_ID
    | 1 << key::GROUP
    | 1 << key::SEQ
    | 1 << key::NAME
    | 1 << key::STATE
    | 1 << key::RETIRED
    | 1 << key::IS_P2P;
const NAN: i64 = 0x7ff8_0000_0000_0000;

/// What an entry says under each key, as plain numbers, before it is a row.
pub type Raw = [i64; 25];

#[rustfmt::skip]
const DEFAULTS: Raw = [
    -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, NAN, -1, -1, -1, -1, -1, 0, 0, 0, -1, 0, -1, -1,
    -1,
];

/// Read the keys and values of an entry; what is not of torch's own types is unusual.
pub fn raw_of(pairs: &[Slot]) -> Step<Raw> {
    let mut raw = DEFAULTS;
    let (mut seen, mut met) = (0_u32, 0_u32);
    for pair in pairs.chunks_exact(2) {
        ensure(pair[0].value.is(tag::STRING))?;
        let key = pair[0].value.bits as usize;
        if key > key::AFTER {
            continue;
        }
        let value = pair[1].value;
        ensure(accepts(key, value) && met >> key & 1 == 0)?;
        met |= 1 << key;
        if !value.is(tag::NONE) {
            seen |= 1 << key;
            raw[key] = value.bits;
        }
    }
    ensure(seen & REQUIRED == REQUIRED)?;
    Ok(raw)
}

#[inline(always)]
pub fn accepts(key: usize, value: Value) -> bool {
    ACCEPTED[key] >> value.tag & 1 == 1
}

/// What every memory knows from the start.
pub fn intern_words(texts: &mut Texts) {
    for word in KEYS.iter().chain(&STATES) {
        texts.intern(word.as_bytes());
    }
}
