"""A process that answers as NCCL's RAS does, by what its sources say of each version."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

VERSIONS = {
    "2.24.3": (False, False),
    "2.25.1": (False, False),
    "2.26.2": (True, False),
    "2.27.7": (True, False),
    "2.28.3": (True, False),
    "2.28.9": (True, True),
    "2.29.2": (True, True),
}
"""Releases of NCCL: whether calls are counted by operation, and whether JSON is known."""


@contextmanager
def emulator(answer: str, *, knows_json: bool) -> Iterator[tuple[str, list[str]]]:
    """A process that answers one client as NCCL does, and what it was asked."""
    heard: list[str] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        line, _ = listening.accept()
        with line, line.makefile("r") as asked:
            for command in asked:
                heard.append(command.strip())
                if heard[-1].endswith("STATUS"):
                    line.sendall(answer.encode())
                    return
                line.sendall(reply(heard[-1], knows_json=knows_json).encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}", heard
        thread.join(10)


def reply(command: str, *, knows_json: bool) -> str:
    """What NCCL says to a command."""
    if command.startswith("CLIENT PROTOCOL"):
        return "SERVER PROTOCOL 2\n"
    if command == "SET FORMAT json" and not knows_json:
        return f"ERROR: Unknown command {command}\n"
    return "OK\n"
