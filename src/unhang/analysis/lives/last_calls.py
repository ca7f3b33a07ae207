"""Ranks whose last calls disagree, by their heartbeats, which outlive them.

About sizes, or by their lines, where one ended for it: Gloo ends the process that receives what
does not fit, which need not be the odd one out. About the root, where a call does not move: torch's
recorder has none, so that the calls look alike there. And about who is in a group that is made,
which torch records nowhere.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.claims import Bearing, Because, Claim, Doubt, Reason, Seeing
from unhang.analysis.findings.stalled import NotMoving
from unhang.analysis.lives.elsewhere import sites_of, subjects_of
from unhang.analysis.lives.ended import Ends
from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.splits import aborted, bytes_told, may_differ, splits_apart
from unhang.analysis.sites import StackBook
from unhang.analysis.situation import Situation
from unhang.analysis.sources.logs import Message
from unhang.analysis.sources.stacks import RankLook
from unhang.analysis.state.ops import bytes_of
from unhang.case import Case
from unhang.errors import UsageError
from unhang.kinds import (
    JOINED_NOT_PROGRESSING,
    MEMBERSHIP_MISMATCH,
    OP_MISMATCH,
    PARTLY_FINISHED,
    SHAPE_MISMATCH,
)
from unhang.report import CallSide, Site
from unhang.wording import ranges_of

__all__ = [
    "ENDS",
    "GroupsApart",
    "LinesApart",
    "RootsApart",
    "SizesApart",
    "ended_for_calls",
    "fitting_message",
    "groups_apart",
    "sizes_apart",
    "with_roots",
]


_SIDES = 2
_WORD = 4
_LINE = re.compile(r"[0-9]{1,9}")
ENDS = (Reason(Because.CALLS_APART),)


class SizesApart(Struct, frozen=True):
    """Sizes of the first tensor of one call, and who gave them, most ranks first.

    Attributes:
        ended: Whoever Gloo ended, where the sizes are bytes of a part of the call as it told them.
    """

    op: str
    sides: tuple[tuple[int, tuple[int, ...]], ...]
    ended: int | None = None


class LinesApart(Struct, frozen=True):
    """Lines from which ranks made one call, what they sent not fitting; most ranks first."""

    op: str
    sides: tuple[tuple[str, tuple[int, ...]], ...]


class RootsApart(Struct, frozen=True):
    """Roots of one call, by their number in its group, and who named them, most ranks first."""

    op: str
    sides: tuple[tuple[int, tuple[int, ...]], ...]


class GroupsApart(Struct, frozen=True):
    """Who is in a group that ranks make under one name, as text, by whom; most ranks first."""

    name: str
    sides: tuple[tuple[str, tuple[int, ...]], ...]


def groups_apart(lives: Lives, book: StackBook) -> Iterator[Claim]:
    """Ranks that wait in making groups that are not the same."""
    looks = {rank: life.look for rank, life in lives.ranks.items() if life.look is not None}
    made = {rank: _made(look) for rank, look in looks.items() if look.sample.makes}
    waiting = [rank for rank in sorted(made) if looks[rank].meaning.kind == "init" and made[rank]]
    names = (next(iter(made[rank])) for rank in waiting if _in_vain(rank, made))
    name = next(names, None)
    if name is None:
        return
    sides = _versions(name, made)
    told = sum(len(ranks) for _, ranks in sides)
    clear = 2 * len(sides[0][1]) > told
    odd = tuple(sorted(rank for _, ranks in sides[1:] for rank in ranks)) if clear else ()
    rest = sorted(set(waiting) - set(odd))
    yield Claim(
        kind=MEMBERSHIP_MISMATCH,
        rests_on="stacks",
        about=GroupsApart(name, sides),
        culprits=odd,
        victims=tuple(rest),
        subjects=subjects_of(lives.looks_at(odd)),
        sites=(
            *sites_of(lives.looks_at(odd), "culprit", book),
            *sites_of(lives.looks_at(rest), "victim", book),
        ),
        doubts=() if clear else (Doubt.NO_MAJORITY,),
        reasons=(Reason(Because.GROUPS_APART),),
    )


def _in_vain(rank: int, made: Mapping[int, Mapping[str, str]]) -> bool:
    """Whether the group that a rank waits for is, to one of its members, another one.

    Groups of one name without common members are no disagreement: replicas make them so.
    """
    name, members = next(iter(made[rank].items()))
    try:
        known = ranges_of(members)
    except UsageError:  # too many to be told one by one
        return False
    peers = (peer for peer in made if any(peer in ranks for ranks in known))
    return any(made[peer].get(name, members) != members for peer in peers)


def _made(look: RankLook) -> dict[str, str]:
    """Members by the names of the groups that a rank made last, newest first."""
    pairs = (each.partition("=") for each in look.sample.makes)
    return {name: members for name, _, members in pairs if name and members}


def _versions(
    name: str, made: Mapping[int, Mapping[str, str]]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    sides: defaultdict[str, list[int]] = defaultdict(list)
    for rank, groups in sorted(made.items()):
        if name in groups:
            sides[groups[name]].append(rank)
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[0]))
    return tuple((members, tuple(ranks)) for members, ranks in ordered)


def with_roots(claim: Claim, lives: Lives, book: StackBook) -> Claim:
    """A call that does not move, as one in which ranks have named different roots, if they have.

    A rank that came out of it has a voice, too: how many agree decides who is wrong.
    """
    still = claim.is_cause and claim.kind in (JOINED_NOT_PROGRESSING, PARTLY_FINISHED)
    voices = _roots_of(claim, lives) if still else {}
    if len(set(voices.values())) < _SIDES:
        return claim
    sides: defaultdict[int, list[int]] = defaultdict(list)
    for rank, root in voices.items():
        sides[root].append(rank)
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[0]))
    clear = len(ordered[0][1]) * 2 > len(voices)
    odd = [rank for _, side in ordered[1:] for rank in side] if clear else []
    return replace(
        claim,
        kind=OP_MISMATCH,
        about=RootsApart(claim.op or "", tuple((n, tuple(sorted(side))) for n, side in ordered)),
        culprits=tuple(sorted(odd)),
        victims=tuple(sorted({*claim.victims, *claim.culprits} - set(odd))),
        subjects=subjects_of(lives.looks_at(odd)),
        calls=(),
        sites=(
            *_made_at(lives.looks_at(odd), book),
            *sites_of(lives.looks_at(sorted(voices.keys() - set(odd))), "victim", book),
        ),
        doubts=() if clear else (Doubt.NO_MAJORITY,),
    )


def _made_at(looks: Iterable[RankLook], book: StackBook) -> Iterator[Site]:
    """Where ranks have made their last call: where they stand, if it is not over."""
    still = []
    for look in looks:
        file, _, line = look.sample.last_site.rpartition(":")
        here = {f"{frame.file}:{frame.line}" for frame in look.frames}
        if _LINE.fullmatch(line) and look.sample.last_site not in here:
            yield Site((look.rank,), "culprit", file, int(line), "", after=look.sample.last_op)
        else:
            still.append(look)
    yield from sites_of(still, "culprit", book)


def _roots_of(claim: Claim, lives: Lives) -> dict[int, int]:
    """The root of the call that does not move, by each rank of which it is known."""
    seen = claim.about if isinstance(claim.about, NotMoving) else None  # by dumps
    inside = [
        look
        for look in lives.looks_at(seen.inside if seen else (*claim.culprits, *claim.victims))
        if look.sample.last_op == claim.op
        and look.sample.roots
        and look.sample.roots[0][0] == look.sample.last_call
        # What C++ called is in no heartbeat: the newest call there must be where the rank stands.
        and look.sample.last_site in {f"{frame.file}:{frame.line}" for frame in look.frames}
    ]
    found = {look.rank: look.sample.roots[0][1] for look in inside}
    calls, sites = (
        {look.sample.last_call for look in inside},
        {look.sample.last_site for look in inside},
    )
    apart = len(set(found.values())) >= _SIDES
    if len(calls) != 1:
        return found if seen and apart else {}
    out = lives.looks_at(seen.out if seen else ())
    # Numbers are those of calls from Python, which ranks may have made unlike numbers of: where
    # only those who are out differ, it must be the same line as well.
    same = [o for o in out if o.sample.last_op == claim.op and o.sample.last_site in sites]
    passed = out if apart else [o for o in same if o.sample.last_call in calls]
    found |= {o.rank: root for o in passed for number, root in o.sample.roots if number in calls}
    return found if len(set(found.values())) >= _SIDES else {}


def sizes_apart(
    ends: Ends, lives: Lives, book: StackBook, situation: Situation | None
) -> Iterator[Claim]:
    """What does not fit in the last calls of ranks, where one was ended for it.

    By the ranks' last calls, or else by their dumps: what differs may be no number of elements.

    Args:
        ends: Which ranks ended first.
        lives: For the last calls, and what the log says.
        book: For stacks.
        situation: For the calls in which ranks wait, where there are dumps.
    """
    message = _told_of(lives) if ends.first else None
    if message is None:
        return
    found = next(_claims(lives, book), None)
    shown = situation.disagreements.values() if situation is not None else ()
    if found is None and not shown:
        found = next(_of_lines(lives, book), None)
    named = any(each.odd_ranks for each in shown)
    if found is None and situation is not None and not named:
        told = next(_of_parts(message, ends, lives, situation), None)
        found = told if told and (told.culprits or not shown) else None
    if found is None and not shown:
        found = next(splits_apart(message, ends, lives, book), None)
    if found is not None:
        yield replace(found.seen(message, Bearing.MADE_OF_MESSAGE), reasons=ENDS)


def fitting_message(claim: Claim, ends: Ends, lives: Lives) -> Iterator[Seeing]:
    """Of a claim that calls disagree, the message of the rank that was ended for it."""
    if claim.kind.family == "disagreement" and ends.first and (message := _told_of(lives)):
        yield message, Bearing.FITS_MESSAGE


def ended_for_calls(ends: Ends, lives: Lives) -> tuple[Reason, ...]:
    """That a rank was ended for calls that do not fit, though nothing sets any rank apart."""
    told = ends.first and _told_of(lives) is not None
    return ENDS if told and _proves_nothing(lives) else ()


def _told_of(lives: Lives) -> Message | None:
    """The first message that says that calls disagreed."""
    messages = (*lives.said.failures, *lives.said.effects)
    return next((m for m in messages if m.kind.family == "disagreement"), None)


def _claims(lives: Lives, book: StackBook) -> Iterator[Claim]:
    looks = [life.look for life in lives.ranks.values() if life.look is not None]
    known = [look for look in looks if look.sample.last_op and look.sample.last_numel >= 0]
    newest = max((look.sample.last_call for look in known), default=0)
    abreast = [look for look in known if look.sample.last_call == newest]
    alike = _differ(abreast)
    if len({look.sample.last_site for look in known}) == 1 and known[0].sample.last_site:
        alike = len(abreast) == len(known)
        abreast = known  # stages of a pipeline make different numbers of calls
    if not _differ(abreast) or may_differ(abreast[0].sample.last_op):
        return
    sides: defaultdict[int, list[RankLook]] = defaultdict(list)
    for look in abreast:
        sides[look.sample.last_numel].append(look)
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[0]))
    clear = len(ordered[0][1]) * 2 > len(abreast)
    odd = [look for _, side in ordered[1:] for look in side] if clear else []
    rest = [look for look in abreast if look not in odd]
    op = abreast[0].sample.last_op
    yield Claim(
        kind=SHAPE_MISMATCH,
        rests_on="stacks",
        about=SizesApart(op, tuple((n, _ranks(side)) for n, side in ordered)),
        culprits=_ranks(odd),
        victims=_ranks(rest),
        subjects=subjects_of(odd),
        op=op,
        calls=tuple(
            CallSide(
                _ranks(side),
                "culprit" if side[0] in odd else "victim",
                op=op,
                sizes=((n,),),
                state="started",
            )
            for n, side in ordered
        ),
        sites=(*sites_of(odd, "culprit", book), *sites_of(rest, "victim", book)),
        doubts=(
            *(() if clear else (Doubt.NO_MAJORITY,)),
            *(() if alike else (Doubt.STACKS_ONLY,)),
        ),
    )


def _of_lines(lives: Lives, book: StackBook) -> Iterator[Claim]:
    """The few that made the call from another line than most: of sizes, it is the same for all."""
    looks = [life.look for life in lives.ranks.values() if life.look is not None]
    if len({(look.sample.last_op, look.sample.last_call) for look in looks}) != 1 or not all(
        look.sample.last_op and look.sample.last_site for look in looks
    ):
        return
    sides: defaultdict[str, list[RankLook]] = defaultdict(list)
    for look in looks:
        sides[look.sample.last_site].append(look)
    (_, most), *others = sorted(sides.items(), key=lambda side: (-len(side[1]), side[0]))
    if not others or 2 * len(most) <= len(looks):
        return
    odd, op = [look for _, side in others for look in side], looks[0].sample.last_op
    lines = ((side[0].sample.last_site, _ranks(side)) for side in (most, *dict(others).values()))
    yield Claim(
        kind=SHAPE_MISMATCH,
        rests_on="stacks",
        about=LinesApart(op, tuple(lines)),
        culprits=_ranks(odd),
        victims=_ranks(most),
        subjects=subjects_of(odd),
        op=op,
        sites=(*sites_of(odd, "culprit", book), *sites_of(most, "victim", book)),
        doubts=(Doubt.LINES_ONLY,),
    )


def _of_parts(message: Message, ends: Ends, lives: Lives, situation: Situation) -> Iterator[Claim]:
    """Who waits in a call of another size, by what Gloo told as it ended the one rank that it did.

    It tells the bytes that came and those that were expected, of a part of the call.
    """
    ended, told = aborted(ends), bytes_told(message)
    if len(ended) != 1 or told is None:
        return
    came, expected = told
    case, numbers = situation.evidence.case, situation.evidence.ranks.numbers
    rows = {int(numbers[at]): int(row) for at, row in enumerate(situation.heads.row) if row >= 0}
    alike = {rank: row for rank, row in rows.items() if not may_differ(case.call(row).name.op)}
    parts = {rank: _part_of(case, row) for rank, row in alike.items()}
    sent = tuple(sorted(rank for rank, part in parts.items() if part == came))
    room = tuple(sorted({ended[0], *(r for r, part in parts.items() if part == expected)}))
    if not sent or came == expected or ended[0] in sent:
        return
    call = case.call(rows[sent[0]])
    sides = sorted(((came, sent), (expected, room)), key=lambda side: -len(side[1]))
    clear = 2 * len(sides[0][1]) > call.group.size
    odd = sides[1][1] if clear else ()
    rest = sorted({*sent, *room} - {*odd})
    yield Claim(
        kind=SHAPE_MISMATCH,
        rests_on="stacks",
        about=SizesApart(call.name.op, tuple(sides), ended[0]),
        culprits=odd,
        victims=tuple(rest),
        subjects=subjects_of(lives.looks_at(odd)),
        op=call.name.op,
        sites=(
            *sites_of(lives.looks_at(odd), "culprit", situation.book),
            *sites_of(lives.looks_at(rest), "victim", situation.book),
        ),
        doubts=(Doubt.MEMBER_UNSEEN, *(() if clear else (Doubt.NO_MAJORITY,))),
    )


def _part_of(case: Case, row: int) -> int:
    """The bytes that Gloo sends of a call at once: of twice as many parts as there are ranks.

    In whole words. Seen in jobs of two, three and four ranks: all_reduce, reduce and all_gather.
    """
    parts = 2 * max(case.groups[int(case.calls.group[row])].size, 1)
    return -(-bytes_of(case.signatures[int(case.calls.signature[row])]) // (parts * _WORD)) * _WORD


def _proves_nothing(lives: Lives) -> bool:
    """Whether nothing that was seen of the last calls sets any rank apart, as with splits."""
    looks = [life.look for life in lives.ranks.values() if life.look is not None]
    last = {(look.sample.last_op, look.sample.last_call) for look in looks}
    alike = len({look.sample.last_numel for look in looks}) == 1 and looks[0].sample.last_numel >= 0
    return len(looks) > 1 and len(last) == 1 and (alike or may_differ(looks[0].sample.last_op))


def _differ(looks: Sequence[RankLook]) -> bool:
    """Whether the last calls are of one kind, and of several sizes."""
    ops = {look.sample.last_op for look in looks}
    return len(ops) == 1 and len({look.sample.last_numel for look in looks}) > 1


def _ranks(looks: Sequence[RankLook]) -> tuple[int, ...]:
    return tuple(sorted(look.rank for look in looks))
