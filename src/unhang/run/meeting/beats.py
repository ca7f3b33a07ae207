"""What one supervisor has seen of its ranks, as a few bytes a rank that travel with each look."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from unhang.run.watching.watch import ProgressLook, RankProgress

_HEAD: Final = struct.Struct(">IIfII")
_ROW: Final = struct.Struct(">IqqqqB")
_MOST_RANKS: Final = 4096
"""No node has more; with them a beat is shorter than the longest message."""
_MASK: Final = (1 << 63) - 1
_WAITS, _TELLS, _BUSY, _COMING, _WORKS = (1 << bit for bit in range(5))


class BeatError(ValueError):
    """It is no beat of ours."""


@dataclass(frozen=True, slots=True)
class NodeBeat:
    """What a supervisor has seen at one look.

    Attributes:
        attempt: How often the launcher has restarted the job.
        world_size: As the ranks say; 0 where none says.
        every_s: So often it looks.
        ranks: How far those have come that are in the job.
        known: Its ranks, those that have ended or left included.
    """

    attempt: int
    world_size: int
    every_s: float
    ranks: tuple[RankProgress, ...]
    known: frozenset[int]

    @classmethod
    def of(
        cls, look: ProgressLook, attempt: int, world_size: int, every_s: float, known: Iterable[int]
    ) -> NodeBeat:
        """A look at the ranks of this node."""
        return cls(attempt, world_size, every_s, tuple(look.ranks), frozenset(known))


def packed(beat: NodeBeat) -> bytes:
    """A beat as it travels: 37 bytes for a rank."""
    inside = {rank.rank for rank in beat.ranks}
    rest = sorted(beat.known - inside)
    head = _HEAD.pack(beat.attempt, beat.world_size, beat.every_s, len(beat.ranks), len(rest))
    rows = (
        _ROW.pack(
            rank.rank,
            rank.finished & _MASK if rank.finished >= 0 else -1,
            rank.begun & _MASK if rank.begun >= 0 else -1,
            rank.counted & _MASK,
            rank.ended & _MASK,
            _flags(rank),
        )
        for rank in beat.ranks
    )
    return b"".join((head, *rows, struct.pack(f">{len(rest)}I", *rest)))


def _flags(rank: RankProgress) -> int:
    told = 0 if rank.waiting is None else _TELLS
    return (
        told
        | _WAITS * bool(rank.waiting)
        | _BUSY * rank.busy
        | _COMING * rank.coming
        | _WORKS * rank.works
    )


def unpacked(data: bytes) -> NodeBeat:
    """The beat that some bytes are.

    Ranks have numbers of their own for what tells processes apart: of two nodes they may be the
    same.

    Raises:
        BeatError: They are none.
    """
    if len(data) < _HEAD.size:
        raise BeatError("too short")
    attempt, world, every_s, count, more = _HEAD.unpack_from(data)
    end = _HEAD.size + count * _ROW.size
    if count + more > _MOST_RANKS or len(data) != end + 4 * more:
        raise BeatError("its length is not that of its ranks")
    if not 0 < every_s <= 60:  # noqa: PLR2004 - no look is later than a minute
        raise BeatError("no supervisor looks as often")
    ranks = tuple(
        RankProgress(
            rank,
            -1 - rank,
            finished,
            begun,
            waiting=bool(flags & _WAITS) if flags & _TELLS else None,
            busy=bool(flags & _BUSY),
            coming=bool(flags & _COMING),
            works=bool(flags & _WORKS),
            counted=counted,
            ended=ended,
        )
        for rank, finished, begun, counted, ended, flags in _ROW.iter_unpack(data[_HEAD.size : end])
    )
    rest = struct.unpack(f">{more}I", data[end:])
    return NodeBeat(attempt, world, every_s, ranks, frozenset({r.rank for r in ranks}.union(rest)))
