"""Records what /proc shows of the programs, once a second."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lab.activity.series import Recorded
from unhang.activity.looks import ProcessLook
from unhang.activity.thresholds import APART_S
from unhang.collect.processes import ProcessTable, read_processes
from unhang.run.watching.moving import Movement
from unhang.run.watching.procs import work_of
from unhang.run.watching.traffic import tcp_bytes

_READY = "ACTIVITY_READY"
_SETTLES_S, _READY_S = 3.0, 90.0
_QUIET, _LOUD = 12, 3
"""So many programs run at once: of those that wait, and of those that may compute."""


class Program(NamedTuple):
    """A program, by its file, and whether it gets on."""

    file: Path
    truth: str


@cache
def programs() -> Mapping[str, Program]:
    """All programs of the files in jobs, by name."""
    found: dict[str, Program] = {}
    for name in ("stuck.py", "working.py", "with_torch.py"):
        file = Path(__file__).with_name("jobs") / name
        listed = subprocess.run(  # noqa: S603 - ours
            [sys.executable, str(file), "--list"], check=True, capture_output=True, text=True
        )
        found |= {name: Program(file, truth) for name, truth in json.loads(listed.stdout).items()}
    return found


def record_all(seconds: float, *, burners: int = 0) -> Iterator[Recorded]:
    """Run all programs, some at a time, and follow each once it stands where it is meant to.

    Args:
        seconds: For how long each is followed.
        burners: So many processes compute beside them, with the least priority.
    """
    known = programs()
    quiet = [name for name, each in known.items() if each.truth in ("waits", "polls")]
    loud = [name for name in known if name not in quiet]
    with _load(burners):
        for names in (*_some(quiet, _QUIET), *_some(loud, _LOUD)):
            for name, looks in _record(names, seconds).items():
                yield Recorded(name, known[name].truth, "load" if burners else "", looks)


def _some(names: list[str], at_once: int) -> Iterator[list[str]]:
    return (names[at : at + at_once] for at in range(0, len(names), at_once))


@contextmanager
def _load(burners: int) -> Iterator[None]:
    command = ["nice", "-n", "19", sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(burners)]  # noqa: S603 - as above
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


def _record(names: Sequence[str], seconds: float) -> dict[str, tuple[ProcessLook, ...]]:
    with tempfile.TemporaryDirectory(prefix="activity-") as place:
        children = {name: _start(name, Path(place)) for name in names}
        try:
            _await([Path(place, name) for name in names])
            time.sleep(_SETTLES_S)
            return _follow({name: child.pid for name, child in children.items()}, seconds)
        finally:
            for child in children.values():
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def _start(name: str, place: Path) -> subprocess.Popen[bytes]:
    (place / f"of-{name}").mkdir()
    return subprocess.Popen(  # noqa: S603 - ours
        [sys.executable, str(programs()[name].file), name],
        env={**os.environ, _READY: str(place / name), "TMPDIR": str(place / f"of-{name}")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _await(files: Sequence[Path]) -> None:
    until = time.monotonic() + _READY_S
    while missing := [file.name for file in files if not file.exists()]:
        if time.monotonic() > until:
            raise TimeoutError(f"not ready after {_READY_S:.0f} s: {', '.join(missing)}")
        time.sleep(0.1)


def _follow(pids: Mapping[str, int], seconds: float) -> dict[str, tuple[ProcessLook, ...]]:
    movement, traffic = Movement(), {pid: list[int]() for pid in pids.values()}
    for _ in range(round(seconds / APART_S)):
        table, sockets, now = read_processes(), tcp_bytes(), time.monotonic()
        for pid in pids.values():
            movement.weigh(pid, table, now)
            traffic[pid].append(_traffic(pid, table, sockets))
        time.sleep(max(APART_S - (time.monotonic() - now), 0.0))
    return {
        name: tuple(
            look._replace(traffic=sent)
            for look, sent in zip(movement.looks(pid), traffic[pid], strict=True)
        )
        for name, pid in pids.items()
    }


def _traffic(pid: int, table: ProcessTable, sockets: Mapping[int, int]) -> int:
    return work_of(pid, table, 0.0, sockets=sockets).traffic
