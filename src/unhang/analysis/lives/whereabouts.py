"""What the stacks of all ranks amount to: who waits in a collective, and who is elsewhere.

A stack shows a moment, and names no sequence number: a loop that comes back to the same line looks
like one that hangs.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, Literal

from msgspec import Struct

from unhang.analysis.lives.life import Lives
from unhang.analysis.shared.claims import Doubt, Observation
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.sources.stacks import RankLook
from unhang.report import Site, Subject

MOST: Final = 8
"""Sites or subjects of one claim."""

AMID: Final = "ready"
"""The phase between `init_process_group` and the end of Python, or `destroy_process_group`."""


class Shape(Enum):
    """What the looks at all ranks amount to."""

    ABSENT = "some wait, others are elsewhere"
    HELD_INSIDE = "some cannot go on in the call in which others wait"
    HELD = "no rank is seen waiting, but some are blocked"
    ODD = "most stand at one place of the program, and the others elsewhere"
    LEFT = "some have ended with status 0, and the others stand still amid their program"
    LAST = "the others have ended as if all were well, and these do not"
    MOVING = "the program moves"
    ALL_WAIT = "all ranks wait in one call, and nothing moves"
    NOBODY_WAITS = "no rank waits for a peer, and nothing moves"
    NOTHING_SEEN = "no stack could be taken"
    SOME_UNSEEN = "all that were seen wait; others were not seen"
    MANY_CALLS = "ranks wait in different calls"
    ONE_LOOK = "all wait in one call, in one look"
    UNDECIDED = "no rank waits, and a single look or missing ranks leave it open"


class Sides(Struct, frozen=True):
    """The ranks of a job by what their stacks show.

    Attributes:
        shape: What that amounts to.
        who: The ranks that this is about.
        unseen: Could not be looked at.
        unlooked: Number of those that were not looked at.
        blind: Recorders hold nothing of calls that ranks have made: not to be seen in one is no
            sign of being in none.
        engines: What gives the ranks their orders, where that is a process of its own.
    """

    shape: Shape
    who: tuple[RankLook, ...]
    waiting: tuple[RankLook, ...]
    elsewhere: tuple[RankLook, ...]
    unseen: tuple[RankLook, ...]
    unlooked: int
    blind: bool = False
    engines: tuple[RankLook, ...] = ()

    @property
    def seen(self) -> int:
        """Number of ranks that were seen."""
        return len(self.waiting) + len(self.elsewhere)

    @property
    def complete(self) -> bool:
        """Whether all ranks were seen."""
        return not (self.unseen or self.unlooked)


class Pausing(Observation, frozen=True, kw_only=True):
    """These wait for what may still come, and for no longer than a pause takes.

    Attributes:
        for_s: For how long no rank had moved.
        grace_s: For how long a pause may take; 0 where nothing tells.
    """

    for_s: float
    grace_s: float = 0.0


def absent_by_stacks(lives: Lives) -> Iterator[Sides]:
    """Who is not where others are seen to wait."""
    found = shapes(lives.sampled, lives.world_size)
    return (sides for sides in found if sides.shape is Shape.ABSENT)


def shapes(looks: Mapping[int, RankLook], world_size: int) -> Iterator[Sides]:
    """Who waits for peers and who does not.

    A rank that may be waiting below what its stack shows (in backward, for its device) counts as
    waiting where another rank clearly does something of its own, and else as elsewhere.
    """
    seen = [look for look in looks.values() if not look.unseen]
    if any(look.idle for look in seen):
        yield _of_engine(seen, looks, world_size)
        return
    own = [look for look in seen if not (look.waits or look.may_wait)]
    waiting = tuple(look for look in seen if look.waits or (own and look.may_wait))
    away = tuple(look for look in seen if not (look.waits or (own and look.may_wait)))
    unseen = tuple(look for look in looks.values() if look.unseen)
    unlooked = max(world_size - len(looks), 0)
    if waiting and away and not any(look.moved for look in waiting):
        absent = tuple(look for look in away if not look.inside)
        inside = tuple(look for look in away if look.inside)
        if absent:
            yield Sides(Shape.ABSENT, absent, waiting, absent, unseen, unlooked)
        if inside:
            yield Sides(Shape.HELD_INSIDE, inside, waiting, away, unseen, unlooked)
        return
    if not waiting and not (unseen or unlooked) and (left := _left_early(away)):
        rest = tuple(look for look in away if look not in left)
        yield Sides(Shape.LEFT, left, rest, left, unseen, unlooked)
        return
    shape, who = _shape(waiting, away, complete=not (unseen or unlooked))
    yield Sides(shape, tuple(who), waiting, away, unseen, unlooked)


def _of_engine(seen: Sequence[RankLook], looks: Mapping[int, RankLook], world_size: int) -> Sides:
    """Workers of an engine; those that wait for its next message are in no step.

    The few that are still in one keep the engine waiting. Where they wait for peers themselves, or
    are the most, or where none is, nothing tells who of all these, and the engine, is to come.
    """
    idle = tuple(look for look in seen if look.idle)
    busy = tuple(look for look in seen if not look.idle)
    unseen = tuple(look for look in looks.values() if look.unseen)
    clear = len(busy) < len(idle) and not any(look.waits for look in busy)
    still = not any(look.moved or look.moves for look in busy)
    odd = bool(busy) and clear and still
    shape, who = (Shape.ABSENT, busy) if odd else (Shape.UNDECIDED, tuple(seen))
    return Sides(shape, who, idle, busy, unseen, max(world_size - len(looks), 0))


def _shape(
    waiting: Sequence[RankLook], away: Sequence[RankLook], *, complete: bool
) -> tuple[Shape, Sequence[RankLook]]:
    """What it amounts to where not some wait for others, and whom it is said of."""
    everybody = (*waiting, *away)
    held = [look for look in away if look.held and not (look.gone or look.moves)]
    moving = [look for look in everybody if look.moved or (look.moves and not look.wakes)]
    if held:
        return Shape.HELD, held
    if moving:
        return Shape.MOVING, moving
    if away:
        return _shape_still(waiting, away) if complete else (Shape.UNDECIDED, away)
    if not waiting:
        return Shape.NOTHING_SEEN, ()
    return _all_waiting(waiting, complete=complete), waiting


def _shape_still(
    waiting: Sequence[RankLook], away: Sequence[RankLook]
) -> tuple[Shape, Sequence[RankLook]]:
    """What it amounts to where all were seen, nothing moves, and some do not wait."""
    if not waiting and (last := _last_to_end(away)):
        return Shape.LAST, last
    if any(look.moved is None for look in (*waiting, *away)):
        return Shape.UNDECIDED, away
    odd = _odd(away) if not waiting else ()
    return (Shape.ODD, odd) if odd else (Shape.NOBODY_WAITS, away)


def _left_early(looks: Sequence[RankLook]) -> tuple[RankLook, ...]:
    """Those who ended with status 0 before peers that stand still, all at one place of the program.

    These wait in a way of their own, for what no stack tells: the fewer are named. Those surer that
    have left amid their program, as by `os._exit`; but some end so when they have done their work.
    """
    left = tuple(look for look in looks if look.gone)
    rest = [look for look in looks if not look.gone]
    well = all(look.sample.exit_status == 0 for look in left)
    few = 2 * len(rest) > len(looks)
    still = all(
        look.sample.phase == AMID and look.moved is False and not look.wakes for look in rest
    )
    together = len(rest) > 1 and len(grouped(rest)) == 1
    return left if left and well and few and still and together else ()


def _last_to_end(looks: Sequence[RankLook]) -> Sequence[RankLook]:
    """Those for whose end alone the job waits: the others came to theirs without an error."""
    last = [look for look in looks if not look.gone]
    well = all(
        look.sample.exit_status == 0 and look.sample.phase != AMID for look in looks if look.gone
    )
    still = all(look.moved is False and not look.wakes for look in last)
    return last if well and still and len(last) < len(looks) else ()


def _odd(looks: Sequence[RankLook]) -> Sequence[RankLook]:
    """Those who are not where most are: these may wait for them in a way of their own."""
    most, *rest = grouped(looks)
    return [look for group in rest for look in group] if len(most) * 2 > len(looks) else ()


def _all_waiting(waiting: Sequence[RankLook], *, complete: bool) -> Shape:
    if not complete:
        return Shape.SOME_UNSEEN
    if len(grouped(waiting)) > 1:
        return Shape.MANY_CALLS
    once = any(look.moved is None for look in waiting)
    return Shape.ONE_LOOK if once else Shape.ALL_WAIT


def doubts_of_looks(looks: Sequence[RankLook], *, complete: bool = True) -> tuple[Doubt, ...]:
    """Why looks at stacks leave it open who is at fault.

    Args:
        looks: Of all ranks that a claim is about.
        complete: Whether all ranks of the job were seen.
    """
    alive = [look for look in looks if not look.gone]
    doubts = (
        *([Doubt.ONE_LOOK] if any(look.moved is None for look in alive) else ()),
        *([Doubt.LOOKS_MOVED] if any(look.moved or look.moves for look in looks) else ()),
        *(() if complete else [Doubt.LOOKS_ABSENT]),
    )
    return doubts or (Doubt.LOOKS_OPEN,)


def ranks_in(looks: Iterable[RankLook]) -> tuple[int, ...]:
    """Their numbers, ascending."""
    return tuple(sorted(look.rank for look in looks))


def common(values: Sequence[str]) -> str:
    """The value that all share, or nothing."""
    return values[0] if len(set(values)) == 1 else ""


def grouped(looks: Iterable[RankLook]) -> list[list[RankLook]]:
    """Ranks that do the same at the same place, largest groups first.

    The same call, or else the same kind of activity; at one line of the program, or in one function
    of a library where no line of the program is shown. Whether one of them happened to run at that
    moment is no difference.
    """
    groups: defaultdict[object, list[RankLook]] = defaultdict(list)
    for look in looks:
        meaning = look.meaning
        place = meaning.site or (meaning.frame and meaning.frame.function)
        groups[meaning.op or meaning.kind, place, look.sample.awaits].append(look)
    return sorted(groups.values(), key=lambda same: (-len(same), same[0].rank))


def sites_of(
    looks: Iterable[RankLook], role: Literal["culprit", "victim"], book: StackBook
) -> tuple[Site, ...]:
    """Sites of ranks, folded by stack, most ranks first."""
    by_stack: defaultdict[object, list[RankLook]] = defaultdict(list)
    for look in looks:
        by_stack[look.frames].append(look)
    largest = sorted(by_stack.values(), key=lambda same: (-len(same), same[0].rank))
    sites = (
        (book.site(ranks_in(same), role, frames), same[0].age_s)
        for same in largest[:MOST]
        for frames in (same[0].worker, same[0].frames)
    )
    return tuple(
        dataclasses.replace(site, age_s=age_s) for site, age_s in sites if site is not None
    )


def subjects_of(looks: Sequence[RankLook]) -> tuple[Subject, ...]:
    """The processes of ranks, where they are known."""
    return tuple(
        Subject("process", f"pid {look.pid}", rank=look.rank, host=look.host or None, pid=look.pid)
        for look in looks[:MOST]
        if look.pid > 0
    )
