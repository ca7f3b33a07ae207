"""Words for cases without dumps in which nothing says what is the matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unhang.analysis.lives.life import Lives
from unhang.analysis.rules.last_traced_call import last_call
from unhang.analysis.rules.telling import all_words_of
from unhang.analysis.shared.claims import Claim
from unhang.analysis.sources.traces import LastHeard
from unhang.model import LogEvent, Note
from unhang.wording import count_of, fold_ranks

_SHOWN = 160
ONLY_TOLD = (
    "Not enough evidence: there are no dumps, stacks or logs, only what other commands found."
)
STRANGE = (
    "Not enough evidence: nothing here looks like the log of a job: no rank, time stamp, level or "
    "step, and no known message."
)

A_START = (
    "Not enough evidence: no message here is the cause of a failure, and nothing shows that the "
    "job made progress after its start: no steps, rate, result or end."
)

LEFT_OPEN = (
    "Not enough evidence: the log shows progress, no failure and no end of the job. A job that "
    "hangs without a message leaves the same log."
)


def lost(note: Note) -> str:
    """That something could not be read, where nothing wrong was found in the rest."""
    return f"Not enough evidence: {note.source} {note.text}."


def quiet_logs(events: Sequence[LogEvent]) -> str:
    """What it means that logs show no cause."""
    if events:
        return "The logs contain known messages, and none of them is the cause of a failure."
    return "The logs contain no message that a rule knows, and no line marked as an error."


def silent_traces(first: Claim) -> str:
    """The first of those that fell silent, as the verdict."""
    summary = all_words_of(first).summary
    is_traced = isinstance(first.about, LastHeard)
    return f"{summary} A trace shows where, not why." if is_traced else ""


def quiet_traces(lives: Lives) -> str:
    """What it means that no rank fell silent before the others."""
    first = lives.heard[0].call
    if len(lives.heard) == 1 and first.open_calls:
        who = f"Rank {first.rank}" if first.rank >= 0 else f"Process {first.pid}"
        return f"{who} {last_call(first)} last; one trace does not show whether it hangs there."
    ranks = sorted(heard.call.rank for heard in lives.heard if heard.call.rank >= 0)
    number = count_of(len(lives.heard), "process", "processes")
    quiet = "No process fell silent before the others"
    quiet = f"{quiet} ({f'ranks {fold_ranks(ranks)}' if ranks else number})"
    if any(heard.call.open_calls for heard in lives.heard):
        return f"{quiet}; calls are open, and traces do not show whether all of them hang."
    return f"{quiet}, and every traced call has ended."


def went_on(events: Sequence[LogEvent]) -> Iterator[Note]:
    """Errors after which the job went on."""
    if not events:
        return
    from unhang.logs.keeping import WENT_ON

    passed = [event for event in events if WENT_ON in event.fields]
    if passed:
        text = f"{count_of(len(passed), 'error')} after which the job counted further steps"
        yield Note("info", passed[-1].source, f"{text}; the last: {passed[-1].text[:_SHOWN]}")
