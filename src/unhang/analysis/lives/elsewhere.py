"""What stacks alone can say: who waits in a collective, and who is elsewhere.

A stack shows a moment, and names no sequence number: a loop that comes back to the same line looks
like one that hangs. So nothing here is sure but a process that is stopped or dead, one look alone
makes a low confidence, and whoever still moves is called slow rather than stuck.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.claims import Bearing, Claim, Doubt, Observation, Seeing
from unhang.analysis.lives.life import Lives
from unhang.analysis.sites import StackBook
from unhang.analysis.sources.stacks import RankLook
from unhang.kinds import (
    HOST_PROGRAM_STUCK,
    IDLE,
    INSUFFICIENT_EVIDENCE,
    JOINED_NOT_PROGRESSING,
    NEVER_JOINED,
    RANK_ENDED,
    SKIPPED_CALL,
    Kind,
    Trait,
)
from unhang.model import Frame
from unhang.report import CallSide, Site, Subject
from unhang.stacks.ownership import under

__all__ = [
    "MOST",
    "GoingAlong",
    "GoneOn",
    "Pausing",
    "Seen",
    "Shape",
    "Sides",
    "absent_by_stacks",
    "common",
    "elsewhere",
    "going_along",
    "gone_on",
    "grouped",
    "pauses",
    "ranks_in",
    "sites_of",
    "subjects_of",
    "with_looks",
]

MOST: Final = 8
"""Sites or subjects of one claim."""

_UNRECORDED: Final = "ray/train/"
"""Where ranks wait for all others in no call of torch's."""

_JOIN: Final = "torch/distributed/algorithms/join.py"

_SHARED_LOCK: Final = "multiprocessing/synchronize.py"

_AMID: Final = "ready"
"""The phase between `init_process_group` and the end of Python, or `destroy_process_group`."""


class Shape(Enum):
    """What the looks at all ranks amount to; the value is the kind of claim that it makes."""

    ABSENT = NEVER_JOINED, "some wait, others are elsewhere"
    HELD_INSIDE = JOINED_NOT_PROGRESSING, "some cannot go on in the call in which others wait"
    HELD = HOST_PROGRAM_STUCK, "no rank is seen waiting, but some are blocked"
    ODD = HOST_PROGRAM_STUCK, "most stand at one place of the program, and the others elsewhere"
    LEFT = (
        RANK_ENDED,
        "some have ended with status 0, and the others stand still amid their program",
    )
    LAST = HOST_PROGRAM_STUCK, "the others have ended as if all were well, and these do not"
    MOVING = IDLE, "the program moves"
    ALL_WAIT = JOINED_NOT_PROGRESSING, "all ranks wait in one call, and nothing moves"
    NOBODY_WAITS = HOST_PROGRAM_STUCK, "no rank waits for a peer, and nothing moves"
    NOTHING_SEEN = INSUFFICIENT_EVIDENCE, "no stack could be taken"
    SOME_UNSEEN = INSUFFICIENT_EVIDENCE, "all that were seen wait; others were not seen"
    MANY_CALLS = INSUFFICIENT_EVIDENCE, "ranks wait in different calls"
    ONE_LOOK = INSUFFICIENT_EVIDENCE, "all wait in one call, in one look"
    UNDECIDED = (
        INSUFFICIENT_EVIDENCE,
        "no rank waits, and a single look or missing ranks leave it open",
    )

    @property
    def kind(self) -> Kind:
        """The kind of claim that it makes."""
        return self.value[0]


_NAMING: Final = (
    Shape.ABSENT, Shape.HELD_INSIDE, Shape.HELD, Shape.LEFT, Shape.LAST, Shape.ODD,
)  # fmt: skip


class Sides(Struct, frozen=True):
    """The ranks of a job by what their stacks show.

    Attributes:
        shape: What that amounts to.
        who: The ranks of which that is said.
        unseen: Could not be looked at.
        unlooked: Number of those that nobody looked at.
        blind: Recorders hold nothing of calls that ranks have made: not to be seen in one is no
            sign of being in none.
    """

    shape: Shape
    who: tuple[RankLook, ...]
    waiting: tuple[RankLook, ...]
    elsewhere: tuple[RankLook, ...]
    unseen: tuple[RankLook, ...]
    unlooked: int
    blind: bool = False

    @property
    def seen(self) -> int:
        """Number of ranks that were seen."""
        return len(self.waiting) + len(self.elsewhere)

    @property
    def complete(self) -> bool:
        """Whether all ranks were seen."""
        return not (self.unseen or self.unlooked)


class Seen(Observation, frozen=True, kw_only=True):
    """Where the culprits of a claim stand.

    Attributes:
        stopped: That they are stopped is why they left nothing.
        keys: Where they wait for a key of a store, what ranks set last: the key, and which ranks.
        locked: Those that wait for a lock of `multiprocessing`.
    """

    looks: tuple[RankLook, ...]
    stopped: bool = False
    keys: tuple[tuple[str, tuple[int, ...]], ...] = ()
    locked: tuple[int, ...] = ()


class GoingAlong(Observation, frozen=True, kw_only=True):
    """Those who wait for a late rank have no data left, and answer its calls."""


class Pausing(Observation, frozen=True, kw_only=True):
    """These wait for what may still come, and for no longer than a pause takes.

    Attributes:
        for_s: For how long nobody had moved.
        grace_s: For how long a pause may take; 0 where nothing tells.
    """

    for_s: float
    grace_s: float = 0.0


class GoneOn(Observation, frozen=True, kw_only=True):
    """Calls of these have ended since the alarm, and they have begun others."""


# ------------------------------------------------------------------ beside claims from dumps


def with_looks(claim: Claim, lives: Lives, book: StackBook) -> Claim:
    """A cause from dumps with where its ranks stand now, and whether stacks agree.

    A culprit that is seen waiting in a collective contradicts the dumps, unless those say that it
    waits too. Of ranks that work while others wait for them, nobody can say that they are stuck; a
    wrong call stays wrong while its rank works on, so only absence is doubted.
    """
    if not claim.is_cause:
        return claim
    claim = _victims_placed(claim, lives, book)
    own = [look for look in lives.looks_at(claim.culprits) if look.frames or not look.unseen]
    if not own:
        return claim
    if (other := _other_meeting(claim, lives)) is not None:
        return _claim(other, book)
    moving = ranks_in(look for look in own if look.moves)
    placed = sites_of(own, "culprit", book)
    # Dumps and stacks name functions differently: who stands on one line stands there once.
    shown = {(site.ranks, site.file, site.line) for site in placed}
    rest = [site for site in claim.sites if (site.ranks, site.file, site.line) not in shown]
    stopped = claim.kind.has(Trait.LAST_RESORT) and _all_stopped(claim, own)
    doubts = () if stopped else claim.doubts
    if moving and claim.kind.has(Trait.MAY_COME):
        doubts = (*doubts, Doubt.MOVES)
    if claim.kind is NEVER_JOINED and _all_away(claim, own):
        doubts = tuple(Doubt.MOST_AWAY if d is Doubt.FEW_CALLED else d for d in doubts)
    if any(look.sample.awaits for look in own):
        doubts = (*doubts, Doubt.AT_STORE)
    locked = ranks_in(look for look in own if _wants_shared_lock(look))
    if locked:
        doubts = (*doubts, Doubt.AT_LOCK)
    joined = replace(
        claim,
        doubts=doubts,
        moving=moving,
        sites=(*placed, *rest),
        subjects=claim.subjects or subjects_of(own),
    )
    seen = Seen(
        source="stacks",
        ranks=ranks_in(own),
        looks=tuple(own),
        stopped=stopped,
        keys=_keys(lives) if any(look.sample.awaits for look in own) else (),
        locked=locked,
    )
    if claim.kind is NEVER_JOINED and all(look.waits for look in own):
        return joined.seen(seen, Bearing.WAITS_TOO)
    return joined.seen(seen, Bearing.STANDS)


def going_along(claim: Claim, lives: Lives) -> Iterator[Seeing]:
    """A rank that is late beside ranks that have run out of data, and go along, has more of it."""
    along = [look for look in lives.looks_at(claim.victims) if _goes_along(look)]
    if along:
        yield GoingAlong(source="stacks", ranks=ranks_in(along)), Bearing.GOES_ALONG


def pauses(claim: Claim, lives: Lives) -> Iterator[Seeing]:
    """Ranks that wait in their own code may go on: after so short a while nothing tells."""
    looks = [look for look in lives.looks_at(claim.culprits) if look.paused_s >= 0]
    if not looks or claim.moving:
        return
    longest = max(looks, key=lambda look: look.paused_s)
    yield (
        Pausing(
            source="stacks",
            ranks=ranks_in(looks),
            for_s=longest.paused_s,
            grace_s=longest.sample.grace_s,
        ),
        Bearing.PAUSES,
    )


def gone_on(claim: Claim, lives: Lives) -> Iterator[Seeing]:  # noqa: ARG001 - of all claims alike
    """Where calls end again after the alarm, what stood still then was late rather than stuck."""
    on = ranks_in(look for look in lives.sampled.values() if look.sample.went_on)
    if on:
        yield GoneOn(source="stacks", ranks=on), Bearing.WENT_ON


def _goes_along(look: RankLook) -> bool:
    """Whether it is in torch's `Join`, which answers the calls of ranks that still have data."""
    inside = (f for f in look.frames if under(f.file, _JOIN))
    return any(frame.function.endswith("__exit__") for frame in inside)


def _wants_shared_lock(look: RankLook) -> bool:
    return any(
        frame.function.endswith("SemLock.__enter__") and under(frame.file, _SHARED_LOCK)
        for frame in look.frames[:2]
    )


def _keys(lives: Lives) -> tuple[tuple[str, tuple[int, ...]], ...]:
    by_key: defaultdict[str, list[RankLook]] = defaultdict(list)
    for look in lives.sampled.values():
        if look.sample.has_set:
            by_key[look.sample.has_set].append(look)
    return tuple((key, ranks_in(same)) for key, same in [*by_key.items()][:MOST])


def _other_meeting(claim: Claim, lives: Lives) -> Sides | None:
    """Most wait at a meeting that dumps do not hold, and few in a call of torch's.

    Such meetings are those of Ray Train, and the making of groups. Each side waits for the other;
    as with unlike calls, most are right. To the dumps the few are ahead, by a call that the others
    never made, or made too many. Where the others work, they may only be late for that call.
    """
    ahead = {NEVER_JOINED: claim.victims, SKIPPED_CALL: claim.culprits}.get(claim.kind, ())
    few = tuple(look for look in lives.looks_at(ahead) if look.waits or look.may_wait)
    own = tuple(lives.looks_at(sorted({*claim.culprits, *claim.victims} - {*ahead})))
    meet = all(look.meaning.kind == "init" or _is_unrecorded(look.meaning.frame) for look in own)
    if not few or len(few) < len(ahead):
        return None
    if claim.kind is SKIPPED_CALL and own and all(look.moves for look in own):
        return Sides(Shape.ABSENT, own, few, own, (), 0)  # they may yet come
    return Sides(Shape.ABSENT, few, own, few, (), 0) if meet and len(own) > len(few) else None


def _is_unrecorded(frame: Frame | None) -> bool:
    return frame is not None and under(frame.file, _UNRECORDED)


def _victims_placed(claim: Claim, lives: Lives, book: StackBook) -> Claim:
    """Show where victims wait, where their dumps came without the stacks of calls."""
    shown = {rank for site in claim.sites if site.role == "victim" for rank in site.ranks}
    bare = [look for look in lives.looks_at(claim.victims) if look.rank not in shown]
    bare = [look for look in bare if look.waits or look.may_wait]
    sites = sites_of(bare, "victim", book)
    return replace(claim, sites=(*claim.sites, *sites)) if bare else claim


def _all_away(claim: Claim, looks: Sequence[RankLook]) -> bool:
    """Whether all culprits were seen in their own code: they have not gone on without the call."""
    away = [look for look in looks if look.moved is False and not (look.waits or look.unseen)]
    return ranks_in(away) == claim.culprits


def _all_stopped(claim: Claim, looks: Sequence[RankLook]) -> bool:
    """Whether a rank without a dump is not dead but stopped: its state is known."""
    stopped = all(look.meaning.kind == "stopped" for look in looks)
    return stopped and ranks_in(looks) == claim.culprits


# ------------------------------------------------------------------ stacks by themselves


def elsewhere(
    lives: Lives, book: StackBook, *, beside_dumps: bool = False, blind: bool = False
) -> Iterator[Claim]:
    """Claims from stacks alone; two at most are causes.

    Args:
        lives: The ranks, of which those that were looked at from outside count.
        book: Takes the stacks that claims refer to.
        beside_dumps: Only what may stand where dumps show no cause. That everybody waits in one
            call is for the dumps to say, if they hold calls at all; the making of a group is no
            call that they hold.
        blind: As in `Sides`.
    """
    for seen in _shapes(lives.sampled, lives.world_size):
        sides = replace(seen, blind=blind)
        if blind and sides.shape is Shape.NOBODY_WAITS:
            continue
        claim = _claim(sides, book)
        recorded = claim.kind is JOINED_NOT_PROGRESSING and not claim.culprits
        unmade = sides.shape is Shape.ALL_WAIT and all(e.meaning.kind == "init" for e in sides.who)
        if not beside_dumps or (claim.is_cause and (unmade or not recorded)):
            yield claim


def absent_by_stacks(lives: Lives) -> Iterator[Sides]:
    """Who is not where others are seen to wait."""
    shapes = _shapes(lives.sampled, lives.world_size)
    return (sides for sides in shapes if sides.shape is Shape.ABSENT)


def _shapes(looks: Mapping[int, RankLook], world_size: int) -> Iterator[Sides]:
    """Who waits for peers and who does not.

    Whoever may be waiting below what its stack shows (in backward, for its device) counts as
    waiting where somebody else clearly does something of its own, and else as elsewhere.
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
    """Workers of an engine of which some wait for its next message: these are in no step.

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
        look.sample.phase == _AMID and look.moved is False and not look.wakes for look in rest
    )
    together = len(rest) > 1 and len(grouped(rest)) == 1
    return left if left and well and few and still and together else ()


def _last_to_end(looks: Sequence[RankLook]) -> Sequence[RankLook]:
    """Those for whose end alone the job waits: the others came to theirs without an error."""
    last = [look for look in looks if not look.gone]
    well = all(
        look.sample.exit_status == 0 and look.sample.phase != _AMID for look in looks if look.gone
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


def _claim(sides: Sides, book: StackBook) -> Claim:
    who, shape = sides.who, sides.shape
    claim = Claim(rests_on="stacks", kind=shape.kind, about=sides, doubts=_doubts(sides))
    if shape in _NAMING:
        sites = sites_of(who, "culprit", book)
        claim = replace(claim, culprits=ranks_in(who), subjects=subjects_of(who), sites=sites)
        if shape in (Shape.ODD, Shape.LEFT):
            rest = [look for look in (*sides.elsewhere, *sides.waiting) if look not in who]
            sites = (*claim.sites, *sites_of(rest, "victim", book))
            return replace(claim, victims=ranks_in(rest), sites=sites)
        alone = shape in (Shape.HELD, Shape.LAST)
        return claim if alone else _waited_for(claim, sides, book)
    if shape is Shape.MOVING:
        return claim
    return replace(
        claim,
        victims=() if shape is Shape.UNDECIDED else ranks_in(who),
        op=(who[0].meaning.op or None) if shape is Shape.ALL_WAIT else None,
        sites=sites_of(who, "victim", book),
    )


def _waited_for(claim: Claim, sides: Sides, book: StackBook) -> Claim:
    """A claim about ranks for which others wait, with the call of both."""
    who, waiting = sides.who, sides.waiting
    inside = sides.shape is Shape.HELD_INSIDE
    op = common([look.inside for look in who] if inside else [look.meaning.op for look in waiting])
    making = all(look.meaning.kind == "init" for look in waiting)
    own = [] if making or not op else [CallSide(ranks=claim.culprits, role="culprit", op=op)]
    own = _in_the_call(who, "culprit") if inside else own
    return replace(
        claim,
        victims=ranks_in(waiting),
        op=op or None,
        calls=(
            *(_in_the_call(who, "culprit") if inside else own),
            *_in_the_call(waiting, "victim"),
        ),
        sites=(*claim.sites, *sites_of(waiting, "victim", book)),
        moving=() if inside else ranks_in(look for look in who if look.moves),
    )


def _in_the_call(looks: Sequence[RankLook], role: str) -> list[CallSide]:
    return [
        CallSide(
            ranks=ranks_in(same),
            role=role,
            op=op,
            state="started",
        )
        for same in grouped(looks)
        if (op := same[0].inside if role == "culprit" else same[0].meaning.op)
    ]


def _doubts(sides: Sides) -> tuple[Doubt, ...]:
    """A held process is certain; one look or movement is a guess."""
    away, waiting = sides.elsewhere, sides.waiting
    if sides.shape is Shape.HELD_INSIDE:
        sure = all(look.certain for look in sides.who) and len(sides.who) == len(away)
        sure = sure and sides.complete
        return () if sure else (Doubt.STACKS_ONLY,)
    amid = all(look.sample.phase == _AMID for look in sides.who)
    if sides.shape in (Shape.HELD, Shape.LAST, Shape.ODD) or (sides.shape is Shape.LEFT and amid):
        return (Doubt.STACKS_ONLY,)
    if sides.shape is not Shape.ABSENT:
        return (Doubt.LOOKS_UNCLEAR,)
    if all(look.certain for look in away) and not sides.unseen:
        return (Doubt.MEMBER_UNSEEN,) if sides.unlooked else ()
    stuck = all(look.moved is False for look in (*waiting, *away))
    stuck = stuck and not any(look.moves for look in away)
    clear = all(look.waits for look in waiting)
    return (Doubt.STACKS_ONLY if stuck and clear and sides.complete else Doubt.LOOKS_UNCLEAR,)


# ------------------------------------------------------------------ ranks together


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
