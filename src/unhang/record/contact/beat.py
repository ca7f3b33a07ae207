"""The writing side of the heartbeat: where the process is, a store for each thing that happens.

The recorder stores single machine words (a store is one instruction, so a reader never sees half a
number); places in the source are written once into slots and referred to by number.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from array import array
from pathlib import Path
from time import monotonic_ns, time_ns
from types import CodeType, FrameType
from typing import Final

from unhang.record.calls.remembering import NOTHING, Given, LatestCalls
from unhang.record.calls.sites import MACHINERY, line_of
from unhang.record.contact.beatlayout import (
    AWAITED_SLOT,
    CALL_SLOTS,
    GROUP_START,
    GROUP_WORDS,
    MAGIC,
    MAX_GROUPS,
    NAME_BYTES,
    NAME_START,
    OTHER,
    RECORDERS,
    SEEN_SLOT,
    SET_SLOT,
    SLOT_BYTES,
    SLOT_START,
    TOLD_SLOT,
    VERSION,
    GroupBeat,
    Word,
    root_word,
)
from unhang.record.contact.latest import PAGE_BYTES

_MOST_NAME = 8
MASK: Final = (1 << 63) - 1
LEAVES_NS: Final = 3_000_000_000
_WRITABLE: Final = 0x200
"""PyBUF_WRITE."""

# The words of the hot paths, as plain numbers: an enum's member costs as much as the store.
_CALLS, _ENQUEUED, _CALL_NS = int(Word.CALLS), int(Word.ENQUEUED), int(Word.CALL_NS)
_WAITS, _WAITED, _WAITED_NS = int(Word.WAITS), int(Word.WAITED), int(Word.WAITED_NS)
_SITE, _NUMEL = int(Word.SITE), int(Word.NUMEL)


class Beat:
    """The writing side: one a process. Without a path it writes into plain memory.

    Attributes:
        words: The numbers; the compiled methods (`quick`) write into them as well.
        slots: Numbers of the places in the source that were called from last.
        places: One number, how many places there were so far: the oldest make room.
        latest: The ring of last calls.
    """

    def __init__(self, path: Path | None, *, pid: int, start_ticks: int) -> None:
        """Create the file with mode 0600.

        Raises:
            OSError: It cannot be made, or is there already.
        """
        self.path = path
        self.words = _memory(path).cast("q")
        self._bytes = self.words.cast("B")
        self.latest = LatestCalls(self.words)
        self.slots: dict[tuple[int, int, str, str], int] = {}
        self._keep: dict[int, tuple[tuple[int, int, str, str], CodeType]] = {}
        self.places = array("q", [0])
        self._leaves_until_ns = 0
        self._worker, self._asks = ("", 0), b""
        for word in (Word.RANK, Word.WORLD_SIZE, Word.LOCAL_RANK, Word.STEP, Word.NUMEL):
            self.words[word] = -1
        self.set(Word.PID, pid)
        self.set(Word.START_TICKS, start_ticks)
        self.set(Word.ARMED_NS, time_ns())
        self.set(Word.VERSION, VERSION)
        self.set(Word.MAGIC, MAGIC)

    def set(self, word: int, value: int | None) -> None:
        """Store one word; None is -1."""
        self.words[word] = -1 if value is None else value

    def step(self, number: int) -> None:
        """The program says which step it is in."""
        self.words[Word.STEP] = number & MASK
        self.words[Word.STEP_NS] = time_ns()

    def entered(
        self, frame: FrameType, op: str, group: str, numel: int = -1, given: Given = NOTHING
    ) -> int:
        """A call is about to be made by the code in `frame` (or by its callers).

        Args:
            frame: Of the code that makes it.
            op: What it is called.
            group: Name of its group.
            numel: Elements of its first tensor.
            given: What goes into the ring of last calls.

        Returns:
            The number of its place in the source; 0 where the program has no part in it.
        """
        words = self.words
        words[_NUMEL] = numel
        slot = 0
        site: FrameType | None = frame
        while site is not None and MACHINERY[site.f_code.co_filename]:
            site = site.f_back
        if site is not None:
            key = (id(site.f_code), site.f_lasti, op, group)
            slot = self.slots.get(key) or self.new_slot(key, site.f_code)
            words[_SITE] = slot
        words[_CALLS] = number = words[_CALLS] + 1
        words[_CALL_NS] = now_ns = time_ns()
        self.latest.begins(number, now_ns, slot, given)
        return slot

    def rooted(self, root: int) -> None:
        """The call that was entered last has a root."""
        self.words[Word.ROOT] = root_word(self.words[_CALLS], root, self.words[Word.ROOT])

    def enqueued(self) -> None:
        """The backend took the call, or refused it: it came back."""
        self.words[_ENQUEUED] += 1

    def waiting(self) -> None:
        """A wait begins."""
        self.words[_WAITS] += 1

    def waited(self) -> int:
        """A wait ended; returns when."""
        words = self.words
        words[_WAITED] += 1
        words[_WAITED_NS] = now = time_ns()
        return now

    def failed(self) -> None:
        """A call or a wait is about to end by raising: that is no progress."""
        self.words[Word.FAILED] += 1

    def seen(
        self, frame: FrameType, innermost: FrameType | None = None, *, leaves: bool = False
    ) -> None:
        """Keep where the program is; the text before stays whole until the new one is.

        Where it asks to end is kept for a while: what comes after it are its callers, which it
        leaves one by one.

        Args:
            frame: Of the user's own code.
            innermost: Of whatever that calls, where it is known.
            leaves: It asks to end there.
        """
        now_ns = monotonic_ns()
        if not leaves and now_ns < self._leaves_until_ns:
            return
        self._leaves_until_ns = now_ns + LEAVES_NS if leaves else 0
        code = frame.f_code
        text = _place("", "", code.co_filename, line_of(code, frame.f_lasti), code.co_name)
        self._take_turns(Word.SEEN_SITE, SEEN_SLOT, text)
        if innermost is not None:
            self.words[Word.AT] = hash((id(innermost.f_code), innermost.f_lineno)) & MASK or 1
        self.words[Word.SEEN_NS] = time_ns()

    def tell(self, activity: str) -> None:
        """Keep what the program says that it does; "" for its steps."""
        self._take_turns(Word.TOLD_SITE, TOLD_SLOT, _place(activity, "", "", 0, ""))

    def awaits(self, key: str) -> None:
        """Keep the key of a store that the process waits for; "" for none."""
        if key:
            self._write_slot(AWAITED_SLOT, _place("", self._worker[0], key, self._worker[1], ""))
        else:
            self._write_slot(AWAITED_SLOT, self._asks)

    def asks(self, op: str, workers: str, function: str, own: tuple[str, int]) -> None:
        """Keep which workers of RPC the process waits for, in which call; "" for none.

        Args:
            op: The call.
            workers: Their names, with commas.
            function: What they are to run.
            own: Its own name among them, and how many threads of it serve the others.
        """
        self._worker = own
        self._asks = _place(op, own[0], workers, own[1], function) if op or own[0] else b""
        self._write_slot(AWAITED_SLOT, self._asks)

    def has_set(self, key: str) -> None:
        """Keep the key of a store that the process has set."""
        self._write_slot(SET_SLOT, _place("", "", key, 0, ""))

    def _take_turns(self, word: int, first: int, text: bytes) -> None:
        slot = first + (self.words[word] == first + 1)
        self._write_slot(slot, text)
        self.words[word] = slot + 1

    def tick(self, groups: list[GroupBeat], recorded: int, dropped: int) -> None:
        """The recorder's thread ran, and these are the groups' counters."""
        for row, group in enumerate(groups[:MAX_GROUPS]):
            start = GROUP_START + row * GROUP_WORDS
            known = group.recorder if group.recorder in RECORDERS else OTHER
            values = (RECORDERS.index(known), group.pg_id, group.last_enqueued,
                      group.last_started, group.last_completed)  # fmt: skip
            for offset, value in enumerate(values):
                self.words[start + offset] = value
            at = NAME_START + row * NAME_BYTES
            self._bytes[at : at + NAME_BYTES] = _name_of(group)
        self.words[Word.GROUPS] = min(len(groups), MAX_GROUPS)
        self.words[Word.RECORDED] = recorded
        self.words[Word.DROPPED] = dropped
        self.words[Word.TICK_NS] = time_ns()

    def new_slot(self, key: tuple[int, int, str, str], code: CodeType) -> int:
        """Write a place into the next slot; returns its number, from 1 on.

        The code object is kept as long as its id is a key, so that the id stays its own.
        """
        slot = self.places[0] % CALL_SLOTS
        self.places[0] += 1
        if slot in self._keep:
            self.slots.pop(self._keep[slot][0], None)
            self.words[Word.SITE] = 0
        line = line_of(code, key[1])
        text = _place(key[2], key[3], code.co_filename, line, code.co_name)
        self._write_slot(slot, text)
        self._keep[slot] = (key, code)
        self.slots[key] = slot + 1
        return slot + 1

    def _write_slot(self, slot: int, text: bytes) -> None:
        start = SLOT_START + slot * SLOT_BYTES
        self._bytes[start : start + 2 + len(text)] = struct.pack("<H", len(text)) + text


def _memory(path: Path | None) -> memoryview:
    if path is None:
        return memoryview(mmap.mmap(-1, PAGE_BYTES))
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, 0o600)
    try:
        # Blocks are taken now: a store into a hole of a full disk would be a SIGBUS.
        os.posix_fallocate(handle, 0, PAGE_BYTES)
        return _mapped(handle)
    finally:
        os.close(handle)


def _mapped(handle: int) -> memoryview:
    """A file in memory, for ever. Python's own mmap keeps a descriptor, which the job may need.

    Raises:
        OSError: There is no memory for it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    address = libc.mmap(None, PAGE_BYTES, protection, mmap.MAP_SHARED, handle, 0)
    if address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    view = ctypes.pythonapi.PyMemoryView_FromMemory
    view.restype = ctypes.py_object
    view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
    memory: memoryview = view(address, PAGE_BYTES, _WRITABLE)
    return memory


def _place(op: str, group: str, file: str, line: int, function: str) -> bytes:
    """The text of a slot, in bytes that always fit; of a long path the end is kept."""
    head = _cut(op, 40) + b"\x1f" + _cut(group, 40) + b"\x1f"
    tail = b"\x1f%d\x1f" % line + _cut(function, 60)
    room = SLOT_BYTES - 2 - len(head) - len(tail)
    return head + file.encode("utf-8", "replace")[-room:] + tail


def _name_of(group: GroupBeat) -> bytes:
    """The bytes of a group's name; none where it has none."""
    name = _cut(group.name, _MOST_NAME)
    text = name + b"\x1f" + group.description.encode("utf-8", "replace") if name else b""
    return text[:NAME_BYTES].ljust(NAME_BYTES, b"\0")


def _cut(text: str, most: int) -> bytes:
    return text.encode("utf-8", "replace")[:most]
