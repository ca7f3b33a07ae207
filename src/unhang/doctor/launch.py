"""Start the ranks of the communication test and read where each of them is.

The driver reads one pipe per rank, so it knows who did not arrive even when rank 0 itself, or the
network between the ranks, is what is broken. Everything that was started is ended here.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from unhang.doctor.agents import source_of

__all__ = ["Trace", "free_port", "run_ranks"]

GRACE_S = 3.0
START_S = 60.0
"""Importing torch in many processes on few cores takes its time."""


@dataclass(slots=True)
class Trace:
    """What one rank said: the step that it entered last, what it finished, its timings."""

    rank: int
    host: str = ""
    pid: int = -1
    entered: str = ""
    done: list[str] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)
    error: str = ""
    timed_out: bool = False
    ended: bool = False
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    output: str = ""

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take one line of the rank."""
        kind, step = event.get("event"), str(event.get("step", ""))
        if kind == "start":
            self.host, self.pid = str(event.get("host", "")), int(event.get("pid", -1))
        elif kind == "enter":
            self.entered = step
        elif kind == "done":
            self.done.append(step)
            if event.get("text"):
                self.wrong[step] = str(event["text"])
        elif kind == "error":
            self.error = str(event.get("text", ""))
        elif kind in ("bandwidth", "pair"):
            self.rows.append(event)
        self.timed_out = self.timed_out or kind == "timeout"
        self.ended = self.ended or kind == "end"


def free_port() -> int:
    """A port that is free on the loopback now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_ranks(count: int, order: Mapping[str, Any], extra: Mapping[str, str]) -> list[Trace]:
    """Run the test with `count` ranks on this machine.

    Args:
        count: Number of ranks.
        order: The agent's argument.
        extra: Environment on top of ours (transports that are switched off, the device order).

    Returns:
        One trace a rank. It takes at most START_S plus twice the time-out of a step after the
        last sign of life.
    """
    shared = {**os.environ, "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": str(free_port()), "PYTHONUNBUFFERED": "1", **extra}  # fmt: skip
    traces = [Trace(rank) for rank in range(count)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(count):
            own = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(_start(own, order))
        _listen(processes, traces, float(order["timeout"]))
    finally:
        _end(processes)
    return traces


def _start(environment: Mapping[str, str], order: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", source_of("comm"), json.dumps(order)]
    return subprocess.Popen(  # noqa: S603 - our own interpreter and agent
        command, env=dict(environment), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def _listen(
    processes: Sequence[subprocess.Popen[bytes]], traces: Sequence[Trace], timeout: float
) -> None:
    """Read all pipes until all ranks ended, or nobody says anything for too long."""
    with selectors.DefaultSelector() as selector:
        for process, trace in zip(processes, traces, strict=True):
            assert process.stdout is not None  # noqa: S101 - we asked for a pipe
            os.set_blocking(process.stdout.fileno(), False)
            selector.register(process.stdout, selectors.EVENT_READ, (trace, bytearray()))
        limit = START_S
        last = time.monotonic()
        while selector.get_map() and time.monotonic() - last < limit:
            for key, _ in selector.select(timeout=0.5):
                last = time.monotonic()
                trace, rest = key.data
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                _hear_lines(trace, rest, data)
            if any(trace.timed_out or trace.error for trace in traces):
                limit = min(limit, timeout + GRACE_S)
            elif all(trace.done for trace in traces):
                limit = timeout + GRACE_S


def _hear_lines(trace: Trace, rest: bytearray, data: bytes) -> None:
    rest += data
    *lines, tail = bytes(rest).split(b"\n")
    rest[:] = tail
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            trace.output = (trace.output + line.decode("utf-8", "replace") + "\n")[-4000:]
            continue
        if isinstance(event, dict):
            trace.hear(event)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, 9)
    for process in processes:
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
