"""What calls amount to if no rank waits for another: finished, in flight, or not enough to tell.

Idle is said only where a call that hangs would have been seen. Torch's own recorder does not see
sends, receives and monitored barriers on Gloo, not even that they were called: its dumps of a
deadlock among them are those of a job that has finished.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.matching.no_trace import NoTrace, no_trace_in
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.index import Evidence
from unhang.analysis.state.motion import all_just_called
from unhang.analysis.state.progress import Known
from unhang.case import ORIGIN_TORCH
from unhang.model import State
from unhang.spans import distinct


class Why(Enum):
    """Why the evidence allows no verdict."""

    NO_DUMP = auto()
    NOTHING_RECORDED = auto()
    NO_ROOM = auto()
    """Counters show calls in flight that have no entries in the dumps."""
    WAITS_UNEXPLAINED = auto()
    RUNS_AHEAD = auto()
    """Hosts made calls ahead, and their dumps leave out those that have ended."""
    SOME_SILENT = auto()
    SOME_OLD = auto()
    """Nothing tells what became of a rank whose dump is older than the others."""
    CUT_SHORT = auto()
    """The newest calls come last in a dump: what was called last is lost."""
    TIMES_LEFT_OUT = auto()
    """No rank is stuck; the dumps do not show whether one is slow."""
    EXCHANGES_UNSEEN = auto()
    """Torch on Gloo: collectives are finished, and sends and receives are not recorded."""
    ENDS_UNSEEN = auto()
    """All have made what some rank called last, and its recorder shows no end of it."""


class Undecided(Struct, frozen=True):
    """Not enough evidence.

    Attributes:
        silent: Ranks without a usable dump.
        waiting: Ranks that wait, and nothing shows for whom.
        just_begun: Of these, the ones that had only just begun to.
        cut: Ranks whose dumps were cut short.
        finished: What is known to be over, where everything that was recorded is.
    """

    why: Why
    silent: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    just_begun: tuple[int, ...] = ()
    cut: tuple[int, ...] = ()
    finished: AllFinished | None = None


class InFlight(Struct, frozen=True):
    """Calls are in flight and none is stuck; `oldest_ns`: the longest wait that is known, or -1."""

    oldest_ns: int


class AllFinished(Struct, frozen=True):
    """Everything that was recorded is finished; `unseen`: what may hang all the same, if anything.

    Attributes:
        unseen: Why a hang would leave no trace; None where it would show.
        of: The ranks that this holds for.
    """

    n_calls: int
    n_ranks: int
    unseen: NoTrace | None = None
    of: tuple[int, ...] = ()

    @property
    def sure(self) -> bool:
        """Whether calls were recorded, and one that hangs would be among them."""
        return bool(self.n_calls) and self.unseen is None


NothingStuck: TypeAlias = Undecided | InFlight | AllFinished


def nothing_stuck(situation: Situation) -> NothingStuck:
    """What the calls of a case amount to if nothing is found in them."""
    if (undecided := _undecided(situation)) is not None:
        return undecided
    inside = situation.heads.waiting_call >= 0
    if inside.any():
        return InFlight(int(situation.ages.waited_ns[inside].max()))
    if all_just_called(situation.evidence):
        return InFlight(-1)
    return _with_unseen(situation, _finished(situation))


def _with_unseen(situation: Situation, finished: AllFinished) -> AllFinished:
    found = no_trace_in(situation.evidence)
    if found is None:
        return finished
    return replace(finished, unseen=found[0], of=situation.named(found[1]))


def _undecided(situation: Situation) -> Undecided | None:
    """Why nothing can be said; None where it can."""
    silent = situation.named(np.flatnonzero(situation.silent))
    if (why := _nothing_recorded(situation)) is not None:
        return Undecided(why, silent)
    inside = np.flatnonzero(situation.heads.waiting_call >= 0)
    ages = situation.ages
    weighed = (ages.young & ~ages.unpaced | ages.old | ages.unnoticed)[inside]
    if len(inside) and not (weighed | _behind_young(situation, inside)).all():
        ahead = bool(ages.queued[inside].all())
        begun = () if ahead else situation.named(inside[weighed])
        why = Why.RUNS_AHEAD if ahead else Why.WAITS_UNEXPLAINED
        return Undecided(why, silent, situation.named(inside), begun)
    if len(inside):
        return _times_left_out(situation)
    if silent:
        return Undecided(Why.SOME_SILENT, silent)
    moved = all_just_called(situation.evidence)
    behind = situation.named({*situation.outdated.tolist(), *_short_by_counters(situation)})
    if behind and not moved:
        return Undecided(Why.SOME_OLD, waiting=behind)
    return _times_left_out(situation) if moved else _unseen(situation)


def _behind_young(situation: Situation, ranks: Ints) -> Bools:
    """Of ranks that wait, those whose waiting leads to a call that has just begun."""
    begun = situation.ages.young & ~situation.ages.unpaced
    young = np.flatnonzero(begun & (situation.heads.waiting_call >= 0))
    nodes = situation.graph.n_ranks + distinct(situation.heads.waiting_call[young])
    found: Bools = situation.graph.reaching(nodes)[ranks] >= 0
    return found


def _short_by_counters(situation: Situation) -> list[int]:
    """Ranks (indices) whose dumps of unfinished calls count fewer calls than a peer has finished.

    What kind of call that is they do not show: one that needs all members, or a broadcast.
    """
    standing, evidence = situation.standing, situation.evidence
    owner, channel = np.divmod(standing.keys, standing.n_channels)
    emptied = any(dump.active_only for dump in evidence.dumps)  # one that counts nothing, too
    active = {
        rank
        for rank, dump in zip(evidence.owner.tolist(), evidence.dumps, strict=True)
        if dump.active_only or (emptied and dump.start == dump.stop)
    }
    short = (standing.reach < situation.furthest_finished[channel]) & (
        standing.known >= Known.INFERRED
    )
    found: Ints = distinct(owner[short])
    return [rank for rank in found.tolist() if rank in active]


def _unseen(situation: Situation) -> Undecided | None:
    """What calls could be in flight that the dumps do not show; None where they show all."""
    if situation.cut.any():
        return Undecided(Why.CUT_SHORT, cut=situation.named(np.flatnonzero(situation.cut)))
    if _sees_no_exchanges(situation):
        return Undecided(Why.EXCHANGES_UNSEEN, finished=_finished(situation))
    if ends_unseen := _ends_unseen(situation.evidence):
        return Undecided(Why.ENDS_UNSEEN, waiting=situation.named(ends_unseen))
    return _times_left_out(situation)


def _times_left_out(situation: Situation) -> Undecided | None:
    return Undecided(Why.TIMES_LEFT_OUT) if situation.untimed else None


def _ends_unseen(evidence: Evidence) -> list[int]:
    """Ranks (indices) of whose last call nothing tells whether it has ended."""
    calls, unproven = evidence.case.calls, set(evidence.unproven.tolist())
    found = []
    for owner, dump in zip(evidence.owner.tolist(), evidence.dumps, strict=True):
        last = dump.stop - 1
        if dump.stop > dump.start and calls.origin[last] == ORIGIN_TORCH:
            shown = calls.state[last] == State.COMPLETED or calls.completed_ns[last] > 0
            blind = not shown and not evidence.recorder_of(dump).knows_ends
            found += [owner] if blind or last in unproven else []
    return found


def _nothing_recorded(situation: Situation) -> Why | None:
    """Why dumps without entries are no sign of health; None if they are."""
    if situation.silent.all():
        return Why.NO_DUMP
    status, case = situation.evidence.case.group_status, situation.evidence.case
    if not len(case.calls) and not (status.last_enqueued >= 0).any():
        return Why.NOTHING_RECORDED
    empty = [dump.index for dump in situation.evidence.dumps if dump.start == dump.stop]
    ahead = np.isin(status.dump, empty) & (status.last_enqueued > status.last_completed)
    return Why.NO_ROOM if (situation.heads.waiting_call < 0).all() and ahead.any() else None


def _sees_no_exchanges(situation: Situation) -> bool:
    """Whether all that was recorded is what torch's own recorder sees on Gloo."""
    dumps = [dump for dump in situation.evidence.dumps if dump.start < dump.stop]
    return bool(dumps) and all(d.backend == "gloo" and d.reported_by == "torch" for d in dumps)


def _finished(situation: Situation) -> AllFinished:
    n_ranks = len(distinct(situation.evidence.owner))
    return AllFinished(situation.evidence.case.n_calls, n_ranks)
