"""Join what one process took with what others could not reach: two observations that are a cause.

That NCCL took an interface of its host alone proves nothing, and that no process answers at an
address proves nothing either. The same address in both, on two hosts, does. It refuses to join
lines whose hosts are not told or are the same, where the address works or its process may have
ended.
"""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from unhang.logs.keeping import WENT_ON
from unhang.logs.rules.known import (
    LOOPBACK_REFUSED,
    PEER_REFUSED,
    REFUSED,
    TAKES_LOOPBACK,
    TAKES_VIRTUAL,
    UNANSWERED,
)
from unhang.model import LogEvent

UNREACHED_BY = "unreached_by"
"""Field of who took an address: where the line of another host stands that could not reach it."""

VIRTUAL = (
    r"\b(?:veth\w+|docker\d+|br-\w+|virbr\d+|cni\d+|lxcbr\d+|lo(?=:127\.)|[\w.-]+(?=:169\.254\.))"
)
"""An interface of one host alone; the rule that an event is of has the same words."""

_LOOPBACK = "loopback"
_ENOUGH = 2
_NCCL = frozenset({REFUSED.code, UNANSWERED.code})
_GLOO = frozenset({LOOPBACK_REFUSED.code, PEER_REFUSED.code})


def joined(events: Sequence[LogEvent]) -> Sequence[LogEvent]:
    """The events, where who took an address that others could not reach is the cause.

    It stands where the first of these lines does: what failed before that came before.
    """
    missed = _first_missed(events)
    if not missed:
        return events
    out = {"", *(host_of(event) for event in events if event.role == "cause")}
    took: dict[int, LogEvent] = {}
    takers: dict[str, set[str]] = defaultdict(set)
    for index, event in enumerate(events):
        for address in _taken(event) if host_of(event) not in out else ():
            line = _of_another(missed.get(address, ()), host_of(event))
            if line is not None:
                took[index] = min(line, took.get(index, line), key=lambda each: each.order)
                takers[address].add(host_of(event))
    return [
        _cause(event, took[index]) if index in took else _following(event, takers)
        for index, event in enumerate(events)
    ]


def _first_missed(events: Sequence[LogEvent]) -> dict[str, list[LogEvent]]:
    """By address the first lines of two hosts that could not reach it: one is not who took it."""
    found: dict[str, list[LogEvent]] = defaultdict(list)
    for event in events:
        for address in _missed(event) if host_of(event) else ():
            lines = found[address]
            if len(lines) < _ENOUGH and host_of(event) not in map(host_of, lines):
                lines.append(event)
    return found


def _of_another(lines: Sequence[LogEvent], host: str) -> LogEvent | None:
    return next((line for line in lines if host_of(line) != host), None)


def _following(event: LogEvent, takers: Mapping[str, AbstractSet[str]]) -> LogEvent:
    """A line about an address that a process of another host took follows from that."""
    host = host_of(event)
    took = (takers[address] for address in _missed(event) if address in takers)
    others = any(len(hosts) > 1 or host not in hosts for hosts in took)
    return replace(event, role="consequence") if host and others else event


def host_of(event: LogEvent) -> str:
    """The host of a line by its first label, or "" where it tells none."""
    return event.host.partition(".")[0].lower()


def _missed(event: LogEvent) -> Iterator[str]:
    """The address that gave no answer, unless the job went on after it."""
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


def virtual_addresses(interfaces: str) -> Iterator[str]:
    """Of the interfaces that NCCL took, the addresses of those that are of one host alone."""
    for found in re.finditer(VIRTUAL + r":([0-9a-fA-F.:]+)", interfaces[:4_000]):
        yield found[1]


def _cause(event: LogEvent, line: LogEvent) -> LogEvent:
    """Who took an address, as the cause of a line of another host."""
    fields = {key: value for key, value in event.fields.items() if key != "clock"}
    if "clock" in line.fields:
        fields["clock"] = line.fields["clock"]
    fields[UNREACHED_BY] = f"{line.source}: {line.text}"
    return replace(event, role="cause", time_ns=line.time_ns, order=line.order, fields=fields)
