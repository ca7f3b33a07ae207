"""Words for where nothing is stuck, or nothing shows that anything is: slow, idle, undecided."""

from __future__ import annotations

from typing import Final

from unhang.analysis.claims import Claim
from unhang.analysis.findings.idle import AllFinished, InFlight, Undecided, Why
from unhang.analysis.matching.no_trace import NoTrace
from unhang.analysis.rules.telling import Words, words_for
from unhang.wording import count_of, rank_phrase

__all__: list[str] = []

_STACKS: Final = "Look at the stacks of all ranks: unhang stacks."
_RECORD_EXCHANGES: Final = (
    "Start the job with unhang run, which records sends and receives on Gloo as well."
)
_TIMES: Final = "Reduce with all times, or collect the dumps: unhang reduce --times."
_UNDECIDED: Final = {
    Why.NO_DUMP: "there is no usable dump.",
    Why.NOTHING_RECORDED: "the dumps hold no call and no counter.",
    Why.NO_ROOM: (
        "counters show calls in flight, and the dumps hold no entries: the recorder had no room "
        "for any."
    ),
    Why.CUT_SHORT: (
        "no call is in flight as far as the dumps show, and {cut} cut short: what was called last "
        "is lost."
    ),
    Why.SOME_SILENT: "no call is in flight on the ranks that left a dump, and {silent} left none.",
    Why.SOME_OLD: (
        "no call is in flight on the other ranks, and they finished what {old} never called, by "
        "dumps that are older than theirs, of another group, or without the kind of that call."
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
        "all members have made what was called last, and the recorder of {old} shows no end of "
        "it: it may be over, or hang."
    ),
}


def _cut(ranks: tuple[int, ...]) -> str:
    whose = "the dump of {} was" if len(ranks) == 1 else "the dumps of {} were"
    return whose.format(rank_phrase(ranks))


@words_for(Undecided)
def _verdict_of_undecided(about: Undecided, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    silent = rank_phrase(about.silent) if about.silent else ""
    if about.why is Why.WAITS_UNEXPLAINED:
        why = _waits(about)
    else:
        old = rank_phrase(about.waiting)
        why = _UNDECIDED[about.why].format(silent=silent, cut=_cut(about.cut), old=old)
    summary = f"Not enough evidence: {why}"
    if about.finished is not None:
        over = (_all_finished(about.finished),)
        return Words(summary, over, actions=(_RECORD_EXCHANGES, _STACKS))
    if about.why is Why.TIMES_LEFT_OUT:
        return Words(summary, actions=(_TIMES,))
    return Words(summary, (f"No usable dump of {silent}.",) if silent else ())


def _waits(about: Undecided) -> str:
    verb = "waits" if len(about.waiting) == 1 else "wait"
    waiting = f"{rank_phrase(about.waiting)} {verb}"
    if not about.just_begun:
        return f"{waiting}, and nothing shows for whom."
    return (
        f"{waiting}, and {rank_phrase(about.just_begun)} had only just begun to when dumped: the "
        "job may be moving."
    )


@words_for(InFlight)
def _verdict_of_in_flight(about: InFlight, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    known = f"had been waiting for {about.oldest_ns / 1e9:.2f} s when its dump was made"
    told, how = ("the oldest " + known, "The dumps say when they were made.")
    if about.oldest_ns < 0:
        told = "they are no older than such calls usually are"
        how = "The job moved while it was dumped, by its files or by what some of them have since."
    return Words(
        f"Calls are in flight and none of them is stuck: {told}.",
        (how,),
        alternatives=("The job may have stopped just before the dumps were made.",),
        actions=("Dump again some time later, and compare: unhang dump.",),
    )


_UNSEEN: Final = {
    NoTrace.FIRST_CALLS: (
        "{ranks} may stand in the first call of a group, which leaves no record until all members "
        "have come"
    ),
    NoTrace.PARTS: (
        "the last call of {ranks} is one of several tensors, which is recorded as ended at once"
    ),
    NoTrace.BATCHES: (
        "batches of sends and receives are left out of the dumps of {ranks} whether or not they "
        "have ended"
    ),
}


@words_for(AllFinished)
def _verdict_of_all_finished(about: AllFinished, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    if about.unseen is not None:
        why = _UNSEEN[about.unseen].format(ranks=rank_phrase(about.of))
        return Words(
            f"Not enough evidence: every recorded call is finished, but {why}.",
            (_all_finished(about),),
            alternatives=("The job is idle in communication, or finished.",),
            actions=(_STACKS,),
        )
    return Words(
        "No call is in flight anywhere: the job is idle in communication, or finished.",
        (_all_finished(about),),
        alternatives=(
            "The program may be stuck outside communication, in which case dumps cannot show it.",
        ),
        actions=(_STACKS,),
    )


def _all_finished(about: AllFinished) -> str:
    calls = count_of(about.n_calls, "recorded call")
    return f"All {calls} of {count_of(about.n_ranks, 'rank')} are finished."
