"""The heartbeat: one mmapped file a process, which tells its last state even after SIGKILL.

The recorder stores single machine words into it (a store is one instruction, so a reader never
sees half a number); places in the source are written once into slots and referred to by number.
`read_heartbeat` is for other processes. The layout has a version and never changes inside it.

Layout, native byte order: 64-bit words 0 to 31 are `Word`; from word 32 on, `MAX_GROUPS` rows of
`GROUP_WORDS` words (recorder, pg_id, last_enqueued, last_started, last_completed); behind them as
many names of `NAME_BYTES`, a group's name and description with 0x1F between; from byte 4096 on,
`SLOTS` slots of `SLOT_BYTES`: a 16-bit length and UTF-8 text, five fields with 0x1F between.
Of the last four, two take turns in holding what the program says that it does, and two in holding
where it was seen last.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from time import time_ns
from types import CodeType, FrameType
from typing import Any, Final

from unhang.record.calls.sites import MACHINERY, line_of

__all__ = ["Beat", "GroupBeat", "Heartbeat", "Phase", "read_heartbeat"]

MAGIC: Final = int.from_bytes(b"UNHANGHB", "little")
VERSION: Final = 1
FILE_BYTES: Final = 65536
SLOT_START, SLOT_BYTES, SLOTS = 4096, 256, 240
CALL_SLOTS: Final = SLOTS - 4
SEEN_SLOT, TOLD_SLOT = SLOTS - 2, SLOTS - 4
GROUP_START, GROUP_WORDS, MAX_GROUPS = 32, 5, 64
NAME_START, NAME_BYTES = (GROUP_START + GROUP_WORDS * MAX_GROUPS) * 8, 20
_MOST_NAME = 8
MASK: Final = (1 << 63) - 1
_WRITABLE: Final = 0x200
"""PyBUF_WRITE."""


class Word(IntEnum):
    """Index of each 64-bit word."""

    MAGIC = 0
    VERSION = 1
    PID = 2
    START_TICKS = 3
    ARMED_NS = 4
    PHASE = 5
    RANK = 6
    WORLD_SIZE = 7
    LOCAL_RANK = 8
    ATTEMPT = 9
    STEP = 10
    STEP_NS = 11
    CALLS = 12
    ENQUEUED = 13
    CALL_NS = 14
    WAITS = 15
    WAITED = 16
    WAITED_NS = 17
    SITE = 18
    TICK_NS = 19
    GROUPS = 20
    RECORDED = 21
    DROPPED = 22
    NUMEL = 23
    LOST_NS = 24
    FAILED = 25
    SEEN_SITE = 26
    SEEN_NS = 27
    TOLD_SITE = 28
    AT = 29
    THREAD = 30


# The words of the hot paths, as plain numbers: an enum's member costs as much as the store.
_CALLS, _ENQUEUED, _CALL_NS = int(Word.CALLS), int(Word.ENQUEUED), int(Word.CALL_NS)
_WAITS, _WAITED, _WAITED_NS = int(Word.WAITS), int(Word.WAITED), int(Word.WAITED_NS)
_SITE, _NUMEL = int(Word.SITE), int(Word.NUMEL)


class Phase(IntEnum):
    """How far a process has come; the names are those of `Mark.phase`."""

    IMPORTED = 0
    INITIALISING = 1
    READY = 2
    DESTROYED = 3
    EXITED = 4


@dataclass(frozen=True, slots=True)
class GroupBeat:
    """Counters of one group in one recorder ("gloo", "nccl", "unhang"); -1 for none yet.

    Attributes:
        pg_id: Of this process: other ranks may know the same group by another number.
        name, description: As all ranks know it, cut to fit; "" where it is not known.
    """

    recorder: str
    pg_id: int
    last_enqueued: int
    last_started: int
    last_completed: int
    name: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a heartbeat file says. Times are wall clock in ns, 0 where nothing happened yet.

    Attributes:
        rank: None before `init_process_group` has returned.
        step: None where the program told none.
        calls, enqueued: Calls made through Python, and how many of them the backend has taken:
            one fewer means that the process is inside the library.
        waits, waited: Waits begun and ended through Python.
        op, group, file, line, function: The last call through Python, and where it was made.
        recorded: Calls of our own ring as of `tick_ns`: sends and receives on Gloo.
        lost_ns: When a call last raised because a peer was gone or did not come in time.
        failed: How many calls and waits have raised; they are counted as ended as well.
        seen_file, seen_line, seen_function, seen_ns: Where the program's own code was seen last,
            once a second and when it asked to end.
        at: A number that stands for the line in which the program's thread was then, be it a
            library's; 0 where it is not known.
        activity: What the program says that it does between steps ("evaluation"), or "".
        thread: The kernel's number of the recorder's own thread, whose work is not the program's;
            0 where there is none.
        numel: Elements of its first tensor; None where it has none, or nobody noted it.
        tick_ns: When the recorder's thread last ran: it stands still while a thread keeps the
            GIL and while the process is stopped.
        groups: Counters as of `tick_ns`; they include calls issued from C++.
    """

    pid: int
    start_ticks: int
    phase: str
    rank: int | None
    world_size: int | None
    local_rank: int | None
    attempt: int
    step: int | None
    step_ns: int
    calls: int
    enqueued: int
    call_ns: int
    waits: int
    waited: int
    waited_ns: int
    tick_ns: int
    op: str = ""
    group: str = ""
    file: str = ""
    line: int = 0
    function: str = ""
    groups: tuple[GroupBeat, ...] = ()
    numel: int | None = None
    lost_ns: int = 0
    recorded: int = 0
    failed: int = 0
    seen_file: str = ""
    seen_line: int = 0
    seen_function: str = ""
    seen_ns: int = 0
    at: int = 0
    activity: str = ""
    thread: int = 0

    @property
    def last_place(self) -> tuple[str, str, int, int]:
        """The newest known place: function, file and line, and when; ("", "", 0, 0) for none."""
        call = (self.function, self.file, self.line, self.last_ns)
        seen = (self.seen_function, self.seen_file, self.seen_line, self.seen_ns)
        known = [place for place in (call, seen) if place[1]]
        return max(known, key=lambda place: place[3], default=("", "", 0, 0))

    @property
    def last_ns(self) -> int:
        """Time of the last sign of life of the program itself (not of our thread)."""
        return max(self.call_ns, self.waited_ns, self.step_ns)


RECORDERS: Final = ("gloo", "nccl", "xccl", "unhang")


# ------------------------------------------------------------------ writing


class Beat:
    """The writing side: one a process. Without a path it writes into plain memory."""

    def __init__(self, path: Path | None, *, pid: int, start_ticks: int) -> None:
        """Create the file with mode 0600.

        Raises:
            OSError: It cannot be made, or is there already.
        """
        self.path = path
        self.words = _memory(path).cast("q")
        self._bytes = self.words.cast("B")
        self.slots: dict[tuple[int, int, str, str], int] = {}
        self._keep: dict[int, tuple[tuple[int, int, str, str], CodeType]] = {}
        self.made = 0
        self.calls = 0
        self.enqueues = 0
        self.waits = 0
        self.waiteds = 0
        self.failures = 0
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

    def entered(self, frame: FrameType, op: str, group: str, numel: int = -1) -> int:
        """A call is about to be made by the code in `frame` (or by its callers).

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
        self.calls = calls = self.calls + 1
        words[_CALLS] = calls
        words[_CALL_NS] = time_ns()
        return slot

    def enqueued(self) -> None:
        """The backend took the call, or refused it: it came back."""
        self.enqueues = number = self.enqueues + 1
        self.words[_ENQUEUED] = number

    def waiting(self) -> None:
        """A wait begins."""
        self.waits = number = self.waits + 1
        self.words[_WAITS] = number

    def waited(self) -> int:
        """A wait ended; returns when."""
        self.waiteds = number = self.waiteds + 1
        words = self.words
        words[_WAITED] = number
        words[_WAITED_NS] = now = time_ns()
        return now

    def failed(self) -> None:
        """A call or a wait is about to end by raising: that is no progress."""
        self.failures = number = self.failures + 1
        self.words[Word.FAILED] = number

    def seen(self, frame: FrameType, innermost: FrameType | None = None) -> None:
        """Keep where the program is; the text before stays whole until the new one is.

        Args:
            frame: Of the user's own code.
            innermost: Of whatever that calls, where it is known.
        """
        code = frame.f_code
        text = _place("", "", code.co_filename, line_of(code, frame.f_lasti), code.co_name)
        self._take_turns(Word.SEEN_SITE, SEEN_SLOT, text)
        if innermost is not None:
            self.words[Word.AT] = hash((id(innermost.f_code), innermost.f_lineno)) & MASK or 1
        self.words[Word.SEEN_NS] = time_ns()

    def tell(self, activity: str) -> None:
        """Keep what the program says that it does; "" for its steps."""
        self._take_turns(Word.TOLD_SITE, TOLD_SLOT, _place(activity, "", "", 0, ""))

    def _take_turns(self, word: int, first: int, text: bytes) -> None:
        slot = first + (self.words[word] == first + 1)
        self._write_slot(slot, text)
        self.words[word] = slot + 1

    def tick(self, groups: list[GroupBeat], recorded: int, dropped: int) -> None:
        """The recorder's thread ran, and these are the groups' counters."""
        for row, group in enumerate(groups[:MAX_GROUPS]):
            start = GROUP_START + row * GROUP_WORDS
            values = (RECORDERS.index(group.recorder), group.pg_id, group.last_enqueued,
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
        slot = self.made % CALL_SLOTS
        self.made += 1
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
        return memoryview(mmap.mmap(-1, FILE_BYTES))
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, 0o600)
    try:
        # Blocks are taken now: a store into a hole of a full disk would be a SIGBUS.
        os.posix_fallocate(handle, 0, FILE_BYTES)
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
    address = libc.mmap(None, FILE_BYTES, protection, mmap.MAP_SHARED, handle, 0)
    if address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    view = ctypes.pythonapi.PyMemoryView_FromMemory
    view.restype = ctypes.py_object
    view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
    memory: memoryview = view(address, FILE_BYTES, _WRITABLE)
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


# ------------------------------------------------------------------ reading


def read_heartbeat(path: str | os.PathLike[str]) -> Heartbeat | None:
    """Read a heartbeat file of this or of a dead process.

    Returns:
        None where there is no such file, or it is none of ours, another user's, or of another
        version.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as stream:
        if os.fstat(stream.fileno()).st_uid != os.geteuid():
            return None
        first, second = stream.read(FILE_BYTES), b""
        if len(first) != FILE_BYTES:
            return None
        stream.seek(0)
        second = stream.read(FILE_BYTES)
    words = memoryview(first).cast("q")
    if words[Word.MAGIC] != MAGIC or words[Word.VERSION] != VERSION:
        return None
    # A slot may be rewritten while it is read: then the site's number has moved on.
    same = memoryview(second).cast("q")[Word.SITE] == words[Word.SITE]
    return _heartbeat(words, first, has_site=same)


def _heartbeat(words: memoryview[int], data: bytes, *, has_site: bool) -> Heartbeat:
    def maybe(word: Word) -> int | None:
        return None if words[word] < 0 else words[word]

    phase = words[Word.PHASE]
    site: dict[str, Any] = _read_slot(data, words[Word.SITE] - 1) if has_site else {}
    seen = _read_slot(data, words[Word.SEEN_SITE] - 1)
    return Heartbeat(
        pid=words[Word.PID],
        start_ticks=words[Word.START_TICKS],
        phase=Phase(phase).name.lower() if 0 <= phase < len(Phase) else "unknown",
        rank=maybe(Word.RANK),
        world_size=maybe(Word.WORLD_SIZE),
        local_rank=maybe(Word.LOCAL_RANK),
        attempt=words[Word.ATTEMPT],
        step=maybe(Word.STEP),
        step_ns=words[Word.STEP_NS],
        calls=words[Word.CALLS],
        enqueued=words[Word.ENQUEUED],
        call_ns=words[Word.CALL_NS],
        waits=words[Word.WAITS],
        waited=words[Word.WAITED],
        waited_ns=words[Word.WAITED_NS],
        tick_ns=words[Word.TICK_NS],
        groups=tuple(_read_groups(words, data)),
        numel=maybe(Word.NUMEL),
        lost_ns=words[Word.LOST_NS],
        recorded=words[Word.RECORDED],
        failed=words[Word.FAILED],
        seen_file=seen.get("file", ""),
        seen_line=seen.get("line", 0),
        seen_function=seen.get("function", ""),
        seen_ns=words[Word.SEEN_NS],
        at=max(words[Word.AT], 0),
        activity=_read_slot(data, words[Word.TOLD_SITE] - 1).get("op", ""),
        thread=max(words[Word.THREAD], 0),
        **site,
    )


def _read_slot(data: bytes, slot: int) -> dict[str, Any]:
    if not 0 <= slot < SLOTS:
        return {}
    start = SLOT_START + slot * SLOT_BYTES
    (length,) = struct.unpack_from("<H", data, start)
    text = data[start + 2 : start + 2 + min(length, SLOT_BYTES - 2)].decode("utf-8", "replace")
    parts = text.split("\x1f")
    if len(parts) != 5 or not parts[3].isdigit():  # noqa: PLR2004 - the five fields above
        return {}
    op, group, file, line, function = parts
    return {"op": op, "group": group, "file": file, "line": int(line), "function": function}


def _read_groups(words: memoryview[int], data: bytes) -> list[GroupBeat]:
    rows = []
    for row in range(max(0, min(words[Word.GROUPS], MAX_GROUPS))):
        start = GROUP_START + row * GROUP_WORDS
        recorder, pg_id, enqueued, started, completed = words[start : start + GROUP_WORDS].tolist()
        at = NAME_START + row * NAME_BYTES
        text = data[at : at + NAME_BYTES].rstrip(b"\0").decode("utf-8", "replace")
        name, _, description = text.partition("\x1f")
        if 0 <= recorder < len(RECORDERS):
            whose = RECORDERS[recorder]
            rows.append(GroupBeat(whose, pg_id, enqueued, started, completed, name, description))
    return rows
