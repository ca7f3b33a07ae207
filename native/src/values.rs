//! What a decoder holds of a value: a tag and 64 bits.

/// Kinds of values, and what a list, the dump or a memo's slot can be besides.
pub mod tag {
    pub const UNSET: u8 = 0;
    pub const NONE: u8 = 1;
    pub const BOOL: u8 = 2;
    pub const INT: u8 = 3;
    pub const FLOAT: u8 = 4;
    pub const STRING: u8 = 5;
    /// A container that is kept once however often it occurs.
    pub const NODE: u8 = 6;
    /// Pushed and not filled yet; where nobody fills them they are the empty list and dict.
    pub const OPEN_LIST: u8 = 7;
    pub const OPEN_DICT: u8 = 8;
    /// The list of entries, and the dump itself.
    pub const ENTRIES: u8 = 9;
    pub const TOP: u8 = 10;
    /// What a memo holds of a container that is still open; of an entry, which is nowhere but in
    /// its row; and of a container that was fetched, so that nobody may fill it any further.
    pub const PENDING: u8 = 11;
    pub const ENTRY: u8 = 12;
    pub const FETCHED: u8 = 13;
}

/// A value, as Python sees it in the children of a node: two 64-bit numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Value {
    pub tag: i64,
    pub bits: i64,
}

impl Value {
    pub const fn new(tag: u8, bits: i64) -> Self {
        Value { tag: tag as i64, bits }
    }

    pub const UNSET: Value = Value::new(tag::UNSET, 0);
    pub const NONE: Value = Value::new(tag::NONE, 0);

    #[inline(always)]
    pub fn is(self, tag: u8) -> bool {
        self.tag == tag as i64
    }

    /// Whether it is final: no container that may still be filled.
    #[inline(always)]
    pub fn is_settled(self) -> bool {
        self.tag <= tag::NODE as i64
    }
}

/// No memo slot: a container may be filled further, and nobody knows it by a number.
pub const NO_SLOT: i32 = -1;
/// There may be several slots, so it cannot be filled further.
pub const FINISHED: i32 = -2;

/// A value on the stack, and the memo slot of an open container.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub value: Value,
    pub memo: i32,
}

/// The file is none that this decoder knows for sure: the Python reader has the word.
#[derive(Debug)]
pub struct Unusual;

pub type Step<T = ()> = Result<T, Unusual>;

#[inline(always)]
pub fn ensure(condition: bool) -> Step {
    if condition {
        Ok(())
    } else {
        Err(Unusual)
    }
}
