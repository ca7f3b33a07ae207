//! The grammar of the pickles that are read: every token, and how long its operand is.
//!
//! It is that of `pickles/opcodes.py`, token for token. Whatever is not here is refused; nothing
//! here looks up, calls or builds.

pub const MARK: u8 = b'(';
pub const STOP: u8 = b'.';
pub const NONE: u8 = b'N';
pub const TRUE: u8 = 0x88;
pub const FALSE: u8 = 0x89;
pub const BININT1: u8 = b'K';
pub const BININT2: u8 = b'M';
pub const BININT: u8 = b'J';
pub const LONG1: u8 = 0x8a;
pub const BINFLOAT: u8 = b'G';
pub const BINUNICODE: u8 = b'X';
pub const SHORT_BINUNICODE: u8 = 0x8c;
pub const BINUNICODE8: u8 = 0x8d;
pub const EMPTY_DICT: u8 = b'}';
pub const EMPTY_LIST: u8 = b']';
pub const EMPTY_TUPLE: u8 = b')';
pub const TUPLE1: u8 = 0x85;
pub const TUPLE2: u8 = 0x86;
pub const TUPLE3: u8 = 0x87;
pub const TUPLE: u8 = b't';
pub const BINGET: u8 = b'h';
pub const LONG_BINGET: u8 = b'j';
pub const BINPUT: u8 = b'q';
pub const LONG_BINPUT: u8 = b'r';
pub const MEMOIZE: u8 = 0x94;
pub const APPEND: u8 = b'a';
pub const APPENDS: u8 = b'e';
pub const SETITEM: u8 = b's';
pub const SETITEMS: u8 = b'u';
pub const PROTO: u8 = 0x80;
pub const FRAME: u8 = 0x95;

/// Memo indices are below this.
pub const MAX_MEMO: usize = 1 << 20;
/// Marks that may be open at once.
pub const MAX_DEPTH: usize = 64;
/// Values that may be on the stack at once.
pub const MAX_STACK: usize = 1 << 22;

const REFUSED: u8 = 0xff;
const SPARE_CONTAINERS: usize = 10_000;
const BYTES_OF_CONTAINER: usize = 4;

/// Bytes of each opcode's operand: of the length, where one is counted.
static WIDTHS: [u8; 256] = widths();

const fn widths() -> [u8; 256] {
    let mut table = [REFUSED; 256];
    let without = [
        MARK,
        STOP,
        NONE,
        TRUE,
        FALSE,
        EMPTY_DICT,
        EMPTY_LIST,
        EMPTY_TUPLE,
        TUPLE1,
        TUPLE2,
        TUPLE3,
        TUPLE,
        MEMOIZE,
        APPEND,
        APPENDS,
        SETITEM,
        SETITEMS,
    ];
    let mut index = 0;
    while index < without.len() {
        table[without[index] as usize] = 0;
        index += 1;
    }
    let one = [BININT1, LONG1, SHORT_BINUNICODE, BINGET, BINPUT, PROTO];
    index = 0;
    while index < one.len() {
        table[one[index] as usize] = 1;
        index += 1;
    }
    table[BININT2 as usize] = 2;
    let four = [BININT, BINUNICODE, LONG_BINGET, LONG_BINPUT];
    index = 0;
    while index < four.len() {
        table[four[index] as usize] = 4;
        index += 1;
    }
    table[BINFLOAT as usize] = 8;
    table[BINUNICODE8 as usize] = 8;
    table[FRAME as usize] = 8;
    table
}

/// Bytes of an opcode's operand; None for an opcode that no dump needs.
#[inline(always)]
pub fn width_of(code: u8) -> Option<usize> {
    match WIDTHS[code as usize] {
        REFUSED => None,
        width => Some(width as usize),
    }
}

/// Whether the operand is a memo index of four bytes, which can be beyond `MAX_MEMO`.
#[inline(always)]
pub fn is_long_index(code: u8) -> bool {
    code == LONG_BINGET || code == LONG_BINPUT
}

/// Whether a file asks for more containers than any dump, as `too_many_containers` counts them.
pub fn too_many_containers(bytes: &[u8]) -> bool {
    let most = SPARE_CONTAINERS + bytes.len() / BYTES_OF_CONTAINER;
    if bytes.len() <= most {
        return false;
    }
    // Counted in bytes, block by block, so that the compiler can count many at once.
    let count: usize = bytes
        .chunks(255)
        .map(|block| block.iter().map(|&code| u8::from(makes(code))).sum::<u8>() as usize)
        .sum();
    count > most
}

#[inline(always)]
fn makes(code: u8) -> bool {
    (code & 0xdf == EMPTY_LIST) | (code == EMPTY_TUPLE) | (code.wrapping_sub(TUPLE1) < 3)
}
