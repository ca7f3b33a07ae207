"""When no rank waits for another: idle, healthy, or not enough to tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from unhang.analysis.findings.nothing_stuck import (
    AllFinished,
    InFlight,
    NothingStuck,
    Undecided,
    Why,
)
from unhang.analysis.matching.no_trace import NoTrace
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Rule, Unless, When
from unhang.analysis.rules.telling import Words, waits, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.kinds import INSUFFICIENT_EVIDENCE, Kind, Trait
from unhang.wording import count_of, rank_phrase

IDLE: Final = Kind(
    "UH601",
    "idle",
    "evidence",
    "No call is in flight anywhere: idle or finished.",
    role="observation",
    traits=Trait.OPEN | Trait.NOTHING_FOUND,
)


def _tells(facts: CaseFacts) -> Iterator[Claim]:
    """What a case means in which nothing was found."""
    about = facts.nothing_stuck
    if about is not None:
        kind = INSUFFICIENT_EVIDENCE if isinstance(about, Undecided) else IDLE
        yield Claim(kind=kind, about=about, doubts=tuple(_doubts(about)))


def _doubts(about: NothingStuck) -> Iterator[Doubt]:
    if isinstance(about, Undecided):
        yield Doubt.NOBODY_NAMED
    elif isinstance(about, InFlight):
        yield Doubt.ONE_MOMENT
    else:
        if about.unseen is not None:
            yield Doubt.LEAVES_NO_TRACE
        if not about.n_calls:
            yield Doubt.NOTHING_RECORDED


RULE: Final = Rule(when=When.CALLS, unless=Unless.CLAIM, tells=_tells)


_STACKS: Final = "Look at the stacks of all ranks: unhang stacks."
_RECORD_EXCHANGES: Final = (
    "Start the job with unhang run, which records sends and receives on Gloo as well."
)
_TIMES: Final = "Reduce with all times, or collect the dumps: unhang reduce --times."
_AGAIN: Final = "Dump again some seconds later, and compare: unhang dump."
_UNDECIDED: Final = {
    Why.RUNS_AHEAD: (
        "the hosts of {old} made calls ahead of their devices, and their dumps leave out the calls "
        "that have ended: the devices may be busy, or stuck."
    ),
    Why.NO_DUMP: "there is no usable dump.",
    Why.NOTHING_RECORDED: "the dumps contain no call and no counter.",
    Why.NO_ROOM: (
        "counters show calls in flight, and the dumps have no entries: the recorder had no room "
        "for them."
    ),
    Why.CUT_SHORT: (
        "the dumps show no call in flight, but {cut} cut short: the last calls are lost."
    ),
    Why.SOME_SILENT: "no call is in flight on the ranks that left a dump, and {silent} left none.",
    Why.SOME_OLD: (
        "no call is in flight on the other ranks, and they finished a call that {old} never made: "
        "the dumps of {old} are older, show another group, or do not record calls of that kind."
    ),
    Why.TIMES_LEFT_OUT: (
        "no rank is stuck; the parts leave out the times of most calls, so they do not show "
        "whether a rank is slow."
    ),
    Why.EXCHANGES_UNSEEN: (
        "no collective is in flight, and on Gloo torch records no send, receive or "
        "monitored_barrier: one of them may hang."
    ),
    Why.ENDS_UNSEEN: (
        "all members made the last call, and the recorder of {old} does not show its end: it may "
        "have finished, or hang."
    ),
}


def _cut(ranks: tuple[int, ...]) -> str:
    whose = "the dump of {} was" if len(ranks) == 1 else "the dumps of {} were"
    return whose.format(rank_phrase(ranks))


@words_for(Undecided)
def _verdict_of_undecided(about: Undecided, claim: Claim) -> Words:  # noqa: ARG001
    silent = rank_phrase(about.silent) if about.silent else ""
    if about.why is Why.WAITS_UNEXPLAINED:
        why = _waits(about)
    else:
        old = rank_phrase(about.waiting)
        why = _UNDECIDED[about.why].format(silent=silent, cut=_cut(about.cut), old=old)
    summary = f"Not enough evidence: {why}"
    if about.finished is not None:
        over = (_over(about.finished),)
        return Words(summary, over, actions=(_RECORD_EXCHANGES, _STACKS))
    if about.why is Why.TIMES_LEFT_OUT:
        return Words(summary, actions=(_TIMES,))
    if about.why is Why.RUNS_AHEAD:
        return Words(summary, actions=(_AGAIN,))
    return Words(summary, (f"No usable dump of {silent}.",) if silent else ())


def _waits(about: Undecided) -> str:
    if not about.just_begun:
        return f"{waits(about.waiting)}, and nothing shows for which rank."
    return (
        f"{waits(about.waiting)}, and {rank_phrase(about.just_begun)} had only just begun to wait "
        "when dumped: the job may be moving."
    )


@words_for(InFlight)
def _verdict_of_in_flight(about: InFlight, claim: Claim) -> Words:  # noqa: ARG001
    known = f"had been waiting for {about.oldest_ns / 1e9:.2f} s when its dump was made"
    told, how = ("the oldest " + known, "The dumps say when they were made.")
    if about.oldest_ns < 0:
        told = "they are no older than such calls usually are"
        how = "The job moved while it was dumped: its files, or later calls in some, show this."
    return Words(
        f"Calls are in flight and none of them is stuck: {told}.",
        (how,),
        alternatives=("The job may have stopped just before the dumps were made.",),
        actions=("Dump again some time later, and compare: unhang dump.",),
    )


_UNSEEN: Final = {
    NoTrace.FIRST_CALLS: (
        "{ranks} may be in the first call of a group, which leaves no record until all members "
        "have made it"
    ),
    NoTrace.PARTS: (
        "the last call of {ranks} has several tensors, and is recorded as ended at once"
    ),
    NoTrace.BATCHES: (
        "the dumps of {ranks} leave out batches of sends and receives, whether or not they ended"
    ),
}


@words_for(AllFinished)
def _verdict_of_all_finished(about: AllFinished, claim: Claim) -> Words:  # noqa: ARG001
    if about.unseen is not None:
        why = _UNSEEN[about.unseen].format(ranks=rank_phrase(about.of))
        return Words(
            f"Not enough evidence: every recorded call is finished, but {why}.",
            (_over(about),),
            alternatives=("The job is idle in communication, or finished.",),
            actions=(_STACKS,),
        )
    return Words(
        "No call is in flight anywhere: the job is idle in communication, or finished.",
        (_over(about),),
        alternatives=("The program may be stuck outside communication, which dumps cannot show.",),
        actions=(_STACKS,),
    )


def _over(about: AllFinished) -> str:
    calls = count_of(about.n_calls, "recorded call")
    return f"All {calls} of {count_of(about.n_ranks, 'rank')} are finished."
