"""The table of ranks: one status for every expected rank, as far as the evidence goes."""

from __future__ import annotations

from collections.abc import Sequence

from unhang.analysis.picture import Picture
from unhang.report import Finding, RankState, RankStatus

__all__ = ["rank_table"]


def rank_table(picture: Picture, findings: Sequence[Finding]) -> tuple[RankStatus, ...]:
    """Give every expected rank a status."""
    causes = [finding for finding in findings if finding.role == "cause"]
    culprits = {rank for finding in causes for rank in finding.culprits}
    waiting = {rank for finding in findings for rank in finding.victims}
    hosts = _hosts(picture)
    slow = {rank for f in findings if f.code == "UH501" for rank in f.culprits}
    labels = [picture.label(unit) for unit in range(len(picture.heads))]
    table = []
    for dense, rank in enumerate(picture.evidence.ranks.numbers.tolist()):
        unit = int(picture.heads.unit[dense])
        status = _status(picture, dense, waits=rank in waiting, stuck=bool(causes))
        if rank in culprits:
            status = "culprit"
        elif rank in slow and status == "ok":
            status = "behind"
        host, pid, replica = hosts.get(rank, ("", None, ""))
        table.append(
            RankStatus(
                rank=rank,
                status=status,
                detail=_detail(picture, dense, status),
                head=labels[unit] if unit >= 0 else "",
                host=host,
                pid=pid,
                replica=replica,
            )
        )
    return tuple(table)


def _hosts(picture: Picture) -> dict[int, tuple[str, int | None, str]]:
    known: dict[int, tuple[str, int | None, str]] = {}
    for sample in picture.evidence.case.samples:
        if sample.rank >= 0 and sample.role == "rank":
            known[sample.rank] = (sample.host, sample.pid if sample.pid > 0 else None, "")
    for dump in picture.evidence.case.dumps:
        if dump.host or dump.pid > 0 or dump.replica:
            host, pid, replica = known.get(dump.rank, ("", None, ""))
            known[dump.rank] = (
                dump.host or host,
                dump.pid if dump.pid > 0 else pid,
                dump.replica or replica,
            )
    return known


def _status(picture: Picture, dense: int, *, waits: bool, stuck: bool) -> RankState:
    """Status of a rank that is not blamed.

    Args:
        picture: The situation.
        dense: The rank.
        waits: It is a victim of some finding.
        stuck: Somebody is to blame for something.
    """
    if picture.silent[dense]:
        return _without_dump(picture, int(picture.evidence.ranks.numbers[dense]))
    if dense in picture.outdated:
        return "unknown"
    if picture.heads.unit[dense] >= 0:
        return "waiting" if waits or stuck else "unknown"
    return "idle" if stuck else "ok"


def _without_dump(picture: Picture, rank: int) -> RankState:
    broken = any(dump.rank == rank for dump in picture.evidence.case.dumps)
    return "unreadable" if broken else "silent"


def _detail(picture: Picture, dense: int, status: RankState) -> str:
    if status == "silent":
        return "no dump"
    if status == "unreadable":
        return "its dump cannot be read"
    if dense in picture.outdated:
        return "its dump is older than its peers'"
    if picture.heads.unit[dense] < 0:
        return "no call in flight"
    row = int(picture.heads.row[dense])
    state = int(picture.evidence.case.calls.state[row])
    return "call failed" if state == 3 else ""  # noqa: PLR2004 - State.FAILED
