"""Ranks whose last calls disagree about sizes, by their heartbeats, which outlive them.

Or by their lines, where one ended for it: Gloo ends the process that receives what does not fit,
which need not be the odd one out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.divergence.programs import RankPrograms
from unhang.analysis.divergence.rhythm import keeps_its_order, keys_of, own_rows
from unhang.analysis.lives.ended import Ends
from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import ranks_in, sites_of, subjects_of
from unhang.analysis.rules.call_mismatch import SHAPE_MISMATCH
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Observer, Rule
from unhang.analysis.rules.splits_apart import (
    aborted,
    bytes_told,
    may_differ,
    splits_apart,
    splits_told,
)
from unhang.analysis.rules.telling import Words, subject, words_for
from unhang.analysis.shared.claims import Bearing, Because, Claim, Doubt, Reason, Seeing
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.shared.situation import Situation
from unhang.analysis.sources.logs import Message
from unhang.analysis.sources.stacks import RankLook
from unhang.analysis.state.ops import bytes_of
from unhang.case import Case
from unhang.report import CallSide
from unhang.wording import count_of, printable, rank_phrase

_WORD = 4
_TWO = 2
_ENDS = (Reason(Because.CALLS_APART),)


class SizesApart(Struct, frozen=True):
    """Sizes of the first tensor of one call, and who gave them, most ranks first.

    Attributes:
        ended: The ranks that Gloo ended, where the sizes are its own: bytes of a part of the call.
        by_habit: No side has most ranks; but one alone had always made another call here.
    """

    op: str
    sides: tuple[tuple[int, tuple[int, ...]], ...]
    ended: int | None = None
    by_habit: bool = False


class LinesApart(Struct, frozen=True):
    """Lines from which ranks made one call, what they sent not fitting; most ranks first."""

    op: str
    sides: tuple[tuple[str, tuple[int, ...]], ...]


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
    told = next(splits_told(lives, book), None)
    if message is None or told is not None:
        yield from [told] if told is not None else ()
        return
    found = next(_claims(lives, book, situation), None)
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
        yield replace(found.seen(message, Bearing.MADE_OF_MESSAGE), reasons=_ENDS)


def _fitting_message(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """Of a claim that calls disagree, the message of the rank that was ended for it."""
    if (
        claim.kind.family == "disagreement"
        and facts.ends.first
        and (message := _told_of(facts.lives))
    ):
        yield message, Bearing.FITS_MESSAGE


RULE: Final = Rule(observers=(Observer(sees=_fitting_message, early=True, gives=_ENDS),))


def ended_for_calls(ends: Ends, lives: Lives) -> tuple[Reason, ...]:
    """That a rank was ended for calls that do not fit, though nothing sets any rank apart."""
    told = ends.first and _told_of(lives) is not None
    return _ENDS if told and _proves_nothing(lives) else ()


def _told_of(lives: Lives) -> Message | None:
    """The first message that says that calls disagreed."""
    messages = (*lives.said.failures, *lives.said.effects)
    return next((m for m in messages if m.kind.family == "disagreement"), None)


def _claims(lives: Lives, book: StackBook, situation: Situation | None) -> Iterator[Claim]:
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
    left = () if clear or situation is None else _left_order(ranks_in(abreast), situation)
    odd = odd or [look for look in abreast if look.rank in left]
    rest = [look for look in abreast if look not in odd]
    op = abreast[0].sample.last_op
    yield Claim(
        kind=SHAPE_MISMATCH,
        rests_on="stacks",
        about=SizesApart(
            op, tuple((n, ranks_in(side)) for n, side in ordered), by_habit=bool(left)
        ),
        culprits=ranks_in(odd),
        victims=ranks_in(rest),
        subjects=subjects_of(odd),
        op=op,
        calls=tuple(
            CallSide(
                ranks_in(side),
                "culprit" if side[0] in odd else "victim",
                op=op,
                sizes=((n,),),
                state="started",
            )
            for n, side in ordered
        ),
        sites=(*sites_of(odd, "culprit", book), *sites_of(rest, "victim", book)),
        doubts=(
            *(() if clear else (Doubt.BY_HABIT if left else Doubt.NO_MAJORITY,)),
            *(() if alike else (Doubt.STACKS_ONLY,)),
        ),
    )


def _left_order(ranks: Sequence[int], situation: Situation) -> tuple[int, ...]:
    """Of two ranks the one whose last call was not the one that was due, if the other's was."""
    programs, evidence = RankPrograms(situation), situation.evidence
    kept: dict[int, bool | None] = {}
    for dump in evidence.case.dumps:
        if dump.rank in ranks and dump.stop > dump.start:
            rows = own_rows(programs, dump.stop - 1)
            keys = keys_of(programs, rows) if rows is not None else np.zeros(0, np.int64)
            kept[dump.rank] = keeps_its_order(keys, len(keys) - 1) if len(keys) else None
    if len(ranks) != _TWO or sorted(kept.values(), key=str) != [False, True]:
        return ()
    return tuple(rank for rank, keeps in kept.items() if not keeps)


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
    lines = ((side[0].sample.last_site, ranks_in(side)) for side in (most, *dict(others).values()))
    yield Claim(
        kind=SHAPE_MISMATCH,
        rests_on="stacks",
        about=LinesApart(op, tuple(lines)),
        culprits=ranks_in(odd),
        victims=ranks_in(most),
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


@words_for(LinesApart)
def _verdict_of_lines_apart(about: LinesApart, claim: Claim) -> Words:
    sides = "; ".join(
        f"{rank_phrase(who)}: {printable(Path(line).name)}" for line, who in about.sides
    )
    return Words(
        f"{subject(claim.culprits)} made {about.op} at another line than the others, and the "
        "sizes do not match.",
        (
            f"The last call of each rank, by its heartbeat: {sides}.",
            "Gloo ended a process that received more or less data than it expected.",
        ),
    )


@words_for(SizesApart)
def _verdict_of_sizes_apart(about: SizesApart, claim: Claim) -> Words:
    unit = "element" if about.ended is None else "byte"
    sides = "; ".join(f"{rank_phrase(who)}: {count_of(n, unit)}" for n, who in about.sides)
    who = subject(claim.culprits) if claim.culprits else "The ranks"
    verb = "disagrees" if len(claim.culprits) == 1 else "disagree"
    whom = " with the others" if claim.culprits else ""
    habit = f"Only {rank_phrase(claim.culprits)} had always made another call here before."
    told = f"The last call of each rank, by its heartbeat: {sides}."
    if about.ended is not None:
        told = (
            f"The received and expected sizes that Gloo reported when it ended rank {about.ended} "
            f"match parts of the calls in which the others wait: {sides}."
        )
    return Words(
        f"{who} {verb}{whom} about the size of {about.op}: {sides}.",
        (
            told,
            *((habit,) if about.by_habit else ()),
            (
                "Gloo ended a process that received more or less data than it expected, which is "
                "not necessarily the wrong one."
            ),
        ),
    )
