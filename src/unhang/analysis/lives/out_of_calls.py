"""Ranks outside of any call: whether they move, or may only pause.

A hang is certain only where no rank can change it any more. That is asked of all ranks, blamed or
not: one that stands outside of a call, and works or waits for something that may still come, may
make a job go on that looks stuck.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from unhang.analysis.lives.life import Lives
from unhang.analysis.sources.stacks import RankLook


class Unsettled(Struct, frozen=True):
    """Ranks that may make the job go on.

    Attributes:
        moving: They work, or wake up soon.
        pausing: They stand still for no longer than a pause takes; so do those that are stopped,
            in calls or not: a debugger, a scheduler or a shell stops what it means to continue.
    """

    moving: tuple[int, ...] = ()
    pausing: tuple[int, ...] = ()


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
    pausing = {look.rank for look in away if not look.moves and look.paused_s >= 0}
    pausing |= {look.rank for look in lives.sampled.values() if look.is_held_for_now}
    return Unsettled(moving, tuple(sorted(pausing)))
