"""Asking NCCL's RAS: one question to the process that listens, and whose job it speaks of.

It travels to nodes, so it is small and reads nothing of the answer but the numbers of processes.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from unhang.activity.peers import sockets_of

DEFAULT_ADDRESS = "localhost:28028"
"""Where NCCL listens unless NCCL_RAS_ADDR says otherwise."""

_MOST_BYTES = 64 << 20
_CHUNK = 1 << 16
_NAMED = re.compile(r'(?:[Pp]rocess|"pid":) *([0-9]{1,9})\b')
_IN_INCIDENT_S = 12.0
"""So long an incident waits for it, next to the stacks of all ranks."""


def ask(address: str = DEFAULT_ADDRESS, *, limit_s: float = 30.0) -> str:
    """Ask a process of the job: JSON where it knows that, text otherwise.

    Args:
        address: Host and port, as in NCCL_RAS_ADDR.
        limit_s: For all of it. NCCL waits 10 s itself where a peer is dead.

    Raises:
        OSError: No process answers there, or not in time.
        ValueError: The address is none, or something else answers.
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        host, port = address, DEFAULT_ADDRESS.rpartition(":")[2]
    until = time.monotonic() + limit_s
    with socket.create_connection((host.strip("[]"), int(port)), timeout=limit_s) as line:
        if not _say(line, "CLIENT PROTOCOL 2", until).startswith("SERVER PROTOCOL"):
            raise ValueError("that is not NCCL's RAS")
        _say(line, "SET FORMAT json", until)  # refused before 2.28.7: then it is text
        line.sendall(b"VERBOSE STATUS\n")
        return _all_of(line, until)


def ask_about(pids: Collection[int], address: str = "") -> str:
    """What the RAS of this machine tells of a job, by some of its processes.

    What answers belongs to another job where none of these processes listens there and none is
    named: the text names only those who differ, who may be on other machines.

    Args:
        pids: Processes of the job on this machine.
        address: Where it is, as in NCCL_RAS_ADDR; "" for what that says here, or NCCL's own port.

    Returns:
        The answer; "" where no process answers, not in time, or for others only.
    """
    address = address or os.environ.get("NCCL_RAS_ADDR") or DEFAULT_ADDRESS
    try:
        answer = ask(address, limit_s=_IN_INCIDENT_S)
    except (OSError, ValueError):
        return ""
    named = {int(pid) for pid in _NAMED.findall(answer)}
    return answer if named & set(pids) or _listens(pids, address) else ""


def _listens(pids: Iterable[int], address: str) -> bool:
    """Whether one of these processes listens at the port of an address, on this machine."""
    port = address.rpartition(":")[2]
    wanted = f":{int(port):04X}" if port.isdigit() else "-"
    sockets = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            rows = Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]
            words = (row.split() for row in rows)
            sockets |= {w[9] for w in words if w[1].endswith(wanted) and w[3] == "0A"}
    return bool(sockets) and any(inode in sockets for pid in pids for _, inode in sockets_of(pid))


def _say(line: socket.socket, what: str, until: float) -> str:
    """Say one line, and hear one."""
    line.sendall(what.encode() + b"\n")
    heard = b""
    while not heard.endswith(b"\n") and len(heard) < _CHUNK:
        line.settimeout(max(until - time.monotonic(), 0.01))
        piece = line.recv(1)
        if not piece:
            break
        heard += piece
    return heard.decode("utf-8", "replace").strip()


def _all_of(line: socket.socket, until: float) -> str:
    heard = bytearray()
    while len(heard) < _MOST_BYTES:
        line.settimeout(max(until - time.monotonic(), 0.01))
        piece = line.recv(_CHUNK)
        if not piece:
            break
        heard += piece
    return heard.decode("utf-8", "replace")
