"""The heartbeat: one mmapped file a process, which tells its last state even after SIGKILL.

Here are its layout and `read_heartbeat`, for other processes; the module `beat` writes it.
The layout has a version and never changes inside it.

Layout, native byte order: 64-bit words 0 to 31 are `Word`; from word 32 on, `MAX_GROUPS` rows of
`GROUP_WORDS` words (recorder, pg_id, last_enqueued, last_started, last_completed). Behind them as
many names of `NAME_BYTES`, a group's name and description with 0x1F between; from byte 4096 on,
`SLOTS` slots of `SLOT_BYTES`: a 16-bit length and UTF-8 text, five fields with 0x1F between.
Of the last six slots, two hold keys of stores, the one that the process waits for and the one that
it set last (of no length where there is none; of the first the other fields tell of RPC: what it
waits in, its own name, the workers instead of the key, its number of serving threads, and the
function that it asked for). Two take turns in holding what the program says that it does, and two
in holding where it was seen last. From byte `FILE_BYTES` on is the ring of last calls (`latest`).
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

OTHER: Final = "other"
"""The recorder of a backend that has no number of its own in this table."""

MAGIC: Final = int.from_bytes(b"UNHANGHB", "little")
VERSION: Final = 3
TICK_S: Final = 1.0
"""Counters, the line of the program and the sign of life are written so often."""

FILE_BYTES: Final = 65536
SLOT_START, SLOT_BYTES, SLOTS = 4096, 256, 240
CALL_SLOTS: Final = SLOTS - 6
SEEN_SLOT, TOLD_SLOT, SET_SLOT, AWAITED_SLOT = SLOTS - 2, SLOTS - 4, SLOTS - 5, SLOTS - 6
GROUP_START, GROUP_WORDS, MAX_GROUPS = 32, 5, 64
_MOST_CALL, _MOST_ROOT = 0x7FFF_FFFF, 0xFFFF
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
NAME_START, NAME_BYTES = (GROUP_START + GROUP_WORDS * MAX_GROUPS) * 8, 20


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
    ROOT = 31


class Phase(IntEnum):
    """How far a process has come; the names are those of `Mark.phase`."""

    IMPORTED = 0
    INITIALISING = 1
    READY = 2
    DESTROYED = 3
    EXITED = 4


@dataclass(frozen=True, slots=True)
class GroupBeat:
    """Counters of one group in one recorder ("gloo", "nccl", "nccl2", "unhang"); -1 for none yet.

    A hook of torch's counts operations from 0, sends and receives included, and not collectives.

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
        awaits, has_set: The key of a store that it waits for, and the one that it set last through
            Python, or ""; of long ones the end.
        asks, asks_in, asks_for: The workers of RPC that it waits for, with commas; in which call
            ("" for none), and which function they are to run.
        worker, serving: Its own name as an RPC worker, or ""; and how many threads serve others.
        thread: The kernel's number of the recorder's own thread, whose work is not the program's;
            0 where there is none.
        numel: Elements of its first tensor; None where it has none, or it was not noted.
        roots: Numbers of the last call that had a root, and of the one right before it if it had
            one, too; and that root: the rank in the group that data came from, or went to.
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
    roots: tuple[tuple[int, int], ...] = ()
    lost_ns: int = 0
    recorded: int = 0
    failed: int = 0
    seen_file: str = ""
    seen_line: int = 0
    seen_function: str = ""
    seen_ns: int = 0
    at: int = 0
    activity: str = ""
    awaits: str = ""
    has_set: str = ""
    asks: str = ""
    asks_in: str = ""
    asks_for: str = ""
    worker: str = ""
    serving: int = 0
    thread: int = 0

    @property
    def last_places(self) -> list[tuple[str, str, int, int]]:
        """The known places, newest first: function, file and line, and when."""
        call = (self.function, self.file, self.line, self.last_ns)
        seen = (self.seen_function, self.seen_file, self.seen_line, self.seen_ns)
        known = [place for place in (call, seen) if place[1]]
        return sorted(known, key=lambda place: place[3], reverse=True)

    @property
    def last_ns(self) -> int:
        """Time of the last sign of life of the program itself (not of our thread)."""
        return max(self.call_ns, self.waited_ns, self.step_ns)


RECORDERS: Final = ("gloo", "nccl", "xccl", "unhang", "nccl2", "nccl-lazy", OTHER)


def read_heartbeat(path: str | os.PathLike[str]) -> Heartbeat | None:
    """Read a heartbeat file of this or of a dead process.

    Returns:
        None where there is no such file, or it is none of ours, another user's, or of another
        version.
    """
    first = bytes_of(path, FILE_BYTES)
    if len(first) != FILE_BYTES:
        return None
    return parse_heartbeat(first, bytes_of(path, FILE_BYTES))


def bytes_of(path: str | os.PathLike[str], most: int) -> bytes:
    """The beginning of a file of this user's; b"" where there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        is_own = os.fstat(handle).st_uid == os.geteuid()
        return os.read(handle, most) if is_own else b""
    except OSError:
        return b""
    finally:
        os.close(handle)


def parse_heartbeat(data: bytes, again: bytes = b"") -> Heartbeat | None:
    """What the first `FILE_BYTES` bytes of a heartbeat's file say; None where it is none of ours.

    Args:
        data: They, from anywhere.
        again: The same, read a moment later, of a file that may be written in the meantime.
    """
    words = memoryview(data[:FILE_BYTES]).cast("q")
    if words[Word.MAGIC] != MAGIC or words[Word.VERSION] != VERSION:
        return None
    # A slot may be rewritten while it is read: then the site's number has moved on.
    later = memoryview(again).cast("q") if len(again) == FILE_BYTES else words
    return _heartbeat(words, data, has_site=later[Word.SITE] == words[Word.SITE])


def _heartbeat(words: memoryview[int], data: bytes, *, has_site: bool) -> Heartbeat:
    def maybe(word: Word) -> int | None:
        return None if words[word] < 0 else words[word]

    phase = words[Word.PHASE]
    site: dict[str, Any] = read_slot(data, words[Word.SITE] - 1) if has_site else {}
    seen = read_slot(data, words[Word.SEEN_SITE] - 1)
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
        roots=tuple(_roots(words[Word.ROOT])),
        lost_ns=words[Word.LOST_NS],
        recorded=words[Word.RECORDED],
        failed=words[Word.FAILED],
        seen_file=seen.get("file", ""),
        seen_line=seen.get("line", 0),
        seen_function=seen.get("function", ""),
        seen_ns=words[Word.SEEN_NS],
        at=max(words[Word.AT], 0),
        activity=read_slot(data, words[Word.TOLD_SITE] - 1).get("op", ""),
        **_awaited(read_slot(data, AWAITED_SLOT)),
        has_set=read_slot(data, SET_SLOT).get("file", ""),
        thread=max(words[Word.THREAD], 0),
        **site,
    )


def _awaited(slot: dict[str, Any]) -> dict[str, Any]:
    """What it waits for: a key of a store where no call of RPC is named."""
    own = {"worker": slot.get("group", ""), "serving": slot.get("line", 0)}
    if not slot.get("op"):
        return {"awaits": slot.get("file", ""), **own}
    return {"asks": slot["file"], "asks_in": slot["op"], "asks_for": slot["function"], **own}


def root_word(call: int, root: int, before: int) -> int:
    """What `Word.ROOT` holds.

    Args:
        call: Number of a call that has a root.
        root: That root.
        before: What the word held before it.
    """
    last = before >> 16 & _MOST_ROOT if before >> 32 == call - 1 else _MOST_ROOT
    return (call & _MOST_CALL) << 32 | min(root, _MOST_ROOT) << 16 | last


def _roots(word: int) -> Iterator[tuple[int, int]]:
    call = word >> 32
    for number, root in ((call, word >> 16 & _MOST_ROOT), (call - 1, word & _MOST_ROOT)):
        if number > 0 and root != _MOST_ROOT:
            yield number, root


def read_slot(data: bytes, slot: int) -> dict[str, Any]:
    """What a slot tells, its number from 0 on: op, group, file, line, function; {} for nothing."""
    if not 0 <= slot < SLOTS:
        return {}
    start = SLOT_START + slot * SLOT_BYTES
    (length,) = struct.unpack_from("<H", data, start)
    text = data[start + 2 : start + 2 + min(length, SLOT_BYTES - 2)].decode("utf-8", "replace")
    parts = text.split("\x1f")
    if len(parts) != 5 or not _NUMBER.fullmatch(parts[3]):  # noqa: PLR2004 - the five fields above
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
