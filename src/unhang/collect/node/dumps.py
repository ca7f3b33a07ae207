"""Dumps of a node's ranks: triggered where a recorder listens, found where files lie.

Asked, in this order: unhang's recorder over its socket; torch's worker server, which answers even
while a thread holds the GIL; NCCL's pipe (TORCH_NCCL_DEBUG_INFO_PIPE_FILE). Found: the default
paths of all torch versions, and globs. A file that is older than its process is of another job and
left out, which is said.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from unhang.collect.ranks import Target
from unhang.record.client import AskError, ask_worker, request_dump
from unhang.record.marks import Mark

__all__ = ["Dumps", "take_dumps"]

MAX_DUMP_BYTES = 1 << 30
MAX_FOUND = 100_000
_ASK_S = 8.0
_PIPE_S = 6.0
_WORKER = (("gloo", "fr_trace_json"), ("nccl", "dump_nccl_trace_json"))
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Dumps:
    """What came of the dumps.

    Attributes:
        files: Where they are, by path in the case.
        came, missing: Path in the case, or why there is none, by rank.
    """

    files: dict[str, Path | bytes] = field(default_factory=dict)
    came: dict[int, list[str]] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, rank: int, backend: str, source: Path | bytes) -> None:
        """Take one dump in."""
        name = f"dumps/{backend}/rank_{rank}"
        if name not in self.files:
            self.files[name] = source
            self.came.setdefault(rank, []).append(name)


def take_dumps(
    ranks: Sequence[Target],
    marks: Iterable[Mark],
    patterns: Sequence[str],
    folder: Path,
    incident: str,
) -> Dumps:
    """Trigger and find the dumps of ranks.

    Args:
        ranks: The ranks of this node.
        marks: Of the recorders that may be asked.
        patterns: Globs of further files.
        folder: An empty folder of ours, for what recorders write.
        incident: Name that the dumps of all nodes carry.
    """
    dumps = Dumps()
    by_pid = {mark.pid: mark for mark in marks}
    if ranks:
        with ThreadPoolExecutor(min(16, len(ranks))) as pool:
            answers = pool.map(
                lambda t: _asked(t, by_pid.get(t.process.pid), folder, incident), ranks
            )
            for target, (found, why) in zip(ranks, answers, strict=True):
                for backend, source in found:
                    dumps.add(target.rank, backend, source)
                if not found:
                    dumps.missing[target.rank] = why
    for target in ranks:
        if target.rank not in dumps.came:
            _take_default(target, dumps)
    _take_patterns(patterns, dumps)
    return dumps


_Found = list[tuple[str, "Path | bytes"]]


def _asked(target: Target, mark: Mark | None, folder: Path, incident: str) -> tuple[_Found, str]:
    """The dumps that a rank writes when it is asked, and why there are none."""
    if mark is None:
        return _from_pipe(target)
    why = "its recorder has no socket"
    if mark.socket:
        try:
            found = _from_recorder(target, mark, folder, incident)
        except AskError as error:
            why = f"its recorder: {str(error).rpartition(': ')[2]}"
        else:
            if found:
                return found, ""
            why = "its recorder had nothing to write"
    if mark.worker_socket and (found := _from_worker(mark)):
        return found, ""
    return [], why


def _from_recorder(target: Target, mark: Mark, folder: Path, incident: str) -> _Found:
    """Wait for the dump without stacks; that with them replaces it where it comes in time."""
    place = folder / f"rank_{target.rank}"
    place.mkdir()
    try:
        for _ in request_dump(
            mark.socket, reason="asked", timeout_s=_ASK_S, incident=incident, directory=place
        ):
            pass
    except AskError:
        if not any(place.rglob("rank_*")):
            raise
    return [(path.parent.name, path) for path in sorted(place.rglob("rank_*")) if path.is_file()]


def _from_worker(mark: Mark) -> _Found:
    found: _Found = []
    for backend, handler in _WORKER:
        try:
            data = ask_worker(mark.worker_socket, handler, _ASK_S)
        except AskError:
            continue
        if data:
            found.append((backend, data))
    return found


def _from_pipe(target: Target) -> tuple[_Found, str]:
    """Write to NCCL's pipe, wait for the file that its watchdog makes."""
    environ = target.process.environ or {}
    prefix = environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "")
    if not prefix:
        return [], "no recorder of unhang is armed in it, and NCCL's pipe is not switched on"
    before = time.time()
    try:
        pipe = os.open(f"{prefix}{target.rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
        with os.fdopen(pipe, "wb") as file:
            file.write(b"1\n")
    except OSError as error:
        return [], f"NCCL's pipe: {error.strerror}"
    end = time.monotonic() + _PIPE_S
    while time.monotonic() < end:
        for path in _default_paths(target):
            if _changed(path) >= before - 1:
                return [("nccl", path)], ""
        time.sleep(0.2)
    return [], "NCCL's pipe was asked, and no dump was written in time"


def _default_paths(target: Target) -> Iterator[Path]:
    """Where torch puts dumps: told by the environment, else the defaults of its versions."""
    environ = target.process.environ or {}
    for key in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
        if environ.get(key):
            yield Path(f"{environ[key]}{target.rank}")
    caches = [environ.get("XDG_CACHE_HOME", ""), f"{environ.get('HOME', '')}/.cache"]
    for cache in caches:
        if cache.startswith("/"):
            yield Path(cache, "torch", f"comm_lib_trace_rank_{target.rank}")
    yield Path(f"/tmp/nccl_trace_rank_{target.rank}")  # noqa: S108 - torch's own default


def _take_default(target: Target, dumps: Dumps) -> None:
    """A dump that torch wrote by itself, if it is of this very process."""
    for path in _default_paths(target):
        changed = _changed(path)
        if not changed:
            continue
        if changed < _began(target):
            dumps.notes.append(f"{path} is older than rank {target.rank}: left out")
            continue
        dumps.add(target.rank, "nccl", path)
        dumps.missing.pop(target.rank, None)
        return


def _changed(path: Path) -> float:
    """When a file was last written; 0 where it is none that can be taken."""
    try:
        status = path.stat()
    except OSError:
        return 0.0
    usable = path.is_file() and 0 < status.st_size <= MAX_DUMP_BYTES and os.access(path, os.R_OK)
    return status.st_mtime if usable else 0.0


def _began(target: Target) -> float:
    """Wall clock at which a process began, to a second."""
    with Path("/proc/uptime").open(encoding="ascii") as file:
        up_s = float(file.read().split()[0])
    return time.time() - up_s + target.process.start_ticks / _TICKS - 1


def _take_patterns(patterns: Sequence[str], dumps: Dumps) -> None:
    """Files that people named; their own names are kept, which tell their ranks."""
    for pattern in patterns:
        paths = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))[:MAX_FOUND]]  # noqa: PTH207 - a pattern may be absolute
        taken = [path for path in paths if _changed(path)]
        if not taken:
            dumps.notes.append(f"--dumps {pattern}: no file that can be read")
        for path in taken:
            name = "".join(c if c.isalnum() or c in "_.-" else "_" for c in path.name)[:150]
            key, number = f"dumps/found/{name}", 1
            while key in dumps.files:
                number += 1
                key = f"dumps/found/{number}/{name}"
            dumps.files[key] = path
