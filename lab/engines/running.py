"""Starts the parts of one fault, waits until it is reached, and ends all of them in any case."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.engines.faults import EngineFault

WORLD = Path(__file__).parent / "world"
SERVING = Path(__file__).with_name("serving.py")
_PLACES = {
    "shm_broadcast.py": "vllm/distributed/device_communicators",
    "multiproc_executor.py": "vllm/v1/executor",
    "core.py": "vllm/v1/engine",
    "gpu_worker.py": "vllm/v1/worker",
    "scheduler.py": "sglang/srt/managers",
}
SETTLED_S = 3.0
"""A call younger than a second is on its way: the job stands so long before it is looked at."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A fault that is reached: the first process of each part, the log, and the folder."""

    pids: tuple[int, ...]
    log: Path
    folder: Path

    def processes(self) -> list[int]:
        """All processes of the parts: they are one session each."""
        sessions = set(self.pids)
        found = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in found if _session(pid) in sessions]


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


@contextmanager
def started(fault: EngineFault, folder: Path, patience_s: float = 120.0) -> Iterator[Standing]:
    """Run a fault's parts until they stand.

    Raises:
        TimeoutError: They did not.
    """
    environ, log = laid_out(fault, folder), folder / "job.log"
    parts: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("ab") as file:
            for words, env in commands(fault, folder, environ):
                part = subprocess.Popen(  # noqa: S603 - our own program
                    words, env=env, stdout=file, stderr=file, start_new_session=True
                )
                parts.append(part)
        _wait(folder / "hung", patience_s)
        time.sleep(SETTLED_S)
        yield Standing(tuple(part.pid for part in parts), log, folder)
    finally:
        for part in parts:
            for pid in Standing((part.pid,), log, folder).processes():
                os.kill(pid, signal.SIGKILL)
            part.wait()


def laid_out(fault: EngineFault, folder: Path) -> dict[str, str]:
    """Write what the processes read, and return their environment."""
    for name, place in _PLACES.items():
        there = folder / "site-packages" / place
        there.mkdir(parents=True, exist_ok=True)
        shutil.copy(WORLD / name, there / name)
    shutil.copy(SERVING, folder / "site-packages" / SERVING.name)
    settings = {**fault.settings, "port": free_port(), "sync_port": free_port()}
    (folder / "fault.json").write_text(json.dumps(settings))
    return {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}


def commands(
    fault: EngineFault, folder: Path, environ: dict[str, str]
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The command line and environment of each part."""
    installed = folder / "site-packages" / SERVING.name
    program = [sys.executable, str(installed), str(folder)]
    server = free_port()
    for part in fault.parts:
        if part == "trainer":  # a program of the user's
            program[1] = str(SERVING)
            job = {"MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
            for rank in (0, 1):
                yield [*program, part, str(server)], {**environ, **job, "RANK": str(rank)}
        else:
            yield [*program, part, *([str(server)] if part == "front" else [])], environ


def free_port() -> int:
    """A port that no process listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait(mark: Path, patience_s: float) -> None:
    until = time.monotonic() + patience_s
    while not mark.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"the fault was not reached: see {mark.parent / 'job.log'}")
        time.sleep(0.1)
