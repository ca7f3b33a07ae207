"""The numbers that the compiled decoder and the Python around it agree on.

The decoder's memory is a handful of flat arrays of 64-bit numbers: compiled functions pass each
array as seven words, so many small arrays would cost more than the work on them. Numba takes module
constants in as compile-time values, hence plain integers.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["KEYS", "Bytes", "Int32s", "Int64s"]

Int64s: TypeAlias = npt.NDArray[np.int64]
Int32s: TypeAlias = npt.NDArray[np.int32]
Bytes: TypeAlias = npt.NDArray[np.uint8]

# Tags of values.
UNSET, NONE, BOOL, INT, FLOAT, STRING, NODE = 0, 1, 2, 3, 4, 5, 6
OPEN_LIST, OPEN_DICT = 7, 8
"""Pushed and not filled yet; where nobody fills them they are the empty list and dict."""
ENTRIES, TOP, PENDING, ENTRY, FETCHED = 9, 10, 11, 12, 13
"""The list of entries; the dump itself; what a memo holds of a container that is still open; what
a memo holds of an entry, which is nowhere but in its row; and of a container that was fetched."""

# Kinds of nodes: containers that are kept once however often they occur.
LIST, TUPLE, DICT, SIGNATURE, THREAD = 0, 1, 2, 3, 4

# What became of a file, or what the decoder needs more of.
WHOLE, CUT, UNUSUAL = 0, 1, 2
MORE_STRINGS, MORE_TEXT, MORE_NODES, MORE_CHILDREN, MORE_STACK, MORE_MEMO, MORE_ROWS, MORE_TOPS = (
    3, 4, 5, 6, 7, 8, 9, 10,
)  # fmt: skip

# The array `state`: counters, then the open marks.
(STRINGS_USED, TEXT_USED, NODES_USED, CHILDREN_USED, MEMO_USED, TOPS_USED, ROWS_USED, SEED, FILE,
 MARKS) = range(10)  # fmt: skip
MAX_DEPTH = 64

RECENT, RECENT_WIDTH, RECENT_SLOTS = MARKS + MAX_DEPTH, 5, 64
"""Behind the marks: the signatures that were made last, as their four parts and their number."""
LAST_THREAD = RECENT + RECENT_WIDTH * RECENT_SLOTS
"""Behind them: name, id and number of the thread that was made last."""
STATE_LENGTH = LAST_THREAD + 3

STACK_WIDTH = 3
"""Of one value on the stack: tag, value, and the memo slot of an open container or -1."""
NO_SLOT, FINISHED = -1, -2
"""Instead of the memo slot: there is none; there may be several, so it cannot be filled further."""
PAIR_WIDTH = 2
"""Of one value in the memo or of one child of a node: tag, value."""
STRING_WIDTH = 3
"""Of one string: hash, start in the text, length."""
NODE_WIDTH = 4
"""Of one node: hash, kind, first child, number of children."""
TOP_WIDTH = 3
"""Of one pair of a dump itself: number of the key, tag and value of the value."""
OUTCOME_WIDTH = 5
"""Of one file: what became of it, first row, row after, first pair, pair after."""

KEYS = (
    "entries", "record_id", "pg_id", "process_group", "thread_name", "thread_id",
    "collective_seq_id", "p2p_seq_id", "op_id", "profiling_name", "time_created_ns",
    "duration_ms", "input_sizes", "input_dtypes", "output_sizes", "output_dtypes", "state",
    "time_discovered_started_ns", "time_discovered_completed_ns", "retired", "timeout_ms",
    "is_p2p", "frames", "seq_id", "after_record_id",
)  # fmt: skip
"""Keys that the decoder knows: they are interned first, so that their numbers are these positions.
They are the columns of its rows as well."""

(K_ENTRIES, K_RECORD, K_PG_ID, K_GROUP, K_THREAD_NAME, K_THREAD_ID, K_SEQ, K_P2P_SEQ, K_OP,
 K_NAME, K_CREATED, K_DURATION, K_IN_SIZES, K_IN_DTYPES, K_OUT_SIZES, K_OUT_DTYPES, K_STATE,
 K_STARTED, K_COMPLETED, K_RETIRED, K_TIMEOUT, K_IS_P2P, K_FRAMES, K_SEQ_OLD,
 K_AFTER) = range(25)  # fmt: skip

K_SIGNATURE, K_THREAD = K_IN_SIZES, K_THREAD_NAME
"""Columns in which the decoder leaves the nodes that it makes of several keys."""

_WORDS = 1 << STRING | 1 << NONE
_NUMBERS = 1 << INT
_TIMES = 1 << INT | 1 << NONE
_LISTS = 1 << NODE | 1 << NONE
ACCEPTED = np.array(
    [
        0, _NUMBERS, _NUMBERS, 1 << NODE, _WORDS, _WORDS, _NUMBERS, _NUMBERS, _NUMBERS,
        1 << STRING, _NUMBERS, 1 << FLOAT | 1 << NONE, _LISTS, _LISTS, _LISTS, _LISTS, 1 << STRING,
        _TIMES, _TIMES, 1 << BOOL, _NUMBERS, 1 << BOOL, _LISTS, 0, 0,
    ],
    np.int64,
)  # fmt: skip
"""Tags that each key's value may have; any other makes the file unusual."""

NAN_BITS = int(np.array(np.nan).view(np.int64))
DEFAULTS = np.array(
    [-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, NAN_BITS, -1, -1, -1, -1, -1, 0, 0, 0, -1, 0, -1,
     -1, -1],
    np.int64,
)  # fmt: skip
"""What a column holds where the entry lacks the key or says None."""

REQUIRED = (
    1 << K_RECORD | 1 << K_PG_ID | 1 << K_GROUP | 1 << K_SEQ | 1 << K_NAME | 1 << K_STATE
    | 1 << K_RETIRED | 1 << K_IS_P2P
)  # fmt: skip
"""Keys without which an entry is of an old version, which the general path knows."""

# What opcodes do, for the decoder's one branch.
(A_REFUSE, A_GET, A_INT, A_SIGNED, A_LONG, A_FLOAT, A_CONSTANT, A_STRING, A_OPEN, A_MARK, A_PUT,
 A_MEMOIZE, A_SETITEMS, A_APPENDS, A_SINGLE, A_TUPLE, A_MARKED_TUPLE, A_SKIP,
 A_STOP) = range(19)  # fmt: skip

_OPCODES = {
    0x68: (A_GET, 1), 0x6A: (A_GET, 4),  # BINGET, LONG_BINGET
    0x4B: (A_INT, 1), 0x4D: (A_INT, 2), 0x4A: (A_SIGNED, 4),  # BININT1, BININT2, BININT
    0x8A: (A_LONG, 1), 0x47: (A_FLOAT, 8),  # LONG1, BINFLOAT
    0x4E: (A_CONSTANT, 0), 0x88: (A_CONSTANT, 0), 0x89: (A_CONSTANT, 0),  # None, True, False
    0x58: (A_STRING, 4), 0x8C: (A_STRING, 1), 0x8D: (A_STRING, 8),  # BINUNICODE, short, long
    0x7D: (A_OPEN, 0), 0x5D: (A_OPEN, 0), 0x28: (A_MARK, 0),  # EMPTY_DICT, EMPTY_LIST, MARK
    0x71: (A_PUT, 1), 0x72: (A_PUT, 4), 0x94: (A_MEMOIZE, 0),  # BINPUT, LONG_BINPUT, MEMOIZE
    0x75: (A_SETITEMS, 0), 0x65: (A_APPENDS, 0),
    0x61: (A_SINGLE, 0), 0x73: (A_SINGLE, 0),  # APPEND, SETITEM
    0x29: (A_TUPLE, 0), 0x85: (A_TUPLE, 0), 0x86: (A_TUPLE, 0), 0x87: (A_TUPLE, 0),
    0x74: (A_MARKED_TUPLE, 0), 0x80: (A_SKIP, 1), 0x95: (A_SKIP, 8), 0x2E: (A_STOP, 0),
}  # fmt: skip

ACTIONS = np.array([_OPCODES.get(code, (A_REFUSE, 0))[0] for code in range(256)], np.int64)
WIDTHS = np.array([_OPCODES.get(code, (A_REFUSE, 0))[1] for code in range(256)], np.int64)
"""Bytes of the operand: of the length, where the opcode has one."""
