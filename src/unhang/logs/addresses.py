"""Join what one process took with what others could not reach: two observations that are a cause.

That NCCL took an interface of its host alone proves nothing, and that nobody answers at an address
proves nothing either. The same address in both, on two hosts, does. It refuses to join lines whose
hosts are not told or are the same, where the address works or its process may have ended.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import replace

from unhang.logs.keeping import WENT_ON
from unhang.logs.rules.bootstrap import REFUSED, TAKES_VIRTUAL, UNANSWERED, virtual_addresses
from unhang.logs.rules.interfaces import LOOPBACK_REFUSED, PEER_REFUSED, TAKES_LOOPBACK
from unhang.model import LogEvent

__all__ = ["UNREACHED_BY", "joined"]

UNREACHED_BY = "unreached_by"
"""Field of who took an address: where the line of another host stands that could not reach it."""

_LOOPBACK = "loopback"
_NCCL = frozenset({REFUSED.code, UNANSWERED.code})
_GLOO = frozenset({LOOPBACK_REFUSED.code, PEER_REFUSED.code})


def joined(events: Sequence[LogEvent]) -> Sequence[LogEvent]:
    """The events, where who took an address that others could not reach is the cause.

    It stands where the first of these lines does: what failed before that came before.
    """
    missed = [(address, event) for event in events for address in _missed(event)]
    if not missed:
        return events
    failed = {host_of(event) for event in events if event.role == "cause" and host_of(event)}
    took = {
        index: lines
        for index, event in enumerate(events)
        if host_of(event) not in failed and (lines := _reached_not(event, missed))
    }
    follows = {id(line) for lines in took.values() for line in lines}
    return [
        _cause(event, took[index])
        if index in took
        else replace(event, role="consequence")
        if id(event) in follows
        else event
        for index, event in enumerate(events)
    ]


def host_of(event: LogEvent) -> str:
    """The host of a line by its first label, or "" where it tells none."""
    return event.host.partition(".")[0].lower()


def _missed(event: LogEvent) -> Iterator[str]:
    """The address that nobody answered at, unless the job went on after it."""
    if event.code not in _NCCL | _GLOO or WENT_ON in event.fields:
        return
    for key, value in event.fields.items():
        if key.startswith(("peer", "address")):
            yield _loopback(value) if event.code in _GLOO else value


def _loopback(address: str) -> str:
    """What stands for any loopback address: Gloo's warning names none of them."""
    try:
        return _LOOPBACK if ipaddress.ip_address(address).is_loopback else address
    except ValueError:
        return address


def _taken(event: LogEvent) -> Iterator[str]:
    """The addresses of its host alone that a process took."""
    if event.code == TAKES_VIRTUAL.code:
        yield from virtual_addresses(event.fields.get("interfaces", ""))
    if event.code == TAKES_LOOPBACK.code:
        yield _LOOPBACK


def _reached_not(event: LogEvent, missed: Sequence[tuple[str, LogEvent]]) -> list[LogEvent]:
    """Lines of other hosts that could not reach an address that this line says it took."""
    taken, host = set(_taken(event)), host_of(event)
    if not taken or not host:
        return []
    others = (line for address, line in missed if address in taken)
    return [line for line in others if host_of(line) not in ("", host)]


def _cause(event: LogEvent, lines: Sequence[LogEvent]) -> LogEvent:
    first = min(lines, key=lambda line: line.order)
    fields = {key: value for key, value in event.fields.items() if key != "clock"}
    if "clock" in first.fields:
        fields["clock"] = first.fields["clock"]
    fields[UNREACHED_BY] = f"{first.source}: {first.text}"
    return replace(event, role="cause", time_ns=first.time_ns, order=first.order, fields=fields)
