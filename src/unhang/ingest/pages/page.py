"""The ring of last calls in a heartbeat's file, read: its groups and its records.

The file is no more trusted than any other: what cannot be is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from unhang.errors import UsageError
from unhang.record.contact.heartbeat import Heartbeat, parse_heartbeat, read_slot
from unhang.record.contact.latest import (
    GROUP_BYTES,
    GROUPS,
    PAGE_BYTES,
    RECORD_WORDS,
    RECORDS,
    RING_START,
    TABLE_START,
    Flag,
    Item,
)
from unhang.wording import ranges_of

BARRIER: Final = "monitored_barrier"
ALL_TO_ALL: Final = "all_to_all"
_MOST_MEMBERS: Final = 1 << 18
"""Of all groups of a page together; beyond it members count as not known."""
_FIELDS, _MOST_DIGITS = 6, 9


class PageGroup(NamedTuple):
    """A process group as its member has written it down.

    Attributes:
        members: Global ranks in group order; empty where nothing tells.
        rank: The process's own, in the group.
    """

    name: str
    description: str
    backend: str
    timeout_ms: int
    members: tuple[int, ...]
    rank: int


@dataclass(slots=True)
class PageCall:
    """One call: the words of its record, and what the slot of its place says."""

    words: Sequence[int]
    op: str
    frames: list[dict[str, Any]]
    group: PageGroup | None

    def __getitem__(self, item: Item) -> int:
        """A word of its record."""
        return self.words[item]

    @property
    def is_exchange(self) -> bool:
        """Whether it is a send or a receive."""
        return bool(self[Item.FLAGS] & Flag.EXCHANGE)

    @property
    def is_asked(self) -> bool:
        """Whether its group has told its number."""
        return self[Item.SEQ] > 0 and not self[Item.FLAGS] & Flag.ASSUMED

    @property
    def takes(self) -> int:
        """How many of its group's numbers it takes: as Gloo counts."""
        return 2 if self.op == BARRIER else 1


def groups_of(data: bytes) -> Iterator[tuple[int, PageGroup]]:
    """The groups by their number."""
    room = _MOST_MEMBERS
    for number in range(GROUPS):
        start = TABLE_START + number * GROUP_BYTES
        (length,) = struct.unpack_from("=H", data, start)
        text = data[start + 2 : start + 2 + min(length, GROUP_BYTES - 2)]
        fields = text.decode("utf-8", "replace").split("\x1f")
        if len(fields) != _FIELDS:
            continue
        name, description, backend, timeout, told, rank = fields
        members = _members(told, room)
        room -= len(members)
        yield (
            number + 1,
            PageGroup(name, description, backend, _small(timeout), members, _small(rank)),
        )


def _members(text: str, most: int) -> tuple[int, ...]:
    try:
        ranges = ranges_of(text) if text else ()
    except UsageError:
        return ()
    if sum(map(len, ranges)) > most:
        return ()
    return tuple(rank for each in ranges for rank in each)


def _small(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else -1


def calls_of(data: bytes, beat: Heartbeat, rows: Mapping[int, PageGroup]) -> list[PageCall]:
    """The records that are whole and of the last calls, oldest first."""
    words = memoryview(data).cast("q")
    found = []
    for place in range(RECORDS):
        start = RING_START // 8 + place * RECORD_WORDS
        own = words[start : start + RECORD_WORDS].tolist()
        number = own[Item.NUMBER]
        if number % RECORDS != place or not max(0, beat.calls - RECORDS) < number <= beat.calls:
            continue
        slot = read_slot(data, own[Item.SITE] - 1)
        frame = {
            "name": slot.get("function"),
            "filename": slot.get("file"),
            "line": slot.get("line"),
        }
        frames = [frame] if slot.get("file") else []
        found.append(PageCall(own, slot.get("op", ""), frames, rows.get(own[Item.GROUP])))
    return sorted(found, key=lambda call: call[Item.NUMBER])


def splits_in(data: bytes) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """What the last calls of a rank send and expect, where the newest is an all_to_all.

    Returns:
        Of each, oldest first: its number in the group, the members, and the elements to and from
        each of them. None for a page that is not whole, or whose numbers do not agree.
    """
    beat = parse_heartbeat(data) if len(data) == PAGE_BYTES else None
    calls = calls_of(data, beat, dict(groups_of(data))) if beat is not None else []
    if not calls or calls[-1].op != ALL_TO_ALL:
        return ()
    own = [call for call in calls if call.group == calls[-1].group and not call.is_exchange]
    gaps = {after[Item.SEQ] - call[Item.SEQ] - call.takes for call, after in pairwise(own)}
    if own[0].group is None or own[0][Item.SEQ] <= 0 or gaps - {0}:
        return ()
    found = (_splits_of(call, own[0].group.members) for call in own if call.op == ALL_TO_ALL)
    return tuple(each for each in found if each)


def _splits_of(call: PageCall, members: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    count, start = call[Item.SPLITS], Item.FIRST_SPLIT
    words = struct.pack(f"={RECORD_WORDS - start}q", *call.words[start:])
    told = memoryview(words).cast("I").tolist()
    sends = _parts(told[: count >> 8], call[Item.INPUTS], len(members))
    expects = _parts(told[count >> 8 :][: count & 0xFF], call[Item.OUTPUTS], len(members))
    return ((call[Item.SEQ],), members, sends, expects) if sends and expects else ()


def _parts(rows: Sequence[int], elements: int, members: int) -> tuple[int, ...]:
    """Elements for each member: by its splits, which count rows, or else the same for all."""
    if not rows:
        return (elements // members,) * members if members and elements % members == 0 else ()
    total = sum(rows)
    if len(rows) != members or elements < 0 or (elements % total if total else elements):
        return ()
    return tuple(row * (elements // total) if total else 0 for row in rows)
