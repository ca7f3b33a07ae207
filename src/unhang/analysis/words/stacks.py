"""Words for ranks as their stacks show them, alone and beside what dumps say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from unhang.analysis.claims import Claim, Stance, Weighed
from unhang.analysis.lives.elsewhere import (
    MOST,
    GoingAlong,
    GoneOn,
    Pausing,
    Seen,
    Shape,
    Sides,
    common,
    grouped,
    ranks_in,
)
from unhang.analysis.lives.leading import Leads, SaysIdle, Serves
from unhang.analysis.lives.out_of_calls import LeftCall
from unhang.analysis.lives.outside import Outside
from unhang.analysis.rules.telling import Words, adding_for, merged, subject, words_for
from unhang.analysis.sources.stacks import RankLook, at_site
from unhang.kinds import Trait
from unhang.wording import count_of, printable, rank_phrase

__all__: list[str] = []

_NAMED = 3
_PLACES = 4
_AGAIN = "Look again some time later: unhang stacks --samples 2 --interval 30."
_RECORD = "Dumps tell which call it is and who called it: run under unhang run, or unhang dump."
_LOOP = (
    "A job that goes round slowly looks the same, if both looks meet it at the same place: stacks "
    "show no sequence numbers."
)
_WAITS_ITSELF = (
    "It may be the one that waits for the others: a wait of the program's own shows no direction."
)
_WAIT_FOR_ELSE = (
    "It may have ended as it should, and the others wait for something else, all at one place."
)
_LEFT_ACTIONS = (
    "Look at why its program ends before its peers': os._exit, a notice to leave, uneven data.",
)
_ENDS_SLOWLY = (
    "It may wait for something outside of the job before it ends, such as an upload, and end then."
)
_MOVES = (
    "It may only be slow, and come: then give the others no call to wait in while one rank works."
)
_AT_STORE = "The rank that has to set that key may be wrong, not the rank that waits for it."
_AT_LOCK = (
    "Processes share the lock that it waits for: one of those that wait for it may hold that lock."
)
_MADE_AHEAD = (
    "It may have made the call ahead, and do something else while its device is in the call with "
    "the others."
)
_ACTIONS: Final[dict[str, str]] = {
    "stopped": "Let it go on: kill -CONT PID; find out who stopped it (job control, a person).",
    "traced": "Let it go on: detach its debugger (see TracerPid in /proc/PID/status); kill -CONT "
    "does not wake it.",
    "dead": "Look for its exit code and for the kernel's out-of-memory killer (dmesg).",
    "uninterruptible": "Check the file systems and drivers of its host: dmesg, df, mount.",
    "data-loader": "Look at its data-loader workers too: unhang stacks --tree PID.",
    "checkpoint": "Check the space and the health of the file system that it writes to.",
    "file-system": "Check the file system that it reads or writes: df, mount, dmesg.",
    "prompt": "The program is at a breakpoint or asks for input: inspect that line.",
    "gil": "Let that native call release the GIL, or move it to another process.",
    "compilation": "Remove stale lock files of the build (see TORCH_EXTENSIONS_DIR).",
}


@words_for(Sides)
def _verdict_of_sides(sides: Sides, claim: Claim) -> Words:  # noqa: ARG001 - all words have the same parameters
    who, shape = sides.who, sides.shape
    unseen = tuple(_incomplete(sides))
    if shape is Shape.ABSENT:
        summary = f"{_waiters(sides)}; {_doing(who)}{_unchanged(who)}."
        return Words(summary, (*_sentences(who), *unseen), _alternatives(sides), _actions(who))
    if shape is Shape.HELD_INSIDE:
        op = common([look.inside for look in who])
        summary = f"{_waiters(sides)}; {_doing(who)}, inside {op or 'that call'}."
        return Words(summary, (*_sentences(who), *unseen), (), _actions(who))
    if shape is Shape.HELD:
        others = [look for look in sides.elsewhere if look not in who]
        summary = f"{_begun(_doing(who))}; no rank is seen waiting in a collective."
        evidence = (*_sentences(who), *_sentences(others), *unseen)
        return Words(summary, evidence, (), _actions(who))
    if shape in (Shape.LEFT, Shape.LAST, Shape.ODD):
        return _of_few(sides)
    return _of_all(sides, unseen)


def _of_few(sides: Sides) -> Words:
    """Where nobody waits in a call, and some are not like the others."""
    who, shape = sides.who, sides.shape
    if shape is Shape.LEFT:
        summary = (
            f"{subject(ranks_in(who))} ended with exit code 0 before the others, and nothing "
            f"moves since: {_places(sides.waiting)}."
        )
        return Words(summary, tuple(_sentences(sides.waiting)), (_WAIT_FOR_ELSE,), _LEFT_ACTIONS)
    if shape is Shape.LAST:
        ended = [look for look in sides.elsewhere if look not in who]
        left = f"{rank_phrase(ranks_in(ended))} {'has' if len(ended) == 1 else 'have'}"
        summary = f"{_begun(_doing(who))}, while {left} ended without an error."
        return Words(summary, tuple(_sentences(who)), (_ENDS_SLOWLY,), _actions(who))
    others = [look for look in sides.elsewhere if look not in who]
    summary = (
        f"{_begun(_doing(who))}, and {rank_phrase(ranks_in(others))} {_where_most(others)}; "
        f"nothing moves{'' if sides.blind else ', and no rank is in communication'}."
    )
    return Words(summary, tuple(_sentences(who)), (_WAITS_ITSELF, _LOOP), _actions(who))


def _where_most(looks: Sequence[RankLook]) -> str:
    return f"{'is' if len(looks) == 1 else 'are all'} {looks[0].says}"


def _of_all(sides: Sides, unseen: tuple[str, ...]) -> Words:
    """Where not some wait for others."""
    who, shape = sides.who, sides.shape
    if shape is Shape.MOVING:
        summary = (
            f"The program moves: {count_of(len(who), 'rank')} of {sides.seen:,} stood elsewhere "
            "in the first look, or worked between two looks."
        )
        return Words(summary, unseen, (), (_AGAIN,))
    if shape is Shape.ALL_WAIT:
        return Words(
            f"All {sides.seen:,} ranks wait in the same call, and nothing moves: {_places(who)}.",
            ("No rank was seen elsewhere, and no stack changed between two looks.",),
            (_LOOP, "One rank may have skipped an earlier call, and be one behind."),
            (_RECORD, _AGAIN),
        )
    if shape is Shape.NOBODY_WAITS:
        return Words(
            f"No rank is in communication, and none moves: {_doing(who)}.",
            (*_sentences(who), "No stack changed between two looks."),
            ("Each may be busy with long work of its own, such as compiling.",),
            (*_actions(who), _AGAIN),
        )
    return Words(f"Not enough evidence: {_why(sides)}", unseen, (), (_AGAIN, _RECORD))


def _why(sides: Sides) -> str:
    if sides.shape is Shape.NOTHING_SEEN:
        helpers = [look for look in sides.unseen if look.frames]
        if helpers:
            who = rank_phrase(sorted(look.rank for look in helpers))
            return f"of {who} only helper threads are here, not the thread of the program."
        return "no stack of any rank could be taken."
    if sides.shape is Shape.UNDECIDED:
        return f"no rank that was seen waits for its peers: {_doing(sides.who)}."
    why = {
        Shape.SOME_UNSEEN: "all ranks that were seen wait for their peers",
        Shape.MANY_CALLS: "ranks wait in different calls, and stacks do not show their groups",
        Shape.ONE_LOOK: "all ranks wait in the same call, and one look cannot tell for how long",
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
        f"Rank {look.rank} could not be looked at: {look.meaning.says}." for look in sides.unseen
    ]
    if sides.unlooked:
        found.append(
            f"{count_of(sides.unlooked, 'rank')} of the job were not looked at: other nodes?"
        )
    return found[:MOST]


def _alternatives(sides: Sides) -> tuple[str, ...]:
    if all(look.certain for look in sides.elsewhere):
        return ()
    if any(look.moves for look in sides.elsewhere):
        return (_MOVES,)
    if any(look.moved is None for look in (*sides.waiting, *sides.elsewhere)):
        return ("One look cannot tell a job that passes by from one that is stuck.",)
    return (_LOOP,)


# ------------------------------------------------------------------ beside dumps


@adding_for(Seen)
def _adding_seen(seen: Seen, words: Words, claim: Claim, weighed: Weighed) -> Words:
    said = tuple(f"Stacks: {sentence}" for sentence in _sentences(seen.looks))
    if seen.keys:
        keys = "; ".join(f"{rank_phrase(who)}: {printable(key, 60)!r}" for key, who in seen.keys)
        said = (*said, f"The key that each rank set last: {keys}.")
        words = replace(words, alternatives=(*(words.alternatives or ()), _AT_STORE))
    if seen.locked:
        words = replace(words, alternatives=(*(words.alternatives or ()), _AT_LOCK))
    if weighed.stance is Stance.CONTRADICTS:
        against = "Sources disagree: the dumps lack the call, the stack is inside one."
        return replace(words, evidence=(*said, against, *words.evidence))
    if seen.stopped:
        words = Words(_is_stopped(seen, claim), words.evidence, (), ())
    elif claim.moving and claim.kind.has(Trait.MAY_COME):
        verb = "moves" if len(claim.moving) == 1 else "move"
        busy = f"; {rank_phrase(claim.moving)} {verb}: busy, slow or late rather than stuck."
        alternatives = (*(words.alternatives or ()), _MOVES)
        summary = words.summary.removesuffix(".") + busy
        words = replace(words, summary=summary, alternatives=alternatives)
    return replace(
        words,
        evidence=(*said, *words.evidence),
        actions=merged(_actions(seen.looks), words.actions),
    )


@adding_for(GoingAlong)
def _adding_going_along(seen: GoingAlong, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001 - as below
    goes = "has no data left and goes" if len(seen.ranks) == 1 else "have no data left and go"
    said = f"{subject(seen.ranks)} {goes} along (Join), as long as others have some."
    summary = f"{words.summary.removesuffix('.')}; {said[:1].lower()}{said[1:]}"
    return replace(words, summary=summary, evidence=(f"Stacks: {said}", *words.evidence))


@adding_for(Pausing)
def _adding_pausing(seen: Pausing, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001 - as below
    may = (
        f"Nothing had moved for {seen.for_s:.0f} s: a pause of {rank_phrase(seen.ranks)} (data, "
        "storage, a service that answers late) may take as long. Look again later."
    )
    return replace(words, alternatives=(may, *(words.alternatives or ())))


@adding_for(GoneOn)
def _adding_gone_on(seen: GoneOn, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001 - as below
    have = "has" if len(seen.ranks) == 1 else "have"
    said = f"{subject(seen.ranks)} {have} gone on since: a call has ended, and another begun."
    summary = f"{words.summary.removesuffix('.')}; {said[:1].lower()}{said[1:]}"
    return replace(words, summary=summary, evidence=(said, *words.evidence))


@adding_for(Leads)
def _adding_leads(seen: Leads, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001 - as below
    who = rank_phrase(seen.ranks)
    said = (
        f"In {seen.waits:,} calls like this one the others waited for {who} before, "
        f"{seen.share:.0%} of the time."
    )
    may = f"{who[:1].upper()}{who[1:]} may lead them, and have nothing to do: no request, no work."
    alternatives = (may, *(words.alternatives or ()))
    return replace(words, evidence=(said, *words.evidence), alternatives=alternatives)


@adding_for(SaysIdle)
def _adding_says_idle(seen: SaysIdle, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001 - as below
    one = len(seen.ranks) == 1
    said = f"{subject(seen.ranks)} {'says' if one else 'say'} that {'it is' if one else 'they are'}"
    wait = "waits" if len(claim.victims) == 1 else "wait"
    for_it = f", and {rank_phrase(claim.victims)} {wait} for that" if claim.culprits else ""
    return replace(
        words,
        summary=f"{said} idle, waiting for work{for_it}.",
        evidence=(words.summary, *words.evidence),
    )


@adding_for(Serves)
def _adding_serves(seen: Serves, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001 - as below
    place = f"{seen.server.function} ({seen.server.file.rpartition('/')[2]}:{seen.server.line})"
    said = f"{subject(seen.ranks)} may be idle, waiting for work: a server runs there in {place}."
    return replace(words, alternatives=(said, *(words.alternatives or ())))


@adding_for(LeftCall)
def _adding_left_call(seen: LeftCall, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001 - as below
    have = "has" if len(seen.ranks) == 1 else "have"
    said = f"{subject(seen.ranks)} {have} left that call, which failed, and went on without it."
    summary = f"{words.summary.removesuffix('.')}; {said[:1].lower()}{said[1:]}"
    return replace(words, summary=summary, evidence=(f"Stacks: {said}", *words.evidence))


@adding_for(Outside)
def _adding_outside(seen: Outside, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001 - all have these parameters
    call = claim.op or "that call"
    label = call if claim.seq is None else f"{call} #{claim.seq}"
    waiting = rank_phrase(seen.waiting)
    against = f"Sources disagree: the dumps show all members in {label}, the stacks only {waiting}."
    return Words(
        f"{_begun(_doing(seen.looks))}, while {waiting} {_verb(seen.waiting)} in {label}, which "
        "does not move.",
        (*(f"Stacks: {sentence}" for sentence in _sentences(seen.looks)), against, *words.evidence),
        (_MADE_AHEAD, *(words.alternatives or ())),
        merged(_actions(seen.looks), words.actions),
    )


def _verb(ranks: Sequence[int]) -> str:
    return "waits" if len(ranks) == 1 else "wait"


def _is_stopped(seen: Seen, claim: Claim) -> str:
    call = claim.op or "a call"
    label = call if claim.seq is None else f"{call} #{claim.seq}"
    return f"{_begun(_doing(seen.looks))}, and no other rank is missing from {label}."


# ------------------------------------------------------------------ of any ranks


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]


def _doing(looks: Sequence[RankLook]) -> str:
    """What some ranks do, for a summary: at most three places, the others counted."""
    groups = _told_alike(looks)
    parts = [
        f"{rank_phrase(ranks_in(same))} {'is' if len(same) == 1 else 'are'} {same[0].says}"
        for same in groups[:_NAMED]
    ]
    if len(groups) > _NAMED:
        rest = sum(len(same) for same in groups[_NAMED:])
        parts.append(f"{count_of(rest, 'more rank')} elsewhere too")
    return ", ".join(parts)


def _told_alike(looks: Sequence[RankLook]) -> list[list[RankLook]]:
    """Ranks of which the same is told, most first: a sentence is told once."""
    groups: dict[tuple[str, bool], list[RankLook]] = {}
    for look in looks:
        groups.setdefault((look.says, look.gone), []).append(look)
    return sorted(groups.values(), key=lambda same: (-len(same), same[0].rank))


def _unchanged(looks: Sequence[RankLook]) -> str:
    """How two looks compare, to end a sentence with; nothing where only one was taken."""
    if all(look.moves and not look.wakes for look in looks):
        return ", and moving" if all(look.moved for look in looks) else ", and working"
    if all(look.moved is False for look in looks):
        return ", unchanged between two looks"
    return ", and moving" if all(look.moved for look in looks) else ""


def _sentences(looks: Sequence[RankLook]) -> Iterator[str]:
    """One sentence for all ranks that do the same, most ranks first."""
    for same in _told_alike(looks)[:MOST]:
        verb = "is" if len(same) == 1 else "are"
        yield f"{subject(ranks_in(same))} {verb} {same[0].says}{_unchanged(same)}."


def _actions(looks: Sequence[RankLook]) -> tuple[str, ...]:
    """What to do about ranks that are where they are, commonest kind first."""
    pids: dict[str, list[int]] = {}
    for look in looks:
        if (
            look.sample.exit_status is None
        ):  # else it is known how it ended, and nobody has to look for it
            kind = "traced" if look.sample.state == "t" else look.meaning.kind
            pids.setdefault(kind, []).append(look.pid)
    told = []
    for kind, which in sorted(pids.items(), key=lambda item: -len(item[1])):
        if kind in _ACTIONS:
            pid = str(which[0]) if len(which) == 1 and which[0] > 0 else "PID"
            told.append(_ACTIONS[kind].replace("PID", pid))
    return tuple(told) or ("Look at that line, and at its log: unhang logs.",)
