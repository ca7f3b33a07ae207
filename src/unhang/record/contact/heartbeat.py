"""Reads the heartbeat of a process, alive or dead; the process itself needs only `beatlayout`."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from unhang.record.contact.beatlayout import (
    AWAITED_SLOT,
    FILE_BYTES,
    GROUP_START,
    GROUP_WORDS,
    MAGIC,
    MAX_GROUPS,
    MOST_ROOT,
    NAME_BYTES,
    NAME_START,
    RECORDERS,
    SET_SLOT,
    SLOT_BYTES,
    SLOT_START,
    SLOTS,
    VERSION,
    GroupBeat,
    Phase,
    Word,
    bytes_of,
)
from unhang.record.statement import ProgramState
from unhang.telltale import without_secrets

_NUMBER: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Heartbeat(ProgramState):
    """What a heartbeat file says. Times are wall clock in ns, 0 where nothing happened yet.

    Attributes:
        rank: None before `init_process_group` has returned.
        step: None where the program told none.
        calls, enqueued: Calls made through Python, and how many of them the backend has taken:
            one fewer means that the process is inside the library.
        waits, waited: Waits begun and ended through Python.
        op, group, file, line, function: The last call through Python, and where it was made.
        recorded: Calls of our own ring as of `tick_ns`: sends and receives on Gloo.
        failed: How many calls and waits have raised; they are counted as ended as well.
        seen_file, seen_line, seen_function, seen_ns: Where the program's own code was seen last,
            once a second and when it asked to end.
        at: A number that stands for the line in which the program's thread was then, be it a
            library's; 0 where it is not known.
        thread: The kernel's number of the recorder's own thread, whose work is not the program's;
            0 where there is none.
        numel: Elements of its first tensor; None where it has none, or it was not noted.
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
    recorded: int = 0
    failed: int = 0
    seen_file: str = ""
    seen_line: int = 0
    seen_function: str = ""
    seen_ns: int = 0
    at: int = 0
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


_DECLARED: Final = {each.name: str(each.type) for each in fields(Heartbeat)}
_WORDS: Final = {
    word.name.lower(): word
    for word in Word
    if _DECLARED.get(word.name.lower()) in ("int", "int | None")
}
"""The fields that have a word of their own, by its name."""
_MAYBE: Final = [name for name in _WORDS if _DECLARED[name] == "int | None"]


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
    told: dict[str, Any] = {name: words[word] for name, word in _WORDS.items()}
    told |= {name: None for name in _MAYBE if told[name] < 0}
    phase = words[Word.PHASE]
    site: dict[str, Any] = read_slot(data, words[Word.SITE] - 1) if has_site else {}
    seen = read_slot(data, words[Word.SEEN_SITE] - 1)
    return Heartbeat(
        **told,
        phase=Phase(phase).name.lower() if 0 <= phase < len(Phase) else "unknown",
        groups=tuple(_read_groups(words, data)),
        roots=tuple(_roots(words[Word.ROOT])),
        **{f"seen_{key}": seen[key] for key in ("file", "line", "function") if seen},
        activity=read_slot(data, words[Word.TOLD_SITE] - 1).get("op", ""),
        **_awaited(read_slot(data, AWAITED_SLOT)),
        has_set=without_secrets(read_slot(data, SET_SLOT).get("file", "")),
        **site,
    )


def _awaited(slot: dict[str, Any]) -> dict[str, Any]:
    """What it waits for: a key of a store where no call of RPC is named."""
    own = {"worker": slot.get("group", ""), "serving": slot.get("line", 0)}
    if not slot.get("op"):
        return {"awaits": without_secrets(slot.get("file", "")), **own}
    return {"asks": slot["file"], "asks_in": slot["op"], "asks_for": slot["function"], **own}


def _roots(word: int) -> Iterator[tuple[int, int]]:
    call = word >> 32
    for number, root in ((call, word >> 16 & MOST_ROOT), (call - 1, word & MOST_ROOT)):
        if number > 0 and root != MOST_ROOT:
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
