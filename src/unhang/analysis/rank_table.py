"""The table of ranks: one status for every expected rank, as far as the evidence goes.

Where there are dumps, their calls tell; else where ranks stand, or were last heard of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from unhang.analysis.lives.life import Lives, RankLife
from unhang.analysis.rules.last_traced_call import last_call, stack_id
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.shared.situation import Situation
from unhang.analysis.sources.stacks import RankLook
from unhang.model import AskedState, State
from unhang.report import Finding, RankState, RankStatus

_NO_CALL = "no call in flight"
_WITHOUT_CALL: dict[bool, tuple[RankState, str]] = {
    True: ("idle", _NO_CALL),
    False: ("ok", _NO_CALL),
}
_NOT_LOOKED_AT: tuple[RankState, str] = ("unknown", "not looked at")
_UNSEEN: Final = frozenset({"", _NOT_LOOKED_AT[1]})
_OF_NODE: Final[dict[AskedState, str]] = {
    "answered": _NOT_LOOKED_AT[1],
    "not-reached": "its node was not reached",
    "late": "its node had given nothing yet",
}
_WITHOUT_DUMP: dict[bool, tuple[RankState, str]] = {
    True: ("unreadable", "its dump cannot be read"),
    False: ("silent", "no dump"),
}


def rank_table(
    lives: Lives,
    book: StackBook,
    situation: Situation | None,
    findings: Sequence[Finding],
    blind: Collection[int] = (),
) -> tuple[RankStatus, ...]:
    """Give every expected rank a status.

    Args:
        lives: Of the ranks, where there are no dumps.
        book: Takes the stacks that are referred to.
        situation: What dumps show; None where there are none.
        findings: In the order of the report.
        blind: Ranks that the dumps show nothing about.
    """
    causes = [finding for finding in findings if finding.role == "cause"]
    culprits = {rank for finding in causes for rank in finding.culprits}
    if situation is None:
        rows = _by_looks(lives, book, stuck=bool(causes))
    else:
        rows = _by_calls(situation, findings, blind)
    rows = _with_nodes(rows, lives)
    return tuple(replace(row, status="culprit") if row.rank in culprits else row for row in rows)


def _with_nodes(rows: Iterable[RankStatus], lives: Lives) -> Iterator[RankStatus]:
    """Each with its node, and what became of that where nothing came of it."""
    says = {rank: _OF_NODE[node.state] for node in lives.asked for rank in node.ranks}
    for row in rows:
        unseen = row.detail in _UNSEEN and row.status == "unknown"
        detail = says.get(row.rank, row.detail) if unseen else row.detail
        host = row.host or lives.nodes.host_of.get(row.rank, "")
        same = (host, detail) == (row.host, row.detail)
        yield row if same else replace(row, host=host, detail=detail)


def _by_calls(
    situation: Situation, findings: Sequence[Finding], blind: Collection[int]
) -> Iterator[RankStatus]:
    """What dumps show of each rank."""
    late = {rank for f in findings if f.family == "slow" for rank in f.culprits}
    stuck = any(finding.role == "cause" for finding in findings)
    waiting = {rank for finding in findings for rank in finding.victims}
    broken = {dump.rank for dump in situation.evidence.case.dumps if not dump.usable}
    failed = _failed(situation)
    hosts, ended = _hosts(situation), _ended(situation)
    labels = [situation.label(waiting_call) for waiting_call in range(len(situation.heads))]
    outdated, silent = set(situation.outdated.tolist()), situation.silent.tolist()
    cut, unvisited = situation.cut.tolist(), set(situation.evidence.case.unvisited)
    for index, (rank, waiting_call) in enumerate(
        zip(
            situation.evidence.ranks.numbers.tolist(),
            situation.heads.waiting_call.tolist(),
            strict=True,
        )
    ):
        status, detail = _WITHOUT_CALL[stuck]
        if silent[index]:
            status, detail = _WITHOUT_DUMP[rank in broken]
            if rank in unvisited and rank not in broken:
                status, detail = _NOT_LOOKED_AT
            detail += f", ended with exit code {ended[rank]}" if rank in ended else ""
        elif rank in blind:
            status, detail = "unknown", "its recorder holds nothing of its calls"
        elif index in outdated:
            status, detail = "unknown", "its dump is older than its peers'"
        elif waiting_call >= 0:
            status = "waiting" if stuck or rank in waiting else "unknown"
            detail = "call failed" if index in failed else ""
        elif rank in late:
            status = "behind"
        elif cut[index]:
            status, detail = "unknown", "its dump was cut short"
        host, pid, replica = hosts.get(rank, ("", None, ""))
        yield RankStatus(
            rank=rank,
            status=status,
            detail=detail,
            head=labels[waiting_call] if waiting_call >= 0 else "",
            host=host,
            pid=pid,
            replica=replica,
        )


def _by_looks(lives: Lives, book: StackBook, *, stuck: bool) -> Iterator[RankStatus]:
    """What stacks, ends and traces show of each rank."""
    looked = any(life.look for life in lives.ranks.values())
    for rank, life in lives.ranks.items():
        detail, pid, stack = _detail(life, book, looked=looked)
        host = life.look.host if life.look else ""
        status = _state(life.look, stuck=stuck)
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


def _failed(situation: Situation) -> set[int]:
    """Indices of ranks whose head failed rather than waits."""
    heads = np.flatnonzero(situation.heads.row >= 0)
    state = situation.evidence.case.calls.state[situation.heads.row[heads]]
    return set(heads[state == State.FAILED].tolist())


def _ended(situation: Situation) -> dict[int, int]:
    """The exit statuses of ranks whose end was seen, as shells give them."""
    samples = (s for s in situation.evidence.case.samples if s.rank >= 0 and s.role == "rank")
    return {s.rank: s.exit_status for s in samples if s.exit_status is not None}


def _hosts(situation: Situation) -> dict[int, tuple[str, int | None, str]]:
    known: dict[int, tuple[str, int | None, str]] = {}
    for sample in situation.evidence.case.samples:
        if sample.rank >= 0 and sample.role == "rank":
            known[sample.rank] = (sample.host, sample.pid if sample.pid > 0 else None, "")
    for dump in situation.evidence.case.dumps:
        if dump.host or dump.pid > 0 or dump.replica:
            host, pid, replica = known.get(dump.rank, ("", None, ""))
            known[dump.rank] = (
                dump.host or host,
                dump.pid if dump.pid > 0 else pid,
                dump.replica or replica,
            )
    return known
