"""Start this node's ranks of the communication test and read where each of them is.

One pipe per rank: who did not arrive is known even when the network between the ranks is what is
broken. Everything that was started is ended here.
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
from pathlib import Path
from typing import Any

from unhang.doctor.agents import source_of
from unhang.isolated import STANDARD_FIRST

GRACE_S = 8.0
"""For a rank's own watch to speak on a busy machine, before it counts as silent."""
LONGEST_LINE = 1 << 16
_START = STANDARD_FIRST + "exec(sys.argv.pop(1))"
"""What `python -c` runs for a rank: the program of the test is its first argument."""


@dataclass(slots=True)
class Trace:
    """What one rank said: the step that it entered last, what it finished, its timings.

    Attributes:
        inside: It has met the others in that step; else it waits for them, or for itself.
        state: What the kernel says of its process at the end ("T" stopped, "D" in the kernel…).
        exit_code: As Python has it (-9: killed); None if it still ran at the end.
    """

    rank: int
    host: str = ""
    pid: int = -1
    entered: str = ""
    inside: bool = False
    done: list[str] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)
    error: str = ""
    timed_out: bool = False
    ended: bool = False
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    output: str = ""
    state: str = ""
    exit_code: int | None = None

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take one line of the rank."""
        kind, step = event.get("event"), str(event.get("step", ""))
        if kind == "start":
            self.host, self.pid = str(event.get("host", "")), int(event.get("pid", -1))
        elif kind == "enter":
            self.entered, self.inside = step, False
        elif kind == "inside":
            self.inside = True
        elif kind == "done":
            self.done.append(step)
            if event.get("text"):
                self.wrong[step] = str(event["text"])
        elif kind == "error":
            self.error = str(event.get("text", ""))
        elif kind in ("bandwidth", "pair"):
            self.rows.append(event)
        self.ended = self.ended or kind == "end"


def free_port() -> int:
    """A port that is free on this machine now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def examine(order: Mapping[str, Any]) -> dict[str, Any]:
    """Run this node's ranks of one or more teams, all at once.

    Args:
        order: {"test": the rank program's argument, "teams": [{"address", "port" (0: any, for a
            team that lives here), "size", "ranks": [{"rank" (in the team), "id" (in the whole
            test), "local"}]}], "settings": environment on top of ours}.

    Returns:
        {"traces": one a rank, as `Trace` has it}. It takes at most the limits of the first steps
        and twice that of the later ones after the last sign of life.
    """
    test = order["test"]
    traces: list[Trace] = []
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for team in order["teams"]:
            shared = {**os.environ, **order.get("settings", {}), "WORLD_SIZE": str(team["size"]),
                      "MASTER_ADDR": team["address"], "PYTHONUNBUFFERED": "1",
                      "MASTER_PORT": str(team["port"] or free_port())}  # fmt: skip
            for one in team["ranks"]:
                own = {**shared, "RANK": str(one["rank"]), "LOCAL_RANK": str(one["local"])}
                processes.append(_start(own, test))
                traces.append(Trace(int(one["id"]), host=socket.gethostname()))
        _listen(processes, traces, float(test["start"]), float(test["timeout"]))
        for process, trace in zip(processes, traces, strict=True):
            trace.state = _state(process.pid)
            trace.exit_code = process.poll()
    finally:
        _end(processes)
    return {"traces": [{name: getattr(t, name) for name in Trace.__slots__} for t in traces]}


def _start(environment: Mapping[str, str], test: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own interpreter and agent
        [sys.executable, "-c", _START, source_of("comm"), json.dumps(test)],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _listen(
    processes: Sequence[subprocess.Popen[bytes]],
    traces: Sequence[Trace],
    start_s: float,
    timeout_s: float,
) -> None:
    """Read all pipes until all ranks ended, or none has said anything for too long."""
    with selectors.DefaultSelector() as selector:
        for process, trace in zip(processes, traces, strict=True):
            assert process.stdout is not None  # noqa: S101 - we asked for a pipe
            os.set_blocking(process.stdout.fileno(), False)
            selector.register(process.stdout, selectors.EVENT_READ, (trace, bytearray()))
        last = time.monotonic()
        while selector.get_map():
            met = all("meet" in trace.done or trace.timed_out for trace in traces)
            silent_s = time.monotonic() - last - (timeout_s if met else max(start_s, timeout_s))
            if silent_s > GRACE_S or (silent_s > 0 and _none_can_speak(processes, traces)):
                return
            for key, _ in selector.select(timeout=0.5):
                last = time.monotonic()
                trace, rest = key.data
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                _hear_lines(trace, rest, data)
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)  # its pipe is closed: it is about to end


def _hear_lines(trace: Trace, rest: bytearray, data: bytes) -> None:
    rest += data
    *lines, tail = bytes(rest).split(b"\n")
    rest[:] = tail[-LONGEST_LINE:]
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            trace.timed_out = trace.timed_out or line.startswith(b"Timeout (")  # by faulthandler
            trace.output = (trace.output + line.decode("utf-8", "replace") + "\n")[-4000:]
            continue
        if isinstance(event, dict):
            trace.hear(event)


def _none_can_speak(processes: Sequence[subprocess.Popen[bytes]], traces: Sequence[Trace]) -> bool:
    """Whether all ranks that have not ended are stopped, so that waiting is in vain."""
    left = [process.pid for process, trace in zip(processes, traces, strict=True)
            if not (trace.ended or trace.timed_out or trace.error)]  # fmt: skip
    return all(_state(pid) in ("T", "t") for pid in left)


def _state(pid: int) -> str:
    """One letter, as /proc has it; "" where the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, 9)
    for process in processes:
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
