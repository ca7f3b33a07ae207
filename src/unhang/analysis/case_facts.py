"""What is known of a case before anything is claimed: what every rule reads."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.starved import Starved
from unhang.analysis.sites import StackBook
from unhang.analysis.situation import Situation
from unhang.analysis.sources.ras import RasSays
from unhang.case import Case

__all__ = ["CaseFacts"]


class CaseFacts(Struct, frozen=True):
    """What is known of a case beside its claims.

    Attributes:
        book: Takes the stacks that claims refer to.
        situation: What calls show; None without dumps.
        ras: What NCCL's RAS says; None where it was not asked.
        short: What processes were short of.
        moving: Calls went on finishing as the dumps were made: who stands elsewhere is no cause.
        eager: Who is late was asked for.
        blind: Ranks whose recorders hold nothing of the calls that they have made.
    """

    case: Case
    lives: Lives
    book: StackBook
    situation: Situation | None = None
    ras: RasSays | None = None
    short: Sequence[Starved] = ()
    moving: bool = False
    eager: bool = False
    blind: frozenset[int] = frozenset()
