"""The compiled decoder: from the bytes of many pickles to rows, without a Python object.

It knows torch's own layout since 2.3 and the opcodes in `layout`; whatever else a file holds makes
it UNUSUAL, and the general path reads it instead. Containers are interned (one node however often
they occur), so that a stack which 2,000 calls share is one number. All functions release the
interpreter's lock: two threads with memory of their own decode side by side.

Arrays as in `layout`: `state` (counters and marks), `stack`, `memo`; `slots`, `nodes`, `children`
(interned containers); `places`, `strings`, `text` (interned strings); `rows` (one column for each
known key, each `room` long), `tops` (pairs of the dumps themselves).

Constants are baked into what is compiled: a module that gives any has to be in `compiled.SOURCES`.
"""

# Compiled code has its own shape: many arguments (a struct of arrays is copied at each call), one
# long branch (it becomes a jump table), and no exceptions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0913, PLR0915, PLR0917, PLR1714, PLR2004, SIM102, SIM109, SIM110

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from unhang.ingest.fast.compiled import compiled
from unhang.ingest.fast.layout import (
    A_APPENDS,
    A_CONSTANT,
    A_FLOAT,
    A_GET,
    A_INT,
    A_LONG,
    A_MARK,
    A_MARKED_TUPLE,
    A_MEMOIZE,
    A_OPEN,
    A_PUT,
    A_REFUSE,
    A_SETITEMS,
    A_SIGNED,
    A_SINGLE,
    A_STOP,
    A_STRING,
    A_TUPLE,
    ACCEPTED,
    ACTIONS,
    BOOL,
    CHILDREN_USED,
    CUT,
    DEFAULTS,
    DICT,
    ENTRIES,
    ENTRY,
    FETCHED,
    FILE,
    FINISHED,
    FLOAT,
    INT,
    K_AFTER,
    K_ENTRIES,
    K_IN_DTYPES,
    K_IN_SIZES,
    K_OUT_DTYPES,
    K_OUT_SIZES,
    K_RECORD,
    K_SIGNATURE,
    K_THREAD,
    K_THREAD_ID,
    K_THREAD_NAME,
    LAST_THREAD,
    LIST,
    MARKS,
    MAX_DEPTH,
    MEMO_USED,
    MORE_CHILDREN,
    MORE_MEMO,
    MORE_NODES,
    MORE_ROWS,
    MORE_STACK,
    MORE_STRINGS,
    MORE_TEXT,
    MORE_TOPS,
    NODE,
    NODE_WIDTH,
    NODES_USED,
    NONE,
    OPEN_DICT,
    OPEN_LIST,
    OUTCOME_WIDTH,
    PAIR_WIDTH,
    PENDING,
    RECENT,
    RECENT_SLOTS,
    RECENT_WIDTH,
    REQUIRED,
    ROWS_USED,
    SEED,
    SIGNATURE,
    STACK_WIDTH,
    STRING,
    STRING_WIDTH,
    STRINGS_USED,
    TEXT_USED,
    THREAD,
    TOP,
    TOP_WIDTH,
    TOPS_USED,
    TUPLE,
    UNSET,
    UNUSUAL,
    WHOLE,
    WIDTHS,
    Bytes,
    Int32s,
    Int64s,
)  # fmt: skip
from unhang.ingest.pickles.opcodes import BYTES_OF_CONTAINER, SPARE_CONTAINERS

__all__ = ["decode_files", "intern_text", "place_again"]

Number: TypeAlias = Any
"""A 64-bit number; mypy does not know the arithmetic of compiled code."""


_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_BIT = np.int64(1)
_SPARE = 16
"""Values that may be pushed without looking whether there is room."""


@compiled
def _mix(state: Number, value: Number) -> Number:
    """One step of a hash. The seed is random, so that nobody can aim at one slot."""
    state = (state ^ np.uint64(value)) * _PRIME
    return state ^ (state >> _SHIFT)


@compiled
def _equal_text(
    text: Bytes, start: Number, buffer: Bytes, position: Number, length: Number
) -> bool:
    for i in range(length):
        if text[start + i] != buffer[position + i]:
            return False
    return True


@compiled
def intern_text(
    state: Int64s, places: Int32s, strings: Int64s, text: Bytes,
    buffer: Bytes, position: Number, length: Number,
) -> Number:  # fmt: skip
    """Number of a string; -MORE_STRINGS or -MORE_TEXT where there is no room for it."""
    hashed = _mix(np.uint64(state[SEED]), length)
    whole = position + (length & ~np.int64(7))
    for i in range(position, whole, 8):
        word = np.int64(0)
        for j in range(8):
            word |= np.int64(buffer[i + j]) << (8 * j)
        hashed = _mix(hashed, word)
    for i in range(whole, position + length):
        hashed = _mix(hashed, np.int64(buffer[i]))
    mask = len(places) - 1
    place = np.int64(hashed) >> 1 & mask
    while places[place] >= 0:
        known = np.int64(places[place])
        at = STRING_WIDTH * known
        if strings[at] == np.int64(hashed) and strings[at + 2] == length:
            if _equal_text(text, strings[at + 1], buffer, position, length):
                return known
        place = (place + 1) & mask
    number, end = state[STRINGS_USED], state[TEXT_USED]
    if STRING_WIDTH * (number + 1) > len(strings) or 2 * number >= len(places):
        return np.int64(-MORE_STRINGS)
    if end + length > len(text):
        return np.int64(-MORE_TEXT)
    places[place] = number
    at = STRING_WIDTH * number
    strings[at], strings[at + 1], strings[at + 2] = np.int64(hashed), end, length
    for i in range(length):
        text[end + i] = buffer[position + i]
    state[STRINGS_USED], state[TEXT_USED] = number + 1, end + length
    return number


@compiled
def _equal_children(
    children: Int64s, at: Number, stack: Int64s, first: Number, end: Number
) -> bool:
    for i in range(STACK_WIDTH * first, STACK_WIDTH * end, STACK_WIDTH):
        if children[at] != stack[i] or children[at + 1] != stack[i + 1]:
            return False
        at += PAIR_WIDTH
    return True


@compiled
def _hash(stack: Int64s, kind: Number, first: Number, end: Number, seed: Number) -> Number:
    """Hash of a container with these children; 0 where one of them is not settled."""
    hashed = _mix(np.uint64(seed), kind << 32 | (end - first))
    highest = np.int64(0)
    for i in range(STACK_WIDTH * first, STACK_WIDTH * end, STACK_WIDTH):
        highest = max(highest, stack[i])
        hashed = _mix(hashed, stack[i + 1] ^ stack[i] << 56)
    if highest > NODE:
        return np.int64(0)
    return np.int64(hashed | np.uint64(1))


@compiled
def _add_node(
    state: Int64s, slots: Int32s, nodes: Int64s, children: Int64s, stack: Int64s,
    kind: Number, first: Number, end: Number, hashed: Number,
) -> Number:  # fmt: skip
    """Number of a container that may be new; negative for what is short."""
    length = end - first
    mask = len(slots) - 1
    slot = hashed >> 1 & mask
    while slots[slot] >= 0:
        known = np.int64(slots[slot])
        at = NODE_WIDTH * known
        if nodes[at] == hashed and nodes[at + 1] == kind and nodes[at + 3] == length:
            if _equal_children(children, nodes[at + 2], stack, first, end):
                return known
        slot = (slot + 1) & mask
    number, start = state[NODES_USED], state[CHILDREN_USED]
    if NODE_WIDTH * (number + 1) > len(nodes) or 2 * number >= len(slots):
        return np.int64(-MORE_NODES)
    if start + PAIR_WIDTH * length > len(children):
        return np.int64(-MORE_CHILDREN)
    slots[slot] = number
    at = NODE_WIDTH * number
    nodes[at], nodes[at + 1], nodes[at + 2], nodes[at + 3] = hashed, kind, start, length
    for i in range(STACK_WIDTH * first, STACK_WIDTH * end, STACK_WIDTH):
        children[start], children[start + 1] = stack[i], stack[i + 1]
        start += PAIR_WIDTH
    state[NODES_USED], state[CHILDREN_USED] = number + 1, start
    return number


@compiled
def _intern(
    state: Int64s, slots: Int32s, nodes: Int64s, children: Int64s, stack: Int64s,
    kind: Number, first: Number, end: Number,
) -> Number:  # fmt: skip
    """Number of the container whose settled children are on the stack; negative if short."""
    hashed = _hash(stack, kind, first, end, state[SEED])
    return _add_node(state, slots, nodes, children, stack, kind, first, end, hashed)


@compiled
def _settle(
    state: Int64s, slots: Int32s, nodes: Int64s, children: Int64s, stack: Int64s,
    first: Number, end: Number,
) -> Number:  # fmt: skip
    """Make containers that nobody filled the empty ones; negative where a value cannot stand."""
    for value in range(first, end):
        at = STACK_WIDTH * value
        tag = stack[at]
        if tag <= NODE:
            continue
        if tag > OPEN_DICT:
            return np.int64(-UNUSUAL)
        kind = np.int64(LIST if tag == OPEN_LIST else DICT)
        number = _intern(state, slots, nodes, children, stack, kind, end, end)
        if number < 0:
            return number
        stack[at], stack[at + 1] = NODE, number
    return np.int64(0)


@compiled
def _has_words_as_keys(stack: Int64s, first: Number, end: Number) -> bool:
    """Whether keys and values in turn are a dict's."""
    for value in range(first, end, 2):
        if stack[STACK_WIDTH * value] != STRING:
            return False
    return True


@compiled
def _holds_tuples(nodes: Int64s, stack: Int64s, first: Number, end: Number) -> bool:
    for at in range(STACK_WIDTH * first, STACK_WIDTH * end, STACK_WIDTH):
        if stack[at] == NODE and nodes[NODE_WIDTH * stack[at + 1] + 1] == TUPLE:
            return True
    return False


@compiled
def _fill_further(
    state: Int64s, slots: Int32s, nodes: Int64s, children: Int64s, stack: Int64s, memo: Int64s,
    container: Number, first: Number, end: Number, kind: Number,
) -> Number:  # fmt: skip
    """Fill a container that was filled before: Python's pickler does so by the thousand items."""
    at = STACK_WIDTH * container
    before = NODE_WIDTH * stack[at + 1]
    if stack[at] != NODE or nodes[before + 1] != kind or stack[at + 2] == FINISHED:
        return np.int64(-UNUSUAL)
    if stack[at + 2] >= 0 and memo[PAIR_WIDTH * stack[at + 2]] != NODE:
        return np.int64(-UNUSUAL)
    if kind == DICT and not _has_words_as_keys(stack, first, end):
        return np.int64(-UNUSUAL)
    failed = _settle(state, slots, nodes, children, stack, first, end)
    if failed < 0:
        return failed
    start, length = nodes[before + 2], nodes[before + 3]
    total = length + end - first
    if STACK_WIDTH * (end + total + _SPARE) > len(stack):
        return np.int64(-MORE_STACK)
    for i in range(total):
        to = STACK_WIDTH * (end + i)
        if i < length:
            stack[to] = children[start + PAIR_WIDTH * i]
            stack[to + 1] = children[start + PAIR_WIDTH * i + 1]
        else:
            origin = STACK_WIDTH * (first + i - length)
            stack[to], stack[to + 1] = stack[origin], stack[origin + 1]
    number = _intern(state, slots, nodes, children, stack, kind, end, end + total)
    if number < 0:
        return number
    stack[at + 1] = number
    if stack[at + 2] >= 0:
        slot = PAIR_WIDTH * stack[at + 2]
        memo[slot], memo[slot + 1] = NODE, number
    return np.int64(0)


@compiled
def _push_part(stack: Int64s, end: Number, tag: Number, number: Number) -> None:
    """Put a part of a node of our own making on the stack: -1 stands for none."""
    stack[STACK_WIDTH * end] = tag if number >= 0 else NONE
    stack[STACK_WIDTH * end + 1] = number


@compiled
def _signature(
    state: Int64s, slots: Int32s, nodes: Int64s, children: Int64s, stack: Int64s,
    rows: Int64s, row: Number, end: Number,
) -> Number:  # fmt: skip
    """Make the node of a row's sizes and dtypes, or find it among those made last."""
    room = len(rows) // len(DEFAULTS)
    sizes, out_sizes = rows[room * K_IN_SIZES + row], rows[room * K_OUT_SIZES + row]
    kinds, out_kinds = rows[room * K_IN_DTYPES + row], rows[room * K_OUT_DTYPES + row]
    slot = (sizes * 31 + out_sizes * 17 + kinds * 5 + out_kinds) & (RECENT_SLOTS - 1)
    at = RECENT + RECENT_WIDTH * slot
    known = state[at] == sizes and state[at + 1] == out_sizes
    if not (known and state[at + 2] == kinds and state[at + 3] == out_kinds):
        _push_part(stack, end, NODE, sizes)
        _push_part(stack, end + 1, NODE, out_sizes)
        _push_part(stack, end + 2, NODE, kinds)
        _push_part(stack, end + 3, NODE, out_kinds)
        number = _intern(state, slots, nodes, children, stack, np.int64(SIGNATURE), end, end + 4)
        if number < 0:
            return number
        state[at], state[at + 1], state[at + 2], state[at + 3] = sizes, out_sizes, kinds, out_kinds
        state[at + 4] = number
    rows[room * K_SIGNATURE + row] = state[at + 4]
    return np.int64(0)


@compiled
def _thread(
    state: Int64s, slots: Int32s, nodes: Int64s, children: Int64s, stack: Int64s,
    rows: Int64s, row: Number, end: Number,
) -> Number:  # fmt: skip
    """Make the node of a row's thread, by name and id; a row without a name has none."""
    room = len(rows) // len(DEFAULTS)
    name, tid = rows[room * K_THREAD_NAME + row], rows[room * K_THREAD_ID + row]
    if name < 0:
        return np.int64(0)
    if state[LAST_THREAD] != name or state[LAST_THREAD + 1] != tid:
        _push_part(stack, end, STRING, name)
        _push_part(stack, end + 1, STRING, tid)
        number = _intern(state, slots, nodes, children, stack, np.int64(THREAD), end, end + 2)
        if number < 0:
            return number
        state[LAST_THREAD], state[LAST_THREAD + 1], state[LAST_THREAD + 2] = name, tid, number
    rows[room * K_THREAD + row] = state[LAST_THREAD + 2]
    return np.int64(0)


@compiled
def _add_row(
    state: Int64s, slots: Int32s, nodes: Int64s, children: Int64s, stack: Int64s,
    rows: Int64s, first: Number, end: Number,
) -> Number:  # fmt: skip
    """Write one entry, given its keys and values on the stack, into the next row."""
    row, room = state[ROWS_USED], len(rows) // len(DEFAULTS)
    if row >= room:
        return np.int64(-MORE_ROWS)
    seen, met = np.int64(0), np.int64(0)
    for value in range(first, end, 2):
        at = STACK_WIDTH * value
        key, tag = stack[at + 1], stack[at + STACK_WIDTH]
        if stack[at] != STRING:
            return np.int64(-UNUSUAL)
        if key > K_AFTER:
            continue
        if tag > NODE:
            failed = _settle(state, slots, nodes, children, stack, value + 1, value + 2)
            if failed < 0:
                return failed
            tag = stack[at + STACK_WIDTH]
        if not ACCEPTED[key] >> tag & 1 or met >> key & 1:
            return np.int64(-UNUSUAL)
        met |= _BIT << key
        if tag == NONE:
            continue
        seen |= _BIT << key
        rows[room * key + row] = stack[at + STACK_WIDTH + 1]
    if seen & REQUIRED != REQUIRED:
        return np.int64(-UNUSUAL)
    for key in range(len(DEFAULTS)):
        if not seen >> key & 1:
            rows[room * key + row] = DEFAULTS[key]
    number = _signature(state, slots, nodes, children, stack, rows, row, end)
    if number >= 0:
        number = _thread(state, slots, nodes, children, stack, rows, row, end)
    if number < 0:
        return number
    state[ROWS_USED] = row + 1
    return np.int64(0)


@compiled
def _keep_pairs(
    state: Int64s, slots: Int32s, nodes: Int64s, children: Int64s, stack: Int64s, tops: Int64s,
    first: Number, end: Number,
) -> Number:  # fmt: skip
    """Keep pairs of the dump itself; its entries are in the rows already."""
    for value in range(first, end, 2):
        at = STACK_WIDTH * value
        if stack[at] != STRING:
            return np.int64(-UNUSUAL)
        if stack[at + STACK_WIDTH] == ENTRIES:
            continue
        if stack[at + 1] == K_ENTRIES:
            return np.int64(-UNUSUAL)
        failed = _settle(state, slots, nodes, children, stack, value + 1, value + 2)
        if failed < 0:
            return failed
        to = TOP_WIDTH * state[TOPS_USED]
        if to + TOP_WIDTH > len(tops):
            return np.int64(-MORE_TOPS)
        tops[to] = stack[at + 1]
        tops[to + 1], tops[to + 2] = stack[at + STACK_WIDTH], stack[at + STACK_WIDTH + 1]
        state[TOPS_USED] += 1
    return np.int64(0)


@compiled
def _is_list_of_entries(state: Int64s, stack: Int64s, container: Number) -> bool:
    """Whether a list on the stack is the value of the dump's own key `entries`."""
    if state[MARKS] != 1 or container < 2 or container & 1:
        return False
    at = STACK_WIDTH * container
    if stack[at] != OPEN_LIST and stack[at] != ENTRIES:
        return False
    return bool(stack[at - STACK_WIDTH] == STRING and stack[at - STACK_WIDTH + 1] == K_ENTRIES)


@compiled
def _decode(
    buffer: Bytes, position: Number, end: Number, state: Int64s, stack: Int64s, memo: Int64s,
    slots: Int32s, nodes: Int64s, children: Int64s,
    places: Int32s, strings: Int64s, text: Bytes, rows: Int64s, tops: Int64s,
) -> Number:  # fmt: skip
    """Decode one file into the rows that follow; returns what became of it."""
    state[MEMO_USED] = 0
    room = len(stack) // STACK_WIDTH - _SPARE
    top, depth, newest = np.int64(0), np.int64(0), np.int64(-1)
    entries, puts, shrunk = np.int64(-1), np.int64(0), np.int64(0)
    closed_entry = False
    failed = np.int64(0)
    first, into = np.int64(0), np.int64(0)
    mask = len(slots) - 1
    while position < end:
        kind = np.int64(-1)
        code = buffer[position]
        action, width = ACTIONS[code], WIDTHS[code]
        position += 1
        if position + width > end:
            break
        if top >= room:
            return np.int64(MORE_STACK)
        operand = np.int64(0)
        for i in range(width):
            operand |= np.int64(buffer[position + i]) << (8 * i)
        position += width
        at = STACK_WIDTH * top
        stack[at + 2] = -1
        if action == A_GET:
            slot = PAIR_WIDTH * operand
            if operand >= state[MEMO_USED]:
                return np.int64(UNUSUAL)
            tag = memo[slot]
            if tag >= NODE:
                if tag != NODE and tag != FETCHED:
                    return np.int64(UNUSUAL)
                tag, memo[slot] = np.int64(NODE), FETCHED
                stack[at + 2] = FINISHED
            elif tag == UNSET:
                return np.int64(UNUSUAL)
            stack[at], stack[at + 1] = tag, memo[slot + 1]
            top += 1
        elif action == A_INT:
            stack[at], stack[at + 1] = INT, operand
            top += 1
        elif action == A_SIGNED:
            stack[at], stack[at + 1] = INT, np.int64(np.int32(operand))
            top += 1
        elif action == A_LONG:
            if position + operand > end:
                break
            if operand > 8:
                return np.int64(UNUSUAL)
            number = np.int64(0)
            for i in range(operand):
                number |= np.int64(buffer[position + i]) << (8 * i)
            position += operand
            if 0 < operand < 8 and number >> (8 * operand - 1):
                number -= _BIT << (8 * operand)
            stack[at], stack[at + 1] = INT, number
            top += 1
        elif action == A_FLOAT:
            number = np.int64(0)
            for i in range(8):
                number = number << 8 | operand >> (8 * i) & 0xFF
            stack[at], stack[at + 1] = FLOAT, number
            top += 1
        elif action == A_CONSTANT:
            stack[at] = NONE if code == 0x4E else BOOL
            stack[at + 1] = code == 0x88
            top += 1
        elif action == A_STRING:
            if operand < 0 or operand > end - position:
                break
            number = intern_text(state, places, strings, text, buffer, position, operand)
            if number < 0:
                return -number
            stack[at], stack[at + 1] = STRING, number
            position += operand
            top += 1
        elif action == A_OPEN:
            stack[at] = OPEN_DICT if code == 0x7D else OPEN_LIST
            stack[at + 1] = 0
            top += 1
        elif action == A_MARK:
            if depth >= MAX_DEPTH:
                return np.int64(UNUSUAL)
            state[MARKS + depth] = top
            depth += 1
        elif action == A_PUT or action == A_MEMOIZE:
            used = state[MEMO_USED]
            if action == A_MEMOIZE:
                operand = used
                if puts != used:
                    return np.int64(UNUSUAL)
            if not closed_entry and top <= (state[MARKS + depth - 1] if depth > 0 else 0):
                return np.int64(UNUSUAL)
            if PAIR_WIDTH * (operand + 1) > len(memo):
                return np.int64(MORE_MEMO)
            for i in range(used, operand + 1):
                memo[PAIR_WIDTH * i] = UNSET
            state[MEMO_USED] = max(used, operand + 1)
            slot = PAIR_WIDTH * operand
            if memo[slot] != UNSET:
                return np.int64(UNUSUAL)
            puts += 1
            tag = stack[at - STACK_WIDTH]
            if closed_entry:
                memo[slot] = ENTRY
            elif tag > NODE:
                memo[slot] = PENDING
                stack[at - 1] = operand
            else:
                memo[slot], memo[slot + 1] = tag, stack[at - STACK_WIDTH + 1]
                stack[at - 1] = FINISHED
            continue
        elif action == A_SETITEMS or action == A_APPENDS:
            if depth == 0:
                return np.int64(UNUSUAL)
            depth -= 1
            mark = state[MARKS + depth]
            container = mark - 1
            if container < 0 or (depth > 0 and container < state[MARKS + depth - 1]):
                return np.int64(UNUSUAL)
            if action == A_APPENDS:
                if depth == 1 and _is_list_of_entries(state, stack, container):
                    if entries < 0:
                        entries = container
                    failed = np.int64(0 if top == mark and entries == container else -UNUSUAL)
                    stack[STACK_WIDTH * container] = ENTRIES
                    top = container + 1
                else:
                    kind, first, into = np.int64(LIST), mark, container
            elif (top - mark) & 1:
                failed = np.int64(-UNUSUAL)
            elif depth == 0 and container == 0:
                if stack[0] != OPEN_DICT and stack[0] != TOP:
                    return np.int64(UNUSUAL)
                failed = _keep_pairs(state, slots, nodes, children, stack, tops, mark, top)
                stack[0] = TOP
                if entries >= 0:
                    entries = np.int64(len(stack))
                top = np.int64(1)
            elif (
                depth == 2
                and container == state[MARKS + 1]
                and stack[STACK_WIDTH * container] == OPEN_DICT
                and _is_list_of_entries(state, stack, container - 1)
            ):
                if entries < 0:
                    entries = container - 1
                if entries != container - 1:
                    return np.int64(UNUSUAL)
                row = state[ROWS_USED]
                failed = _add_row(state, slots, nodes, children, stack, rows, mark, top)
                if failed < 0:
                    return -failed
                number = rows[len(rows) // len(DEFAULTS) * K_RECORD + row]
                if number < newest:
                    return np.int64(UNUSUAL)
                newest = number
                if stack[STACK_WIDTH * container + 2] >= 0:
                    memo[PAIR_WIDTH * stack[STACK_WIDTH * container + 2]] = ENTRY
                top = container
                closed_entry = True
                continue
            else:
                kind, first, into = np.int64(DICT), mark, container
        elif action == A_SINGLE:
            taken = np.int64(1 if code == 0x61 else 2)
            container = top - taken - 1
            if container < 1 or (depth > 0 and container < state[MARKS + depth - 1]):
                return np.int64(UNUSUAL)
            kind = np.int64(LIST if taken == 1 else DICT)
            first, into = container + 1, container
        elif action == A_TUPLE or action == A_MARKED_TUPLE:
            first = top
            if action == A_MARKED_TUPLE:
                if depth == 0:
                    return np.int64(UNUSUAL)
                depth -= 1
                first = state[MARKS + depth]
            elif code != 0x29:
                first = top - (np.int64(code) - 0x84)
            if first < (state[MARKS + depth - 1] if depth > 0 else 0):
                return np.int64(UNUSUAL)
            kind, into = np.int64(TUPLE), first
        elif action == A_STOP:
            done = top == 1 and depth == 0 and stack[0] == TOP
            return np.int64(WHOLE if done else UNUSUAL)
        elif action == A_REFUSE:
            return np.int64(UNUSUAL)
        if failed < 0:
            return -failed
        closed_entry = False
        if kind < 0:
            continue
        at = STACK_WIDTH * into
        if kind == TUPLE and _holds_tuples(nodes, stack, first, top):
            return np.int64(UNUSUAL)
        if kind == DICT and not _has_words_as_keys(stack, first, top):
            return np.int64(UNUSUAL)
        if kind != TUPLE and stack[at] != (OPEN_LIST if kind == LIST else OPEN_DICT):
            failed = _fill_further(
                state, slots, nodes, children, stack, memo, into, first, top, kind
            )
            if failed < 0:
                return -failed
            top = into + 1
            if depth == 1 and not top & 1 and action == A_SINGLE:
                shrunk = top
            continue
        hashed = _hash(stack, kind, first, top, state[SEED])
        if hashed == 0:
            failed = _settle(state, slots, nodes, children, stack, first, top)
            if failed < 0:
                return -failed
            hashed = _hash(stack, kind, first, top, state[SEED])
        number = np.int64(slots[hashed >> 1 & mask])
        node = NODE_WIDTH * number
        if (
            number < 0
            or nodes[node] != hashed
            or nodes[node + 1] != kind
            or nodes[node + 3] != top - first
            or not _equal_children(children, nodes[node + 2], stack, first, top)
        ):
            number = _add_node(state, slots, nodes, children, stack, kind, first, top, hashed)
            if number < 0:
                return -number
        if kind == TUPLE:
            stack[at + 2] = -1
        elif stack[at + 2] >= 0:
            slot = PAIR_WIDTH * stack[at + 2]
            memo[slot], memo[slot + 1] = NODE, number
        stack[at], stack[at + 1] = NODE, number
        top = into + 1
        if depth == 1 and not top & 1 and (action == A_SINGLE or action == A_TUPLE):
            shrunk = top
    # The file was cut: what is still open is as it was when it was last filled.
    if depth == 0:
        return np.int64(CUT if top == 1 and stack[0] == TOP else UNUSUAL)
    if state[MARKS] != 1 or (stack[0] != OPEN_DICT and stack[0] != TOP):
        return np.int64(UNUSUAL)
    last = state[MARKS + 1] - 1 if depth > 1 else top - 1
    if last + 1 == shrunk:  # what looked like a whole pair before is the key of another
        return np.int64(UNUSUAL)
    if depth > 1 and not last & 1:
        at = STACK_WIDTH * last
        if _is_list_of_entries(state, stack, last):
            inner = state[MARKS + 2] - 1 if depth > 2 else top - 1
            newest_at = STACK_WIDTH * inner
            if inner < state[MARKS + 1] - (depth == 2) or inner > state[MARKS + 1]:
                return np.int64(UNUSUAL)
            if inner == state[MARKS + 1] and stack[newest_at] != OPEN_DICT:
                return np.int64(UNUSUAL)
            if entries >= 0 and entries != last:
                return np.int64(UNUSUAL)
            stack[at] = ENTRIES
        elif (
            stack[at] == OPEN_LIST
            or (stack[at] != OPEN_DICT and stack[at] != NODE)
            or (stack[at] == NODE and nodes[NODE_WIDTH * stack[at + 1] + 1] != DICT)
        ):
            return np.int64(UNUSUAL)
    complete = 1 + (last & ~np.int64(1))
    failed = _keep_pairs(
        state, slots, nodes, children, stack, tops, np.int64(1), np.int64(complete)
    )
    return np.int64(CUT) if failed == 0 else -failed


@compiled
def place_again(slots: Int32s, table: Int64s, width: Number, count: Number) -> None:
    """Fill a larger, empty table of slots from the hashes in the first column of another."""
    mask = len(slots) - 1
    for number in range(count):
        slot = table[width * number] >> 1 & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = number


@compiled
def _has_too_many_containers(buffer: Bytes, start: Number, end: Number) -> bool:
    """See `unhang.ingest.pickles.opcodes.too_many_containers`."""
    most = SPARE_CONTAINERS + (end - start) // BYTES_OF_CONTAINER
    if end - start <= most:
        return False
    count = np.int64(0)
    for i in range(start, end):
        code = buffer[i]
        count += (code & 0xDF) == 0x5D or code == 0x29 or (code >= 0x85 and code <= 0x87)
    return bool(count > most)


@compiled
def decode_files(
    buffer: Bytes, bounds: Int64s, file: Number, state: Int64s, stack: Int64s, memo: Int64s,
    slots: Int32s, nodes: Int64s, children: Int64s, places: Int32s, strings: Int64s, text: Bytes,
    rows: Int64s, tops: Int64s, outcome: Int64s,
) -> Number:  # fmt: skip
    """Decode the files of a batch from number `file` on.

    File i lies in the buffer from `bounds[i]` to `bounds[i + 1]`; `rows`, `tops` and `outcome`
    receive what is decoded. Returns WHOLE where all files are done, or else what there has to be
    more of for file `state[FILE]`, of which `outcome` says UNUSUAL for the time being.
    """
    for i in range(file, len(bounds) - 1):
        row, top = np.int64(0), np.int64(0)
        if i > 0:
            row, top = outcome[OUTCOME_WIDTH * i - 3], outcome[OUTCOME_WIDTH * i - 1]
        state[FILE], state[ROWS_USED], state[TOPS_USED] = i, row, top
        status = np.int64(UNUSUAL)
        if not _has_too_many_containers(buffer, bounds[i], bounds[i + 1]):
            status = _decode(
                buffer, bounds[i], bounds[i + 1], state, stack, memo, slots, nodes, children,
                places, strings, text, rows, tops,
            )  # fmt: skip
        if status >= UNUSUAL:
            state[ROWS_USED], state[TOPS_USED] = row, top
        at = OUTCOME_WIDTH * i
        outcome[at] = min(status, np.int64(UNUSUAL))
        outcome[at + 1], outcome[at + 2] = row, state[ROWS_USED]
        outcome[at + 3], outcome[at + 4] = top, state[TOPS_USED]
        if status > UNUSUAL:
            return status
    return np.int64(WHOLE)
