"""Compare the watchdogs' counters of all ranks: who had not enqueued the call that others wait in.

The counters say what was enqueued and completed when a watchdog gave up. They name groups by their
description at best and move only after the library's call has returned, so what is concluded from
them alone is of medium confidence at most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.rules.call_mismatch import OP_MISMATCH, SHAPE_MISMATCH
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.not_progressing import JOINED_NOT_PROGRESSING, PARTLY_FINISHED
from unhang.analysis.rules.rule import Observer, Rule, Unless, When
from unhang.analysis.rules.telling import Words, adding_for, subject, words_for
from unhang.analysis.shared.claims import Bearing, Claim, Doubt, Observation, Seeing, Weighed
from unhang.analysis.sources.logs import Counters
from unhang.kinds import Kind, Trait
from unhang.model import DEFAULT_GROUP
from unhang.report import CallSide, GroupRef
from unhang.wording import all_ranks, rank_phrase

MOST_BEHIND = 8
_MOST = 4


class Behind(Struct, frozen=True):
    """Ranks that had not enqueued the call in which victims waited, with what they had."""

    enqueued: tuple[tuple[int, int], ...]


class Apart(Struct, frozen=True):
    """Ranks that disagree about one call: what each side had, and who."""

    sides: tuple[tuple[str, tuple[int, ...]], ...]


class AllTimedOut(Struct, frozen=True):
    """All ranks that timed out were in one call."""

    group: str


class PartlyCompleted(Struct, frozen=True):
    """Who timed out in a call, who had completed it, and in which calls these timed out."""

    inside: tuple[int, ...]
    out: tuple[int, ...]
    later: tuple[tuple[int, str], ...]


class Counted(Observation, frozen=True, kw_only=True):
    """What watchdogs printed of the call that a claim is about; `ranks` timed out in it.

    Attributes:
        ops: What they call it.
        behind: Culprits that had not enqueued it, and the calls that they had.
        joined: Culprits that had enqueued it.
        elsewhere: Victims that timed out in another call, by that call.
    """

    ops: tuple[str, ...] = ()
    behind: tuple[tuple[int, int], ...] = ()
    joined: tuple[int, ...] = ()
    elsewhere: tuple[tuple[int, tuple[int, ...]], ...] = ()


# ------------------------------------------------------------------ next to claims


def _beside(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """What the watchdogs printed about the group of the call that a claim names."""
    lives = facts.lives
    if claim.group is None or claim.seq is None:
        return
    names = (claim.group.name, claim.group.description)
    told = {
        rank: counters
        for rank in (*claim.culprits, *claim.victims)
        if rank in lives.ranks
        for name, counters in lives.ranks[rank].counters.items()
        if name in names
    }
    seen = _counted(claim, claim.seq, told)
    if seen.joined or seen.elsewhere:
        yield seen, Bearing.COUNTERS_DENY
    elif seen.ranks or seen.behind:
        yield seen, Bearing.COUNTERS_AGREE


def _counted(claim: Claim, seq: int, told: Mapping[int, Counters]) -> Counted:
    absent = [r for r in claim.culprits if r in told and claim.kind.has(Trait.ABSENCE)]
    behind = [rank for rank in absent if 0 <= told[rank].enqueued < seq]
    waited = tuple(r for r in claim.victims if r in told and told[r].seq == seq)
    elsewhere: dict[int, list[int]] = defaultdict(list)
    for rank in claim.victims:
        if rank in told and told[rank].seq not in (-1, seq):
            elsewhere[told[rank].seq].append(rank)
    return Counted(
        source="logs",
        ranks=waited,
        ops=tuple(sorted({told[rank].op for rank in waited} - {""})),
        behind=tuple((rank, told[rank].enqueued) for rank in behind),
        joined=tuple(r for r in absent if r not in behind and told[r].reach >= seq),
        elsewhere=tuple((other, tuple(who)) for other, who in sorted(elsewhere.items())),
    )


# ------------------------------------------------------------------ by themselves


def _claims(facts: CaseFacts) -> Iterator[Claim]:
    """What the watchdogs' lines of all ranks amount to, group by group."""
    said = facts.lives.said
    for name, ranks in () if said.failures else sorted(said.counters.items()):
        if len(ranks) > 1:
            yield from _compare(name, ranks)


def _compare(name: str, ranks: Mapping[int, Counters]) -> Iterator[Claim]:
    told = {rank: c.enqueued for rank, c in ranks.items() if c.enqueued >= 0}
    calls = {rank: c for rank, c in ranks.items() if c.seq >= 0}
    # A rank that enqueued further than the call that timed out is ahead, which is no fault.
    stuck = min((c.seq for c in calls.values()), default=max(told.values(), default=-1))
    if any(count < stuck for count in told.values()):
        found = _not_enqueued(name, stuck, told, ranks)
        yield found if calls else found.doubted([Doubt.NO_CALL_NAMED])
        return
    if len(calls) < 2:  # noqa: PLR2004 - a pair
        return
    if len({c.seq for c in calls.values()}) > 1:
        yield from _partly_finished(name, stuck, calls)
        return
    for kind, values in (
        (OP_MISMATCH, {rank: c.op for rank, c in calls.items() if c.op}),
        (SHAPE_MISMATCH, {rank: str(c.numel) for rank, c in calls.items() if c.numel >= 0}),
    ):
        if len(set(values.values())) > 1:
            yield _mismatch(kind, name, values, calls)
            return
    if not silent_among(tuple(calls)):  # of ranks 1-3 alone nothing says where rank 0 was
        yield _all_joined(name, calls)


def _partly_finished(name: str, stuck: int, calls: Mapping[int, Counters]) -> Iterator[Claim]:
    """A call in which some timed out, and which others had completed.

    Who completed calls after it as well cannot have made them with who stands in it: they made
    other calls. Groups of one description count apart: numbers of one group are compared only.
    """
    inside = tuple(sorted(rank for rank, c in calls.items() if c.seq == stuck))
    out = tuple(sorted(rank for rank, c in calls.items() if c.completed >= stuck))
    if not out or not (name.isdigit() or name == DEFAULT_GROUP):
        return
    apart = any(calls[rank].completed > stuck for rank in out)
    yield Claim(
        kind=OP_MISMATCH if apart else PARTLY_FINISHED,
        rests_on="logs",
        about=PartlyCompleted(
            inside, out, tuple(sorted({(calls[r].seq, calls[r].op) for r in out}))
        ),
        victims=tuple(sorted(calls)),
        group=_group(name, len(calls)),
        seq=stuck,
        op=calls[inside[0]].op or None,
        doubts=(Doubt.NOBODY_NAMED,),
    )


def silent_among(spoke: Sequence[int]) -> list[int]:
    """The ranks below the highest one that speaks, who do not; none where most are silent."""
    quiet = sorted(set(range(max(spoke, default=-1) + 1)) - set(spoke))
    return quiet if len(quiet) < len(spoke) else []


def _group(name: str, size: int) -> GroupRef | None:
    return GroupRef(name, name, size) if name else None


def _not_enqueued(
    name: str, stuck: int, told: Mapping[int, int], ranks: Mapping[int, Counters]
) -> Claim:
    behind = tuple(sorted(rank for rank, count in told.items() if count < stuck))
    ahead = tuple(sorted(set(ranks) - set(behind)))
    op = next((ranks[rank].op for rank in ahead if ranks[rank].op), None)
    minority = len(behind) * 2 <= len(ranks) and len(ranks) > 1
    return Claim(
        kind=NEVER_JOINED,
        rests_on="logs",
        about=Behind(tuple((rank, told[rank]) for rank in behind)),
        culprits=behind if minority else (),
        victims=ahead,
        group=_group(name, len(ranks)),
        seq=stuck,
        op=op,
        calls=(
            CallSide(ahead, "victim", seq=stuck, op=op or ""),
            *(CallSide((rank,), "culprit", seq=told[rank]) for rank in behind[:MOST_BEHIND]),
        ),
        doubts=(Doubt.COUNTERS_ONLY if minority else Doubt.NOBODY_NAMED,),
    )


def _mismatch(
    kind: Kind, name: str, values: Mapping[int, str], calls: Mapping[int, Counters]
) -> Claim:
    sides: dict[str, list[int]] = defaultdict(list)
    for rank, value in sorted(values.items()):
        sides[value].append(rank)
    largest = max(len(members) for members in sides.values())
    majority = [value for value, members in sides.items() if len(members) == largest]
    odd = [r for value, members in sides.items() if value != majority[0] for r in members]
    clear = len(majority) == 1 and largest * 2 > len(values)
    seq = next(iter(calls.values())).seq
    return Claim(
        kind=kind,
        rests_on="logs",
        about=Apart(tuple((value, tuple(members)) for value, members in sides.items())),
        culprits=tuple(sorted(odd)) if clear else (),
        victims=tuple(sorted(set(values) - set(odd))) if clear else tuple(sorted(values)),
        group=_group(name, len(values)),
        seq=seq,
        calls=tuple(
            CallSide(tuple(members), "peer", seq=seq, op=calls[members[0]].op)
            for members in sides.values()
        ),
        doubts=(Doubt.COUNTERS_ONLY if clear else Doubt.NOBODY_NAMED,),
    )


def _all_joined(name: str, calls: Mapping[int, Counters]) -> Claim:
    counters = next(iter(calls.values()))
    return Claim(
        kind=JOINED_NOT_PROGRESSING,
        rests_on="logs",
        about=AllTimedOut(name),
        victims=tuple(sorted(calls)),
        seq=counters.seq,
        op=counters.op or None,
        doubts=(Doubt.NOBODY_NAMED,),
    )


# Counters are lines of the log: with a failure of the same log they are no second source.
RULE: Final = Rule(
    when=When.LOGS,
    unless=Unless.CAUSE,
    tells=_claims,
    over_empty=True,
    observers=(Observer(sees=_beside, roles=("cause", "consequence"), apart="logs"),),
)


# ------------------------------------------------------------------ words


@words_for(Behind)
def _verdict_of_behind(about: Behind, claim: Claim) -> Words:
    behind = rank_phrase([rank for rank, _ in about.enqueued])
    return Words(
        f"By the watchdogs' counters, {behind} had not enqueued call #{claim.seq} of "
        f"{_group_name(claim)}, in which {rank_phrase(claim.victims)} waited.",
        tuple(
            f"rank {rank}: last enqueued work {count}"
            for rank, count in about.enqueued[:MOST_BEHIND]
        ),
        ("A rank that is stuck inside the library's call does not move this counter either.",),
        (f"Take the stacks of {behind} with unhang stacks --native.",),
    )


def _group_name(claim: Claim) -> str:
    return _named(claim.group.name if claim.group else "")


def _named(group: str) -> str:
    return f"group {group}" if group.isdigit() else group or "the group"


@words_for(Apart)
def _verdict_of_apart(about: Apart, claim: Claim) -> Words:
    said = "; ".join(f"{rank_phrase(members)}: {value}" for value, members in about.sides)
    return Words(
        f"Ranks disagree about call #{claim.seq} of {_group_name(claim)}: {said}.",
        (said,),
        ("If a rank skipped a call long before, later calls meet the wrong ones.",),
        ("Diagnose the dumps for the first call that differs.",),
    )


@words_for(AllTimedOut)
def _verdict_of_all_timed_out(about: AllTimedOut, claim: Claim) -> Words:
    n = len(claim.victims)
    were = "was" if n == 1 else "were"
    op = f" ({claim.op})" if claim.op else ""
    return Words(
        f"{all_ranks(n)} that timed out {were} in the same call #{claim.seq}"
        f"{op} of {_named(about.group)}: these lines blame no rank.",
        ("Sequence number, operation and sizes agree on all of them.",),
        (ranks_not_heard(claim.victims),),
        ("Check the ranks that print nothing; then links and GPUs with unhang doctor.",),
    )


@words_for(PartlyCompleted)
def _verdict_of_partly_completed(about: PartlyCompleted, claim: Claim) -> Words:
    inside, out = rank_phrase(about.inside), rank_phrase(about.out)
    op = f" ({claim.op})" if claim.op else ""
    later = ", ".join(f"#{seq} ({op})" if op else f"#{seq}" for seq, op in about.later[:_MOST])
    finished = "had completed it and timed out in"
    return Words(
        f"{subject(about.inside)} timed out in call #{claim.seq}{op} of {_group_name(claim)}; "
        f"{out} {finished} {later}.",
        (f"By the watchdogs' counters, {out} completed #{claim.seq}, and {inside} did not.",),
        (
            "A root or a sender may leave a call before the others have its data.",
            "The ranks may count different calls: one that a rank skipped or added shifts them.",
            ranks_not_heard(claim.victims),
        ),
        ("Diagnose the dumps for the first call that differs.",),
    )


@adding_for(Counted)
def _adding_counted(seen: Counted, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    said = (*_against(seen, claim), *_for(seen, claim))
    return replace(words, evidence=(*words.evidence, *said))


def _against(seen: Counted, claim: Claim) -> Iterator[str]:
    if seen.joined:
        who = rank_phrase(seen.joined)
        yield f"Sources disagree: by its watchdog {who} had enqueued #{claim.seq}."
    if seen.elsewhere:
        where = "; ".join(f"{rank_phrase(r)} in #{s}" for s, r in seen.elsewhere[:_MOST])
        yield f"Sources disagree: watchdogs timed out in other calls of this group: {where}."


def _for(seen: Counted, claim: Claim) -> Iterator[str]:
    if seen.ranks:
        named = f" ({', '.join(seen.ops)})" if seen.ops else ""
        who = rank_phrase(seen.ranks)
        yield f"Watchdogs of {who} say the same: timed out in #{claim.seq}{named}."
    if seen.behind:
        counts = sorted({count for _, count in seen.behind})
        reach = ", ".join(f"#{count}" for count in counts[:_MOST])
        who = rank_phrase([rank for rank, _ in seen.behind])
        yield f"The watchdog of {who} had counted calls up to {reach} only."


def ranks_not_heard(spoke: Sequence[int]) -> str:
    """Who may be absent from a call in which these ranks timed out: the ranks that say nothing."""
    quiet = silent_among(spoke)
    if quiet:
        who = f"{rank_phrase(quiet)[:1].upper()}{rank_phrase(quiet)[1:]}"
        return f"{who} printed no such line, and may be absent from the call."
    return "Ranks that print no such line may be absent from the call."
