"""Whose line it is, where a log names a process, a host, or only a rank on its node; and when.

Dumps and stacks know which process and host a rank has. What they do not settle stays without a
rank: a line given to the wrong rank would accuse an innocent rank. A failure after which its rank
went on making calls did not stop it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from unhang.analysis.sources.nodes import RankProcess
from unhang.case import Case
from unhang.model import UNKNOWN_RANK, LogEvent

_SLACK_NS = 60 * 10**9
"""Hosts' clocks differ, and a thread may go on for a while."""
_ZONES_NS = 27 * 3600 * 10**9
"""A stamp without its zone may be so far off, and the slack."""


def placed(case: Case, processes: Sequence[RankProcess]) -> tuple[LogEvent, ...]:
    """The log events of a case, each with the rank that it is known to belong to.

    Args:
        case: For its events, and for when ranks made their last calls.
        processes: Of ranks, as dumps and stacks know them.
    """
    if not case.log_events:
        return ()
    by_pid: dict[int, set[tuple[str, int]]] = defaultdict(set)
    by_host: dict[str, set[int]] = defaultdict(set)
    for process in processes:
        by_pid[process.pid].add((_short(process.host), process.rank))
        by_host[_short(process.host)].add(process.rank)
    one_node = _one_node(case, by_host)
    last = _last_calls(case)
    found = (_placed(e, processes, by_pid, by_host, one_node=one_node) for e in case.log_events)
    return tuple(_survived(event, last.get(event.rank, 0)) for event in found)


def _last_calls(case: Case) -> dict[int, int]:
    """When each rank began its last recorded call, wall clock of its host in ns."""
    last = np.zeros(int(case.calls.rank.max(initial=-1)) + 1, np.int64)
    np.maximum.at(last, case.calls.rank, case.calls.created_ns)
    return dict(enumerate(last.tolist()))


def _survived(event: LogEvent, last_ns: int) -> LogEvent:
    """A cause after which its rank went on is none: it is kept as something to know."""
    slack = _SLACK_NS if event.fields.get("clock") == "utc" else _ZONES_NS
    after = last_ns - event.time_ns
    if event.role != "cause" or not event.time_ns or after < slack:
        return event
    text = f"(it went on making calls for {after / 1e9:,.0f} s after this) {event.text}"
    return replace(event, role="hint", text=text)


def _short(host: str) -> str:
    return host.partition(".")[0].lower()


def _one_node(case: Case, by_host: dict[str, set[int]]) -> bool:
    """Whether ranks on a node and global ranks are the same, since there is one node only.

    Nodes hold equal numbers of ranks, so a second one needs as many as are known of the first.
    """
    if len(by_host.keys() - {""}) > 1:
        return False
    local = {e.rank for e in case.log_events if e.fields.get("rank_is") == "local"}
    return bool(local) and 2 * (max(local) + 1) > len(case.expected_ranks)


def _placed(
    event: LogEvent,
    processes: Iterable[RankProcess],
    by_pid: dict[int, set[tuple[str, int]]],
    by_host: dict[str, set[int]],
    *,
    one_node: bool,
) -> LogEvent:
    host = _short(event.host)
    if event.fields.get("rank_is") == "local":
        if one_node:
            return event
        fitting = {
            p.rank
            for p in processes
            if p.local_rank == event.rank and (not host or _short(p.host) == host)
        }
        return _given(event, fitting)
    if event.rank >= 0:
        return event
    pid = next((v for k, v in event.fields.items() if k.startswith("pid") and v.isdigit()), "")
    if pid:
        known = by_pid.get(int(pid), set())
        return _given(event, {rank for where, rank in known if not host or where in ("", host)})
    return _given(event, by_host.get(host, set()) if host else set())


def _given(event: LogEvent, ranks: set[int]) -> LogEvent:
    """The event with its rank, if there is one that it can be."""
    return replace(event, rank=next(iter(ranks)) if len(ranks) == 1 else UNKNOWN_RANK)
