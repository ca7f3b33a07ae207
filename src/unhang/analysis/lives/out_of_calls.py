"""Ranks outside of any call: whether they move, may only pause, or have left a call that failed.

A hang is certain only where no rank can change it any more. That is asked of all ranks, blamed or
not: one that stands outside of a call, and works or waits for something that may still come, may
make a job go on that looks stuck.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from unhang.analysis.claims import Bearing, Claim, Observation, Seeing
from unhang.analysis.lives.life import Lives
from unhang.analysis.sources.logs import Failure
from unhang.analysis.sources.stacks import RankLook
from unhang.kinds import Trait

__all__ = ["LeftCall", "Unsettled", "left_call", "out_of_calls", "unsettled"]


class Unsettled(Struct, frozen=True):
    """Ranks outside of any call that may make the job go on.

    Attributes:
        moving: They work, or wake up soon.
        pausing: They stand still for no longer than a pause takes.
    """

    moving: tuple[int, ...] = ()
    pausing: tuple[int, ...] = ()


class LeftCall(Observation, frozen=True, kw_only=True):
    """The call has failed in these, and they stand in their own code again: nothing waits in it."""


_ENDING: Final = frozenset({"teardown", "abort"})
"""Where ranks stand that an error is about to end."""


def out_of_calls(lives: Lives) -> Iterator[RankLook]:
    """The living ranks that were seen outside of any call, by their stacks and by the dumps.

    In a dump, the last call of a rank in which one has raised stays open: the stack tells whether
    the rank has left it.
    """
    for rank, look in lives.sampled.items():
        may_be_inside = look.waits or (look.may_wait and not look.sample.awaits)
        in_call = rank in lives.in_calls and rank not in lives.failed
        if not (look.gone or look.unseen or may_be_inside or in_call):
            yield look


def unsettled(lives: Lives) -> Unsettled:
    """Who of them moves, and who may only pause."""
    away = list(out_of_calls(lives))
    moving = tuple(look.rank for look in away if look.moves)
    pausing = tuple(look.rank for look in away if not look.moves and look.paused_s >= 0)
    return Unsettled(moving, pausing)


def left_call(claim: Claim, lives: Lives) -> Iterator[Seeing]:
    """That of the ranks that wait by a claim none does any more: they handled the error.

    A log tells that a call has failed, and a dump which: of now is only what the ranks do since.
    """
    told = isinstance(claim.about, Failure) and claim.about.names_others
    if not (told or (claim.calls and claim.kind.has(Trait.OF_NOW))):
        return
    waiting = frozenset(claim.victims or set(lives.sampled) - set(claim.culprits))
    left = frozenset(look.rank for look in out_of_calls(lives) if _goes_on(look))
    if waiting and waiting <= left:
        yield LeftCall(source="stacks", ranks=tuple(sorted(waiting))), Bearing.LEFT_CALL


def _goes_on(look: RankLook) -> bool:
    """Whether it is back in its program, rather than held or on its way out."""
    return not (look.held or look.meaning.kind in _ENDING) and look.sample.phase in ("", "ready")
