"""Layout of the heartbeat: one mmapped file a process, which tells its last state after SIGKILL.

The module `beat` writes it, `heartbeat` reads it in other processes. The layout has a version and
never changes inside it.

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
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

OTHER: Final = "other"
"""The recorder of a backend that has no number of its own in this table."""
RECORDERS: Final = ("gloo", "nccl", "xccl", "unhang", "nccl2", "nccl-lazy", OTHER)

MAGIC: Final = int.from_bytes(b"UNHANGHB", "little")
VERSION: Final = 3
TICK_S: Final = 1.0
"""Counters, the line of the program and the sign of life are written so often."""

FILE_BYTES: Final = 65536
SLOT_START, SLOT_BYTES, SLOTS = 4096, 256, 240
CALL_SLOTS: Final = SLOTS - 6
SEEN_SLOT, TOLD_SLOT, SET_SLOT, AWAITED_SLOT = SLOTS - 2, SLOTS - 4, SLOTS - 5, SLOTS - 6
GROUP_START, GROUP_WORDS, MAX_GROUPS = 32, 5, 64
_MOST_CALL, MOST_ROOT = 0x7FFF_FFFF, 0xFFFF
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


def root_word(call: int, root: int, before: int) -> int:
    """What `Word.ROOT` holds.

    Args:
        call: Number of a call that has a root.
        root: That root.
        before: What the word held before it.
    """
    last = before >> 16 & MOST_ROOT if before >> 32 == call - 1 else MOST_ROOT
    return (call & _MOST_CALL) << 32 | min(root, MOST_ROOT) << 16 | last
