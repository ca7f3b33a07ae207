"""Recorders that hold nothing of calls that their ranks are known to have made.

An empty dump looks like that of a rank that has called nothing. Where the rank is seen in a call,
or its heartbeat has counted calls, the recorder that was asked is not the one that records them (or
none does): then nothing follows from what the dump lacks.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from unhang.analysis.lives.life import Lives
from unhang.analysis.sources.stacks import RankLook
from unhang.case import Case, Dump
from unhang.model import DumpStatus


class Blind(Struct, frozen=True):
    """What was asked in vain.

    Attributes:
        looks: The ranks whose recorders hold nothing, where each was seen or last heard of.
        backends: Whose recorders were asked.
        n_dumps: Ranks that left a dump.
    """

    looks: tuple[RankLook, ...]
    backends: tuple[str, ...]
    n_dumps: int

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks whose recorders hold nothing."""
        return tuple(look.rank for look in self.looks)


def blind_in(case: Case, lives: Lives) -> Blind | None:
    """The recorders that are blind, if any is."""
    by_rank: dict[int, list[Dump]] = defaultdict(list)
    for dump in case.dumps:
        by_rank[dump.rank].append(dump)
    counted = _counted(case)
    empty = [
        rank
        for rank, dumps in sorted(by_rank.items())
        if all(_is_empty(dump) and dump.index not in counted for dump in dumps)
    ]
    looks = tuple(look for look in lives.looks_at(empty) if _has_called(look))
    if not looks:
        return None
    asked = {dump.backend for look in looks for dump in by_rank[look.rank]}
    return Blind(looks, tuple(sorted(asked - {""})), len(by_rank))


def _counted(case: Case) -> set[int]:
    """Dumps whose counters know of calls."""
    status = case.group_status
    known = (status.last_enqueued >= 0) | (status.last_completed >= 0)
    return set(status.dump[known].tolist())


def _is_empty(dump: Dump) -> bool:
    """Whether a dump that could be read whole holds no call."""
    return dump.start == dump.stop and dump.status == DumpStatus.OK and not dump.window.left_out


def _has_called(look: RankLook) -> bool:
    """Whether a rank has made calls: it stands in one, or its recorder has counted them.

    The making of a group is no call that a recorder holds.
    """
    counted = look.sample.last_call > 0 and bool(look.sample.last_op) and not look.sample.makes
    return bool(look.inside or look.meaning.op) or counted
