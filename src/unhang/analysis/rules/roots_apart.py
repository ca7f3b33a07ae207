"""Ranks that name different roots in one call, by their heartbeats: torch's recorder has none."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import sites_of, subjects_of
from unhang.analysis.rules.call_mismatch import OP_MISMATCH
from unhang.analysis.rules.not_progressing import NotMoving
from unhang.analysis.rules.telling import Words, subject, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.sources.stacks import RankLook
from unhang.report import Site
from unhang.wording import rank_phrase

_SIDES = 2
_LINE = re.compile(r"[0-9]{1,9}")


class RootsApart(Struct, frozen=True):
    """Roots of one call, by their number in its group, and who named them, most ranks first."""

    op: str
    sides: tuple[tuple[int, tuple[int, ...]], ...]


def roots_apart(
    symptom: Claim, lives: Lives, book: StackBook, seen: NotMoving | None = None
) -> Claim:
    """That ranks named different roots in a call; else what is known of it without the roots.

    A rank that came out of it has a voice, too: how many agree decides who is wrong.

    Args:
        symptom: That it does not move, or that its members disagree about the root.
        lives: For the last calls of ranks.
        book: Takes the stacks that are referred to.
        seen: Who is in it by dumps, where they show that.
    """
    voices = _roots_of(symptom, lives, seen)
    if len(set(voices.values())) < _SIDES:
        return symptom
    sides: defaultdict[int, list[int]] = defaultdict(list)
    for rank, root in voices.items():
        sides[root].append(rank)
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[0]))
    clear = len(ordered[0][1]) * 2 > len(voices)
    odd = [rank for _, side in ordered[1:] for rank in side] if clear else []
    return replace(
        symptom,
        kind=OP_MISMATCH,
        rests_on="stacks",
        about=RootsApart(symptom.op or "", tuple((n, tuple(sorted(side))) for n, side in ordered)),
        culprits=tuple(sorted(odd)),
        victims=tuple(sorted({*symptom.victims, *symptom.culprits} - set(odd))),
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


def _roots_of(claim: Claim, lives: Lives, seen: NotMoving | None) -> dict[int, int]:
    """The root of the call that does not move, by each rank about which it is known."""
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
    rest = {*claim.culprits, *claim.victims} - {look.rank for look in inside}
    out = lives.looks_at(seen.out if seen else sorted(rest))
    # Numbers are those of calls from Python, which ranks may have made unlike numbers of: where
    # only those who are out differ, it must be the same line as well.
    same = [o for o in out if o.sample.last_op == claim.op and o.sample.last_site in sites]
    passed = out if apart else [o for o in same if o.sample.last_call in calls]
    found |= {o.rank: root for o in passed for number, root in o.sample.roots if number in calls}
    return found if len(set(found.values())) >= _SIDES else {}


@words_for(RootsApart)
def _verdict_of_roots_apart(about: RootsApart, claim: Claim) -> Words:
    sides = "; ".join(f"{rank_phrase(who)}: root {root}" for root, who in about.sides)
    who = subject(claim.culprits) if claim.culprits else "The ranks"
    verb = "names" if len(claim.culprits) == 1 else "name"
    whom = "another root than the others" if claim.culprits else "different roots"
    op = about.op or "a call"
    return Words(
        f"{who} {verb} {whom} in {op}: {sides}.",
        (
            f"By their heartbeats, as ranks of the group: {sides}.",
            "The root sends to, or receives from, peers that name another root."
            if claim.culprits
            else "No side has a majority, so neither is blamed.",
        ),
        actions=(
            "Give every rank the same src (or dst): print it just before this line on all ranks.",
        ),
    )
