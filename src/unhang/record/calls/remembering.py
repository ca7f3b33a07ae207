"""Writes the ring of last calls, for calls that go the long way; its layout is `contact.latest`.

What a call gives is noted before it is made, for it may never come back. The compiled methods
(`quick`) do the same, in Rust.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from unhang.record.calls.ring import AGREEING, Channel, Foreign
from unhang.record.contact.latest import (
    DTYPES,
    GROUP_BYTES,
    GROUPS,
    MOST_SPLITS,
    RECORD_WORDS,
    RECORDS,
    RING_START,
    TABLE_START,
    Flag,
    Item,
    members_text,
)

_COUNTED: Final = frozenset({"gloo", "nccl", "xccl"})
"""Backends whose own count of calls is the sequence number that torch's recorder writes."""
_ON_HOST: Final = "gloo"
_BARRIER: Final = "monitored_barrier"
_ALL_TO_ALL: Final = 4
_MOST_LISTED: Final = 64
_MOST_WORKS: Final = 4 * RECORDS
_MOST_TEXT: Final = 100
_MOST_MEMBERS: Final = 80
_WORD_MASK: Final = (1 << 63) - 1
_SMALL: Final = 1 << 32


class Given(NamedTuple):
    """What a call is given, in the order of the words of its record from `Item.GROUP` on."""

    group: int = 0
    seq: int = -1
    p2p_seq: int = 0
    peer: int = -1
    tag: int = -1
    flags: int = 0
    inputs: int = -1
    outputs: int = -1
    dtype: int = 0
    work: int = 0
    splits: int = 0


NOTHING: Final = Given()
_BODY: Final = struct.Struct("=14q")
_FIRST: Final = RING_START // 8
_WORK, _ENDED, _FLAGS = int(Item.WORK), int(Item.ENDED_NS), int(Item.FLAGS)
_EXCHANGE, _FAILED, _AWAITED, _OWN, _ASSUMED = map(int, (*Flag,))
_EXPECTED, _TRUST = 2, 3


class LatestCalls:
    """The records of one process, and its groups.

    Attributes:
        at: The first word of the newest record.
    """

    def __init__(self, words: memoryview) -> None:
        """Take the whole file in memory, as 64-bit words."""
        self.at = _FIRST
        self._words, self._bytes = words, words.cast("B")
        self._by_work: dict[int, int] = {}
        self._told: dict[int, int] = {}

    def begins(self, number: int, now_ns: int, site: int, given: Given) -> None:
        """A call is about to be made.

        Args:
            number: Of the call in this process, from 1 on.
            now_ns: Wall clock.
            site: Number of its place.
            given: What it is given.
        """
        words = self._words
        self.at = at = _FIRST + number % RECORDS * RECORD_WORDS
        words[at] = 0
        before = words[at + _WORK]
        if before and self._by_work.get(before) == at:
            self._by_work.pop(before, None)  # Another thread may have waited for it just now.
        _BODY.pack_into(self._bytes, 8 * at + 8, now_ns, 0, site, *given)
        words[at] = number

    def split(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Keep the splits of the newest call."""
        if max(len(inputs), len(outputs)) > MOST_SPLITS:
            return
        kept = [size if 0 <= size < _SMALL else 0 for size in (*inputs, *outputs)]
        start = 8 * (self.at + Item.FIRST_SPLIT)
        struct.pack_into(f"={len(kept)}I", self._bytes, start, *kept)
        self._words[self.at + Item.SPLITS] = len(inputs) << 8 | len(outputs)

    def returned(self, at: int, work: Foreign) -> None:
        """The call of a record came back, with its Work or without one."""
        self._words[at + _WORK] = key = 1 if work is None else id(work)
        if len(self._by_work) >= _MOST_WORKS:
            self._by_work.clear()
        self._by_work[key] = at

    def awaited(self, work: int) -> None:
        """The program begins to wait for a Work, by its identity."""
        at = self._by_work.get(work)
        if at is not None and self._words[at + _WORK] == work:
            self._words[at + _FLAGS] |= _AWAITED

    def ended(self, work: int, now_ns: int, *, failed: bool = False) -> None:
        """The wait for a Work, by its identity, has come back, or has raised."""
        at = self._by_work.pop(work, None)
        if at is not None and self._words[at + _WORK] == work:
            self.ends(at, now_ns, failed=failed)

    def ends(self, at: int, now_ns: int, *, failed: bool = False) -> None:
        """The call of a record is over, or has raised."""
        if failed:
            self._words[at + _FLAGS] |= _FAILED
        self._words[at + _ENDED] = now_ns

    def group(self, channel: Channel) -> int:
        """Number of a group's row, which is written at its first call; 0 where there is no room."""
        known = self._told.get(channel.pg_id)
        if known is not None:
            return known
        number = len(self._told) + 1
        if number > GROUPS:
            return 0
        fields = (
            channel.name[:_MOST_TEXT], channel.description[:_MOST_TEXT], channel.backend[:20],
            str(channel.timeout_ms), _members(channel), str(channel.rank),
        )  # fmt: skip
        text = "\x1f".join(fields).encode("utf-8", "replace")
        if len(text) > GROUP_BYTES - 2:
            return 0
        start = TABLE_START + (number - 1) * GROUP_BYTES
        self._bytes[start : start + 2 + len(text)] = struct.pack("=H", len(text)) + text
        self._told[channel.pg_id] = number
        return number


def _members(channel: Channel) -> str:
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    ranks = getattr(getattr(c10d, "_world", None), "pg_group_ranks", {})
    order = ranks.get(channel.ref(), {})
    return members_text(sorted(map(int, order)), _MOST_MEMBERS) if order else ""


def counts(channel: Channel) -> bool:
    """Whether a group is to be asked how many calls it has counted."""
    return channel.backend in _COUNTED and not channel.bare


def given_by(group: int, channel: Channel, method: str, args: tuple[Any, ...]) -> Given:
    """What a call of a method of `ProcessGroup` is given.

    Args:
        group: Number of the group's row.
        channel: The group.
        method: "send", "recv", "recv_anysource", "monitored_barrier", or a collective.
        args: As the method gets them, without the group.
    """
    flags = _OWN if channel.bare else 0
    if method in ("send", "recv", "recv_anysource"):
        tensors, tag = args[0], args[-1]
        peer = args[1] if method != "recv_anysource" else -1
        if channel.backend == _ON_HOST and channel.counters[_EXPECTED]:
            channel.counters[_EXPECTED] += 1
        elements = _elements(tensors)
        return Given(
            group, -1, channel.p2p_seq + 1, peer, tag & _WORD_MASK, flags | _EXCHANGE,
            elements, elements, _dtype(tensors),
        )  # fmt: skip
    seq, assumed = _numbered(channel, 2 if method == _BARRIER else 1)
    flags |= assumed
    if method in ("barrier", _BARRIER):
        return Given(group, seq, channel.p2p_seq, flags=flags)
    outputs = args[0]
    inputs = outputs if method in _IN_PLACE else args[1]
    into = _elements(inputs)
    root = getattr(args[-1], "rootRank", -1) if method in _ROOTED else -1
    return Given(
        group, seq, channel.p2p_seq, root, -1, flags,
        into, into if inputs is outputs else _elements(outputs), _dtype(inputs) or _dtype(outputs),
    )  # fmt: skip


def _numbered(channel: Channel, takes: int) -> tuple[int, int]:
    """The group's number of a call that takes so many, and whether that is assumed, as a flag."""
    if not counts(channel):
        return -1, 0
    counters = channel.counters
    expected, trust = counters[_EXPECTED], counters[_TRUST]
    if expected and trust > 0:
        counters[_EXPECTED], counters[_TRUST] = expected + takes, trust - 1
        return expected, _ASSUMED
    seq = int(channel.ref()._get_sequence_number_for_group()) + 1  # type: ignore[union-attr]
    if seq != expected:
        trust = -AGREEING
    elif trust < 0:
        trust += 1
    counters[_EXPECTED] = seq + takes
    counters[_TRUST] = trust or AGREEING - 1
    return seq, 0


_IN_PLACE: Final = frozenset({"allreduce", "allreduce_coalesced", "broadcast", "reduce"})
_ROOTED: Final = frozenset({"broadcast", "reduce", "gather", "scatter"})


def splits_of(args: tuple[Any, ...]) -> tuple[list[int], list[int]] | None:
    """The splits of input and output that an all_to_all of single tensors is given, if any."""
    if len(args) < _ALL_TO_ALL or type(args[2]) is not list or type(args[3]) is not list:
        return None
    return (args[3], args[2]) if args[2] or args[3] else None


def _elements(value: Foreign) -> int:
    """Elements of a tensor, of lists of tensors and of lists of those; -1 where it has none."""
    if type(value) is not list:
        return int(value.numel())
    if not 0 < len(value) <= _MOST_LISTED:
        return -1
    found = [_elements(each) for each in value]
    return -1 if min(found) < 0 else sum(found)


def _dtype(value: Foreign) -> int:
    while type(value) is list:
        if not value:
            return 0
        value = value[0]
    return _NUMBERS[value.dtype]


class _Numbers(dict[Any, int]):
    """Numbers of dtypes, torch's objects."""

    def __missing__(self, dtype: object) -> int:
        name = str(dtype).rpartition(".")[2]
        self[dtype] = number = DTYPES.index(name) + 1 if name in DTYPES else 0
        return number


_NUMBERS: Final = _Numbers()


def known_dtypes() -> tuple[object, ...]:
    """Torch's objects in the order of `DTYPES`; None for those that this torch lacks."""
    torch = sys.modules.get("torch")
    return tuple(getattr(torch, name, None) for name in DTYPES)
