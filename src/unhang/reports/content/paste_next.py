"""What one thing to paste next, from what is there and what the verdict lacks."""

from __future__ import annotations

from unhang.case import Case
from unhang.report import Report
from unhang.stacks.meaning import meaning_of
from unhang.wording import fold_ranks, rank_phrase

_STACKS = "py-spy dump --pid PID"


def paste_next(case: Case, report: Report) -> str:
    """The one thing that would settle it, or name the line; "" where nothing lacks."""
    if report.status == "healthy":
        return ""
    seen = {sample.rank for sample in case.samples}
    if report.causes and (lost := [r for r in report.causes[0].culprits if r not in seen]):
        if report.causes[0].family == "failure":
            return ""
        return f"the stack of {rank_phrase(lost[:1])} ({_STACKS}), at the hang"
    if report.status != "insufficient":
        return ""
    return _of_stacks(case) if case.samples else _of_logs(case)


def _of_stacks(case: Case) -> str:
    """What to paste with stacks that do not settle it."""
    kinds = {meaning_of(sample).kind for sample in case.samples}
    roles = {sample.role for sample in case.samples}
    if kinds == {"unknown"}:
        return f"the main thread's stack too ({_STACKS}, or gdb's `thread apply all bt`)"
    if roles == {"engine"}:
        return f"the stacks of the engine's workers ({_STACKS} for each)"
    if len(case.samples) == 1:
        return f"the stacks of its peers ({_STACKS} for each, with a line `rank N` above)"
    if ranks := {sample.rank for sample in case.samples if sample.rank >= 0}:
        return f"the stacks of all ranks but {fold_ranks(ranks)}, or what ncclras prints"
    return f"a line `rank N` above each stack, and the stacks of the other ranks ({_STACKS})"


def _of_logs(case: Case) -> str:
    """What to paste with a log that does not settle it."""
    if case.logs_recognised is False:
        return f"the last 200 lines of the job's log, or stacks ({_STACKS}) of every rank"
    if job_ended(case):
        return "the logs of all ranks, from their first error on"
    return f"the stacks of every rank during the hang ({_STACKS} for each)"


def job_ended(case: Case) -> bool:
    """Whether its logs show what follows from a failure: no process is left to look at."""
    return any(event.role == "consequence" for event in case.log_events)
