"""What a report tells beside its claims where there are no dumps, and where nothing was found.

Without dumps no call and no group is known: ranks are those that stacks, logs and traces name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from unhang.analysis.claims import Claim
from unhang.analysis.judgement import Backdrop, status_of
from unhang.analysis.lives.life import Lives
from unhang.analysis.rank_table import rank_table
from unhang.analysis.sites import StackBook
from unhang.analysis.words import quiet
from unhang.case import Case
from unhang.report import Incident, Job, Status

__all__ = ["backdrop_without_dumps", "nothing_found"]


def backdrop_without_dumps(case: Case, lives: Lives, book: StackBook) -> Backdrop:
    """Job, incident, ranks and stacks as stacks, logs and traces tell of them."""
    return Backdrop(
        job=Job(
            world_size=max(lives.world_size, len(lives.ranks)),
            ranks_seen=sum(life.is_seen for life in lives.ranks.values()),
        ),
        incident=Incident(id=case.incident, newest_ns=case.newest_ns),
        table=partial(rank_table, lives, book, None),
        stacks=book.used,
        notes=(*case.notes, *quiet.went_on(lives.said.events)),
    )


def nothing_found(case: Case, lives: Lives, claims: Sequence[Claim]) -> tuple[Status, str]:
    """Status of a case without dumps or stacks, and its one sentence where no claim has it.

    "healthy" means that this is the log of a job that did some work, in which nothing marks itself
    as an error, or the job went on after it, and that all could be read; or that every traced call
    has ended.
    """
    status = status_of(claims)
    if status == "insufficient":
        return status, quiet.silent_traces(claims[0])
    if status != "healthy":
        return status, ""
    if any(heard.call.open_calls for heard in lives.heard):
        return "insufficient", quiet.quiet_traces(lives)
    if lives.said.events or case.logs_recognised is not None:
        return _quiet_logs(case, lives)
    if lives.heard:
        return status, quiet.quiet_traces(lives)
    return "insufficient", quiet.ONLY_TOLD


def _quiet_logs(case: Case, lives: Lives) -> tuple[Status, str]:
    unread = next((note for note in case.notes if note.level == "error"), None)
    if unread is not None:
        return "insufficient", quiet.lost(unread)
    if case.logs_recognised is False:
        return "insufficient", quiet.STRANGE
    if not case.logs_got_on:
        return "insufficient", quiet.A_START
    return "healthy", quiet.quiet_logs(lives.said.events)
