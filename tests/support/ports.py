"""Ports for what tests start: below those that the kernel chooses, and each test worker's own.

A port that the kernel gave for a moment may be another test's before the program binds it.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator

_FIRST, _EACH = 20_000, 1_500
"""The kernel chooses from 32,768 on; eight workers have room below."""


def _own() -> Iterator[int]:
    """This worker's ports, again and again, from one on that depends on the process."""
    worker = re.search(r"\d+", os.environ.get("PYTEST_XDIST_WORKER", ""))
    first = _FIRST + _EACH * (int(worker[0]) % 8 if worker else 0)
    at = os.getpid() * 7
    while True:
        yield first + at % _EACH
        at += 1


_PORTS = _own()


def free_ports(number: int) -> list[int]:
    """So many ports that no program listens on."""
    found: list[int] = []
    while len(found) < number:
        port = next(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]
