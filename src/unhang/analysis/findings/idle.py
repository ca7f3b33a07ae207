"""When nothing waits for anybody: idle, healthy, or not enough to tell.

Idle is said only where a call that hangs would have been seen. Torch's own recorder does not see
sends, receives and monitored barriers on Gloo, not even that they were called: its dumps of a
deadlock among them are those of a job that has finished.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unhang.analysis.situation import Picture
from unhang.analysis.words import ACTIONS
from unhang.report import Finding
from unhang.wording import count_of, rank_phrase

__all__ = ["quiet_findings"]

_STACKS = "Look at the stacks of all ranks: unhang stacks."
_ACTIONS_ON_GLOO = (
    "Start the job with unhang run, which records sends and receives on Gloo as well.",
    _STACKS,
)


def quiet_findings(picture: Picture) -> list[Finding]:
    """Say what a case means in which nothing was found."""
    silent = picture.named(np.flatnonzero(picture.silent))
    if picture.silent.all():
        return [_insufficient("Not enough evidence: there is no usable dump.", silent)]
    if text := _nothing_recorded(picture):
        return [_insufficient(text, silent)]
    inside = picture.heads.unit >= 0
    ages = picture.waited_ns[inside]
    if inside.any() and (ages >= 0).all():
        return [_moving(int(ages.max()))]
    if inside.any():
        waiting = picture.named(np.flatnonzero(picture.heads.unit >= 0))
        verb = "waits" if len(waiting) == 1 else "wait"
        text = f"Not enough evidence: {rank_phrase(waiting)} {verb}, and nothing shows for whom."
        if (ages >= 0).any():
            began = picture.named(np.flatnonzero(inside)[ages >= 0])
            text = (
                f"Not enough evidence: {rank_phrase(waiting)} {verb}, and {rank_phrase(began)} had "
                "only just begun to when dumped: the job may be moving."
            )
        return [_insufficient(text, silent)]
    if text := _not_shown(picture):
        return [_insufficient(text, silent)]
    return [_blind(picture) if _sees_no_exchanges(picture) else _idle(picture)]


def _not_shown(picture: Picture) -> str:
    """Whose calls in flight nobody would have seen; "" if all are shown."""
    if picture.silent.any():
        silent = rank_phrase(picture.named(np.flatnonzero(picture.silent)))
        return (
            "Not enough evidence: no call is in flight on the ranks that left a dump, and "
            f"{silent} left none."
        )
    if picture.cut.any():  # the newest calls come last in a dump
        cut = picture.named(np.flatnonzero(picture.cut))
        whose = "the dump of {} was" if len(cut) == 1 else "the dumps of {} were"
        return (
            "Not enough evidence: no call is in flight as far as the dumps show, and "
            f"{whose.format(rank_phrase(cut))} cut short: what was called last is lost."
        )
    return ""


def _nothing_recorded(picture: Picture) -> str:
    """Why dumps without entries are no sign of health; "" if they are."""
    status, case = picture.evidence.case.group_status, picture.evidence.case
    if not len(case.calls) and not (status.last_enqueued >= 0).any():
        return "Not enough evidence: the dumps hold no call and no counter."
    empty = [dump.index for dump in picture.evidence.dumps if dump.start == dump.stop]
    ahead = np.isin(status.dump, empty) & (status.last_enqueued > status.last_completed)
    if (picture.heads.unit < 0).all() and ahead.any():
        return (
            "Not enough evidence: counters show calls in flight, and the dumps hold no entries: "
            "the recorder had no room for any."
        )
    return ""


def _sees_no_exchanges(picture: Picture) -> bool:
    """Whether all that was recorded is what torch's own recorder sees on Gloo."""
    dumps = [dump for dump in picture.evidence.dumps if dump.start < dump.stop]
    return bool(dumps) and all(d.backend == "gloo" and d.reported_by == "torch" for d in dumps)


def _blind(picture: Picture) -> Finding:
    """Collectives are finished; what else may hang, this recorder does not see."""
    text = (
        "Not enough evidence: no collective is in flight, and on Gloo torch records no send, "
        "receive or monitored_barrier: one of them may hang."
    )
    return replace(
        _insufficient(text, ()), evidence=(_all_finished(picture),), actions=_ACTIONS_ON_GLOO
    )


def _insufficient(summary: str, silent: tuple[int, ...]) -> Finding:
    evidence = (f"No usable dump of {rank_phrase(silent)}.",) if silent else ()
    return Finding(
        id="",
        code="UH901",
        role="observation",
        confidence="low",
        summary=summary,
        evidence=evidence,
        actions=ACTIONS["UH901"],
    )


def _moving(oldest_ns: int) -> Finding:
    return Finding(
        id="",
        code="UH601",
        role="observation",
        confidence="medium",
        summary=(
            "Calls are in flight and none of them is stuck: the oldest had been waiting for "
            f"{oldest_ns / 1e9:.2f} s when its dump was made."
        ),
        evidence=("The dumps say when they were made.",),
        alternatives=("The job may have stopped just before the dumps were made.",),
        actions=("Dump again some time later, and compare: unhang dump.",),
    )


def _idle(picture: Picture) -> Finding:
    return Finding(
        id="",
        code="UH601",
        role="observation",
        confidence="high" if len(picture.evidence.case.calls) else "low",
        summary="No call is in flight anywhere: the job is idle in communication, or finished.",
        evidence=(_all_finished(picture),),
        alternatives=(
            "The program may be stuck outside communication, in which case dumps cannot show it.",
        ),
        actions=(_STACKS,),
    )


def _all_finished(picture: Picture) -> str:
    calls = count_of(len(picture.evidence.case.calls), "recorded call")
    ranks = count_of(len(np.unique(picture.evidence.owner)), "rank")
    return f"All {calls} of {ranks} are finished."
