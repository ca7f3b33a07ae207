"""What a report tells beside its claims where there are no dumps, and where nothing was found.

Without dumps no call and no group is known: ranks are those that stacks, logs and traces name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from unhang.analysis.claims import Claim
from unhang.analysis.judgement import Backdrop, status_of
from unhang.analysis.lives.fallen_silent import stack_id
from unhang.analysis.lives.life import Lives, RankLife
from unhang.analysis.sites import StackBook
from unhang.analysis.sources.stacks import RankLook
from unhang.analysis.words import quiet
from unhang.analysis.words.traces import last_call
from unhang.case import Case
from unhang.report import Finding, Incident, Job, RankState, RankStatus, Status

__all__ = ["backdrop_without_dumps", "nothing_found"]


def backdrop_without_dumps(case: Case, lives: Lives, book: StackBook) -> Backdrop:
    """Job, incident, ranks and stacks as stacks, logs and traces tell of them."""
    return Backdrop(
        job=Job(
            world_size=max(lives.world_size, len(lives.ranks)),
            ranks_seen=sum(life.is_seen for life in lives.ranks.values()),
        ),
        incident=Incident(id=case.incident, newest_ns=case.newest_ns),
        table=partial(_table, lives, book),
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


def _table(lives: Lives, book: StackBook, findings: Sequence[Finding]) -> Iterator[RankStatus]:
    causes = [finding for finding in findings if finding.role == "cause"]
    culprits = {rank for finding in causes for rank in finding.culprits}
    looked = any(life.look for life in lives.ranks.values())
    for rank, life in lives.ranks.items():
        detail, pid, stack = _detail(life, book, looked=looked)
        status: RankState = "culprit" if rank in culprits else _state(life.look, stuck=bool(causes))
        host = life.look.host if life.look else ""
        yield RankStatus(rank, status, detail, host=host, pid=pid, stack_id=stack)


def _detail(life: RankLife, book: StackBook, *, looked: bool) -> tuple[str, int | None, str]:
    """What a rank does in words, its process, and where its stack is."""
    if life.look is not None:
        look = life.look
        ended = (
            f"ended with exit code {look.sample.exit_status}"
            if look.sample.exit_status is not None
            else ""
        )
        pid = look.pid if look.pid > 0 else None
        return ended or look.meaning.says, pid, book.refer(look.frames)
    if life.heard is not None:
        return last_call(life.heard.call), life.heard.call.pid, stack_id(life.heard)
    return "not looked at" if looked else "", None, ""


def _state(look: RankLook | None, *, stuck: bool) -> RankState:
    if look is None or look.unseen:
        return "unknown"
    if look.waits or look.may_wait:
        return "waiting" if stuck else "ok"
    return "idle" if stuck else "ok"
