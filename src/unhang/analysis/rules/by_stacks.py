"""What stacks alone can say: who waits in a collective, and who is elsewhere.

Nothing here is sure but a process that is stopped or dead, one look alone makes a low confidence,
and a rank that still moves is called slow rather than stuck.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import (
    AMID,
    MOST,
    Shape,
    Sides,
    common,
    doubts_of_looks,
    grouped,
    ranks_in,
    shapes,
    sites_of,
    subjects_of,
)
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.idle import IDLE
from unhang.analysis.rules.lock_circle import closed_by_lock
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.not_progressing import JOINED_NOT_PROGRESSING
from unhang.analysis.rules.rank_ended import RANK_ENDED
from unhang.analysis.rules.roots_apart import roots_apart
from unhang.analysis.rules.rule import Rule, Unless, When
from unhang.analysis.rules.skipped_call import SKIPPED_CALL
from unhang.analysis.rules.telling import MOVES, Words, begun, subject, words_for
from unhang.analysis.rules.telling_looks import (
    actions,
    doing,
    doing_of_engines,
    sentences,
    unchanged,
)
from unhang.analysis.rules.young_calls import YoungCalls, left_open_if_young
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.sources.stacks import RankLook, at_site, looks_of_others
from unhang.kinds import INSUFFICIENT_EVIDENCE, Kind, Trait
from unhang.model import Frame
from unhang.report import CallSide
from unhang.stacks.ownership import under
from unhang.wording import all_ranks, count_of, rank_phrase

HOST_PROGRAM_STUCK: Final = Kind(
    "UH602",
    "host-program-stuck",
    "program",
    "No call is in flight, and stacks or logs show that the program makes no progress.",
    traits=Trait.FROM_FAILURE | Trait.OF_NOW,
    actions=("Take two stack samples a few seconds apart: unhang stacks --samples 2.",),
)

_KIND_OF: Final[dict[Shape, Kind]] = {
    Shape.ABSENT: NEVER_JOINED,
    Shape.HELD_INSIDE: JOINED_NOT_PROGRESSING,
    Shape.HELD: HOST_PROGRAM_STUCK,
    Shape.ODD: HOST_PROGRAM_STUCK,
    Shape.LEFT: RANK_ENDED,
    Shape.LAST: HOST_PROGRAM_STUCK,
    Shape.MOVING: IDLE,
    Shape.ALL_WAIT: JOINED_NOT_PROGRESSING,
    Shape.NOBODY_WAITS: HOST_PROGRAM_STUCK,
    Shape.NOTHING_SEEN: INSUFFICIENT_EVIDENCE,
    Shape.SOME_UNSEEN: INSUFFICIENT_EVIDENCE,
    Shape.MANY_CALLS: INSUFFICIENT_EVIDENCE,
    Shape.ONE_LOOK: INSUFFICIENT_EVIDENCE,
    Shape.UNDECIDED: INSUFFICIENT_EVIDENCE,
}

_NAMING: Final = (
    Shape.ABSENT, Shape.HELD_INSIDE, Shape.HELD, Shape.LEFT, Shape.LAST, Shape.ODD,
)  # fmt: skip
_UNRECORDED: Final = "ray/train/"
"""Where ranks wait for all others in no call of torch's."""
_PLACES = 4
_AGAIN = "Look again later: unhang stacks --samples 2 --interval 30."
_RECORD = (
    "Dumps show which call it is and which ranks made it: start the job with unhang run, or use "
    "unhang dump."
)
_LOOP = (
    "A job that loops slowly looks the same if both looks find it at the same place: stacks show "
    "no sequence numbers."
)
_WAITS_ITSELF = (
    "It may be the rank that waits for the others: a wait in the program's own code does not show "
    "for which rank."
)
_WAIT_FOR_ELSE = (
    "It may have ended as intended, while the others wait for something else at one place."
)
_LEFT_ACTIONS = (
    "Find out why its program ends before its peers': os._exit, a preemption, uneven data.",
)
_ENDS_SLOWLY = "It may wait for something outside the job, such as an upload, and end after that."


def _claims(facts: CaseFacts) -> Iterator[Claim]:
    """Claims from stacks alone; two at most are causes.

    With dumps only what may stand where these show no cause. That all ranks wait in one call is
    for the dumps to say, if they hold calls at all; the making of a group is no call that they
    hold. A stack names no sequence number: a loop that comes back looks like one that hangs.
    """
    lives, blind = facts.lives, facts.blind is not None
    engines = tuple(look for look in looks_of_others(facts.case.samples) if look.gives_orders)
    for seen in shapes(lives.sampled, lives.world_size) if not facts.moving else ():
        sides = replace(seen, blind=blind, engines=engines)
        if blind and sides.shape is Shape.NOBODY_WAITS:
            continue
        claim = closed_by_lock(claim_of(sides, facts.book), lives, facts.book)
        claim = left_open_if_young(claim, sides, facts)
        recorded = claim.kind is JOINED_NOT_PROGRESSING and not claim.culprits
        unmade = sides.shape is Shape.ALL_WAIT and all(e.meaning.kind == "init" for e in sides.who)
        open_ = isinstance(claim.about, YoungCalls)
        if facts.situation is None or open_ or (claim.is_cause and (unmade or not recorded)):
            stuck = claim.kind is JOINED_NOT_PROGRESSING
            yield roots_apart(claim, lives, facts.book) if stuck else claim


RULE: Final = Rule(
    kind=HOST_PROGRAM_STUCK,
    when=When.STACKS,
    unless=Unless.CAUSE,
    tells=lambda facts: _claims(facts) if facts.lives.sampled else (),
)


def claim_of(sides: Sides, book: StackBook) -> Claim:
    """What the sides of a job amount to, as a claim."""
    who, shape = sides.who, sides.shape
    claim = Claim(rests_on="stacks", kind=_KIND_OF[shape], about=sides, doubts=_doubts(sides))
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
    amid = all(look.sample.phase == AMID for look in sides.who)
    if sides.shape in (Shape.HELD, Shape.LAST, Shape.ODD) or (sides.shape is Shape.LEFT and amid):
        return (Doubt.STACKS_ONLY,)
    if sides.shape is not Shape.ABSENT:
        return doubts_of_looks((*waiting, *away), complete=sides.complete)
    if all(look.certain for look in away) and not sides.unseen:
        return (Doubt.MEMBER_UNSEEN,) if sides.unlooked else ()
    stuck = all(look.moved is False for look in (*waiting, *away))
    stuck = stuck and not any(look.moves for look in away)
    clear = all(look.waits for look in waiting)
    if stuck and clear and sides.complete:
        return (Doubt.STACKS_ONLY,)
    return doubts_of_looks((*waiting, *away), complete=sides.complete)


def other_meeting(symptom: Claim, lives: Lives, book: StackBook) -> Claim:
    """That the few have not come to a meeting, where stacks show it; else what dumps show.

    Most wait at a meeting that dumps do not hold, and few in a call of torch's.

    Such meetings are those of Ray Train, and the making of groups. Each side waits for the other;
    as with unlike calls, most are right. To the dumps the few are ahead, by a call that the others
    never made, or made too many. Where the others work, they may only be late for that call.
    """
    ahead = {NEVER_JOINED: symptom.victims, SKIPPED_CALL: symptom.culprits}.get(symptom.kind, ())
    few = tuple(look for look in lives.looks_at(ahead) if look.waits or look.may_wait)
    own = tuple(lives.looks_at(sorted({*symptom.culprits, *symptom.victims} - {*ahead})))
    meet = all(look.meaning.kind == "init" or _is_unrecorded(look.meaning.frame) for look in own)
    if not few or len(few) < len(ahead):
        return symptom
    if symptom.kind is SKIPPED_CALL and own and all(look.moves for look in own):
        return claim_of(Sides(Shape.ABSENT, own, few, own, (), 0), book)  # they may yet come
    apart = meet and len(own) > len(few)
    return claim_of(Sides(Shape.ABSENT, few, own, few, (), 0), book) if apart else symptom


def _is_unrecorded(frame: Frame | None) -> bool:
    return frame is not None and under(frame.file, _UNRECORDED)


@words_for(Sides)
def _verdict_of_sides(sides: Sides, claim: Claim) -> Words:  # noqa: ARG001 - all words have the same parameters
    who, shape = sides.who, sides.shape
    unseen = tuple(_incomplete(sides))
    if shape is Shape.ABSENT:
        summary = f"{_waiters(sides)}; {doing(who)}{unchanged(who)}."
        return Words(summary, (*sentences(who), *unseen), _alternatives(sides), actions(who))
    if shape is Shape.HELD_INSIDE:
        op = common([look.inside for look in who])
        summary = f"{_waiters(sides)}; {doing(who)}, inside {op or 'that call'}."
        return Words(summary, (*sentences(who), *unseen), (), actions(who))
    if shape is Shape.HELD:
        others = [look for look in sides.elsewhere if look not in who]
        summary = f"{begun(doing(who))}; no rank was seen waiting in a collective."
        evidence = (*sentences(who), *sentences(others), *unseen)
        return Words(summary, evidence, (), actions(who))
    if shape in (Shape.LEFT, Shape.LAST, Shape.ODD):
        return _of_few(sides)
    return _of_all(sides, unseen)


def _of_few(sides: Sides) -> Words:
    """Where no rank waits in a call, and some are not like the others."""
    who, shape = sides.who, sides.shape
    if shape is Shape.LEFT:
        summary = (
            f"{subject(ranks_in(who))} ended with exit code 0 before the others, and nothing "
            f"has moved since: {_places(sides.waiting)}."
        )
        return Words(summary, tuple(sentences(sides.waiting)), (_WAIT_FOR_ELSE,), _LEFT_ACTIONS)
    if shape is Shape.LAST:
        ended = [look for look in sides.elsewhere if look not in who]
        left = f"{rank_phrase(ranks_in(ended))} {'has' if len(ended) == 1 else 'have'}"
        summary = f"{begun(doing(who))}, while {left} ended without an error."
        return Words(summary, tuple(sentences(who)), (_ENDS_SLOWLY,), actions(who))
    others = [look for look in sides.elsewhere if look not in who]
    summary = (
        f"{begun(doing(who))}, and {rank_phrase(ranks_in(others))} {_where_most(others)}; "
        f"nothing moves{'' if sides.blind else ', and no rank is in communication'}."
    )
    return Words(summary, tuple(sentences(who)), (_WAITS_ITSELF, _LOOP), actions(who))


def _where_most(looks: Sequence[RankLook]) -> str:
    return f"{'is' if len(looks) == 1 else 'are all'} {looks[0].says}"


def _of_all(sides: Sides, unseen: tuple[str, ...]) -> Words:
    """Where not some wait for others."""
    who, shape = sides.who, sides.shape
    if shape is Shape.MOVING:
        summary = (
            f"The program makes progress: {len(who):,} of {count_of(sides.seen, 'rank')} moved "
            "between two looks, or worked."
        )
        return Words(summary, unseen, (), (_AGAIN,))
    if shape is Shape.ALL_WAIT:
        return Words(
            f"{all_ranks(sides.seen)} wait in the same call, and nothing moves: {_places(who)}.",
            ("No rank was seen elsewhere, and no stack changed between two looks.",),
            (_LOOP, "One rank may have skipped an earlier call, and be one behind."),
            (_RECORD, _AGAIN),
        )
    if shape is Shape.NOBODY_WAITS:
        return Words(
            f"No rank is in communication, and none makes progress: {doing(who)}.",
            (*sentences(who), "No stack changed between two looks."),
            ("Each rank may be busy with long work of its own, such as compiling.",),
            (*actions(who), _AGAIN),
        )
    return Words(f"Not enough evidence: {_why(sides)}", unseen, (), (_AGAIN, _RECORD))


def _why(sides: Sides) -> str:
    if sides.shape is Shape.NOTHING_SEEN:
        helpers = [look for look in sides.unseen if look.frames]
        if helpers:
            who = rank_phrase(sorted(look.rank for look in helpers))
            return f"only helper threads of {who} were captured, not the program's main thread."
        return "no rank's stack could be taken."
    if sides.shape is Shape.UNDECIDED:
        engine = f"; {doing_of_engines(sides.engines)}" if sides.engines else ""
        return f"no rank that was seen waits for its peers: {doing(sides.who)}{engine}."
    why = {
        Shape.SOME_UNSEEN: "all ranks that were seen wait for their peers",
        Shape.MANY_CALLS: "ranks wait in different calls, and stacks do not show their groups",
        Shape.ONE_LOOK: "all ranks wait in the same call, and one look cannot show for how long",
    }
    return f"{why[sides.shape]}: {_places(sides.who)}."


def _places(looks: Sequence[RankLook]) -> str:
    groups = grouped(looks)[:_PLACES]
    return "; ".join(f"{rank_phrase(ranks_in(same))} {same[0].says}" for same in groups)


def _waiters(sides: Sides) -> str:
    """Tell who waits, in what and where: "7 of 8 ranks wait in all_reduce at f (train.py:88)"."""
    total = sides.seen + len(sides.unseen)
    ops = common([look.meaning.op for look in sides.waiting])
    sites = {look.meaning.site for look in sides.waiting}
    where = at_site(next(iter(sites))) if len(sites) == 1 else ""
    verb = "waits" if len(sides.waiting) == 1 else "wait"
    what = f"in {ops}" if ops else "for their peers" if verb == "wait" else "for its peers"
    does = f"{verb} {what}"
    setting_up = common(
        [look.meaning.says for look in sides.waiting if look.meaning.kind == "init"]
    )
    if setting_up and all(look.meaning.kind == "init" for look in sides.waiting):
        does = f"{'is' if len(sides.waiting) == 1 else 'are'} {setting_up}"
    return f"{len(sides.waiting):,} of {count_of(total, 'rank')} {does}{where}"


def _incomplete(sides: Sides) -> list[str]:
    found = [
        f"Rank {look.rank} could not be inspected: {look.meaning.says}." for look in sides.unseen
    ]
    if sides.unlooked:
        were = "was" if sides.unlooked == 1 else "were"
        found.append(
            f"{count_of(sides.unlooked, 'rank')} of the job {were} not inspected: other nodes?"
        )
    return found[:MOST]


def _alternatives(sides: Sides) -> tuple[str, ...]:
    if all(look.certain for look in sides.elsewhere):
        return ()
    if any(look.moves for look in sides.elsewhere):
        return (MOVES,)
    if any(look.moved is None for look in (*sides.waiting, *sides.elsewhere)):
        return ("One look cannot tell a moving job from a stuck one.",)
    return (_LOOP,)
