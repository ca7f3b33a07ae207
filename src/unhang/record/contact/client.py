"""Asking an armed process, from outside: over its trigger socket, and over torch's worker server.

The trigger socket is served by Python, so it is silent while a thread holds the GIL and while the
process is stopped; the worker server is C++ and answers in the first of the two. Every question has
a time limit. The process at the other end must be of this user (or root).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Final

from unhang.record.contact import sockets

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
MAX_HTTP_BYTES: Final = 256 * 1024 * 1024


class AskError(OSError):
    """The process did not answer, or not as expected."""


class RefusedError(AskError):
    """It did answer, and says no: it has no such handler, or the handler failed."""


def ask(path: str, request: dict[str, Any], timeout_s: float) -> Iterator[dict[str, Any]]:
    """Send one request to a trigger socket; yields each reply as it comes.

    Args:
        path: `Mark.socket`.
        request: See docs/recorder.md.
        timeout_s: For the whole conversation.

    Raises:
        AskError: No process listens, another one does, or the answer is late or no answer.
    """
    deadline = monotonic() + timeout_s
    with _connected(path, timeout_s) as connection:
        _send(connection, json.dumps(request).encode() + b"\n")
        data = b""
        while True:
            connection.settimeout(max(0.001, deadline - monotonic()))
            chunk = _receive(connection, path)
            if not chunk:
                return
            data += chunk
            *lines, data = data.split(b"\n")
            for line in lines:
                yield _parsed(line, path)
            if len(data) > MAX_LINE_BYTES:
                raise AskError(f"{path}: an answer without end")


def request_dump(
    path: str,
    *,
    reason: str,
    timeout_s: float,
    incident: str = "",
    directory: Path | None = None,
    stacks: bool = True,
) -> Iterator[dict[str, Any]]:
    """Ask a process for its dumps; yields the reply of each stage ("entries", then "stacks").

    Raises:
        AskError: See `ask`.
    """
    request: dict[str, Any] = {"do": "dump", "reason": reason, "stacks": stacks}
    if incident:
        request["incident"] = incident
    if directory is not None:
        request["dir"] = str(directory.absolute())
    return ask(path, request, timeout_s)


def ask_worker(path: str, handler: str, timeout_s: float, pid: int = 0) -> bytes:
    """Call a handler of torch's worker server ("ping", "fr_trace_json", "wait_counter_values").

    Args:
        path: `Mark.worker_socket`.
        handler: Name of the handler, with parameters as in a URL.
        timeout_s: For the whole conversation.
        pid: Which process must be serving; 0 for any of this user. Ranks that were given one path
            all name it, and one of them serves.

    Returns:
        The body of the answer.

    Raises:
        AskError: No answer in time.
        RefusedError: One that is not "200 OK".
    """
    deadline = monotonic() + timeout_s
    question = (
        f"POST /handler/{handler} HTTP/1.1\r\nHost: unhang\r\nConnection: close\r\n"
        "Content-Length: 0\r\n\r\n"
    )
    data = bytearray()
    with _connected(path, timeout_s) as connection:
        if pid and sockets.peer_pid(connection) != pid:
            raise AskError(f"{path} is served by another process")
        _send(connection, question.encode())
        while len(data) <= MAX_HTTP_BYTES:
            connection.settimeout(max(0.001, deadline - monotonic()))
            chunk = _receive(connection, path)
            if not chunk:
                break
            data += chunk
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split()
    if status[1:2] != [b"200"]:
        raise RefusedError(f"{path}: {handler}: {head[:100].decode('utf-8', 'replace')!r}")
    return body


def _connected(path: str, timeout_s: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    connection.settimeout(timeout_s)
    try:
        with sockets.short(Path(path)) as name:
            connection.connect(name)
        if sockets.peer_uid(connection) not in (0, os.geteuid()):
            raise AskError(f"{path} belongs to another user")
    except OSError as error:
        connection.close()
        if isinstance(error, AskError):
            raise
        raise AskError(f"{path}: {error.strerror or error}") from error
    return connection


def _send(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
    except OSError as error:
        raise AskError(f"not sent: {error}") from error


def _receive(connection: socket.socket, path: str) -> bytes:
    try:
        return connection.recv(65536)
    except TimeoutError:
        raise AskError(f"{path}: no answer in time") from None
    except OSError as error:
        raise AskError(f"{path}: {error}") from error


def _parsed(line: bytes, path: str) -> dict[str, Any]:
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict):
        raise AskError(f"{path}: no JSON: {line[:80]!r}")
    return reply
