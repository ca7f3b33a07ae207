"""What is known of a case before anything is claimed: what every rule reads.

What several rules ask is worked out once. Of these, who is missed: a rank for which others wait in
a call, and which waits for no rank itself. Dumps tell it by the ends of their wait-for graph; where
they show none, stacks do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from unhang.analysis.findings.flight import in_flight
from unhang.analysis.findings.nothing_stuck import NothingStuck, nothing_stuck
from unhang.analysis.lives.blind import Blind
from unhang.analysis.lives.ended import Ends, ends_in
from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import absent_by_stacks
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.shared.situation import Situation
from unhang.analysis.sources.ras import RasSays
from unhang.analysis.sources.shortages import Starved
from unhang.case import Case

Missed: TypeAlias = Mapping[int, frozenset[int]]
"""Ranks that are missed, each with those that wait for it (global)."""


class CaseFacts(Struct, frozen=True, eq=False, dict=True):
    """What is known of a case before anything is claimed.

    Attributes:
        book: Takes the stacks that claims refer to.
        situation: What calls show; None without dumps.
        ras: What NCCL's RAS says; None where it was not asked.
        short: What processes were short of.
        moving: Calls went on finishing as the dumps were made: who stands elsewhere is no cause.
        eager: Who is late was asked for.
        blind: The recorders that hold nothing of the calls that their ranks have made.
    """

    case: Case
    lives: Lives
    book: StackBook
    situation: Situation | None = None
    ras: RasSays | None = None
    short: Sequence[Starved] = ()
    moving: bool = False
    eager: bool = False
    blind: Blind | None = None

    @cached_property
    def missed(self) -> Missed:
        """Which ranks the calls in flight miss; none where they went on finishing."""
        return {} if self.moving else _missed_in(self.situation, self.lives)

    @cached_property
    def nothing_stuck(self) -> NothingStuck | None:
        """What the calls of dumps amount to if nothing is found in them; None without dumps."""
        return nothing_stuck(self.situation) if self.situation is not None else None

    @cached_property
    def ends(self) -> Ends:
        """The ends of ranks that nothing else explains, and those that follow from something."""
        some = any(life.end is not None for life in self.lives.ranks.values())
        return ends_in(self.lives, self.missed) if some else Ends()


def _missed_in(situation: Situation | None, lives: Lives) -> Missed:
    """Who is missed, by whom."""
    return (_by_dumps(situation) if situation is not None else {}) or _by_stacks(lives)


def _by_dumps(situation: Situation) -> dict[int, frozenset[int]]:
    found: dict[int, frozenset[int]] = {}
    for root in situation.roots:
        if root.kind == "ranks" and not in_flight(situation, root):
            reaching = situation.graph.reaching(np.asarray(root.ranks, np.int64))
            waiting = frozenset(situation.victims(reaching))
            found |= dict.fromkeys(situation.named(root.ranks), waiting)
    return found


def _by_stacks(lives: Lives) -> dict[int, frozenset[int]]:
    return {
        look.rank: frozenset(each.rank for each in sides.waiting)
        for sides in absent_by_stacks(lives)
        for look in sides.who
    }
