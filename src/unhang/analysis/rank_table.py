"""The table of ranks: one status for every expected rank, as far as the evidence goes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unhang.analysis.situation import Situation
from unhang.model import State
from unhang.report import Finding, RankState, RankStatus

__all__ = ["rank_table"]

_NO_CALL = "no call in flight"
_WITHOUT_CALL: dict[bool, tuple[RankState, str]] = {
    True: ("idle", _NO_CALL),
    False: ("ok", _NO_CALL),
}
_NOT_LOOKED_AT: tuple[RankState, str] = ("unknown", "not looked at")
_WITHOUT_DUMP: dict[bool, tuple[RankState, str]] = {
    True: ("unreadable", "its dump cannot be read"),
    False: ("silent", "no dump"),
}


def rank_table(
    situation: Situation, findings: Sequence[Finding], blind: frozenset[int] = frozenset()
) -> tuple[RankStatus, ...]:
    """Give every expected rank a status; of those in `blind` the dumps show nothing."""
    culprits = {rank for f in findings if f.role == "cause" for rank in f.culprits}
    late = {rank for f in findings if f.family == "slow" for rank in f.culprits}
    stuck = any(finding.role == "cause" for finding in findings)
    waiting = {rank for finding in findings for rank in finding.victims}
    broken = {dump.rank for dump in situation.evidence.case.dumps if not dump.usable}
    failed = _failed(situation)
    hosts, ended = _hosts(situation), _ended(situation)
    labels = [situation.label(waiting_call) for waiting_call in range(len(situation.heads))]
    outdated, silent = set(situation.outdated.tolist()), situation.silent.tolist()
    cut, unvisited = situation.cut.tolist(), set(situation.evidence.case.unvisited)
    table = []
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
        table.append(
            RankStatus(
                rank=rank,
                status="culprit" if rank in culprits else status,
                detail=detail,
                head=labels[waiting_call] if waiting_call >= 0 else "",
                host=host,
                pid=pid,
                replica=replica,
            )
        )
    return tuple(table)


def _failed(situation: Situation) -> set[int]:
    """Indices of ranks whose head failed rather than waits."""
    heads = np.flatnonzero(situation.heads.row >= 0)
    state = situation.evidence.case.calls.state[situation.heads.row[heads]]
    return set(heads[state == State.FAILED].tolist())


def _ended(situation: Situation) -> dict[int, int]:
    """How ranks ended that somebody saw end, as shells say it."""
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
