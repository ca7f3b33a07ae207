"""Asking a running rank for its dumps, by whichever way it still answers.

In this order: unhang's recorder over its socket; torch's worker server, which answers even while a
thread holds the GIL. Where no recorder of ours is in the process, what torch itself was set to
offer: its worker server (TORCH_WORKER_SERVER_SOCKET), or NCCL's pipe
(TORCH_NCCL_DEBUG_INFO_PIPE_FILE). Nothing is signalled. Where a dump goes, and what an older file
is worth, is up to those who ask: `unhang run` and `unhang collect`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from unhang.collect.recorders import backends_in, handlers, holds_calls, is_hooked
from unhang.record.contact.client import AskError, RefusedError, ask_worker, request_dump
from unhang.record.contact.marks import Mark

MAX_DUMP_BYTES = 1 << 30
_PIPE_S = 6.0


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """What a rank is asked for.

    Attributes:
        reason: As the recorder documents them ("hang", "asked"…).
        incident: Name that the dumps of all ranks carry.
        directory: The incident directory that the recorder writes into.
        stacks: Wait for the dump with torch's stacks; that without them is there first.
        recorder_s, worker_s: How long the recorder and the worker server may take.
    """

    reason: str
    incident: str
    directory: Path
    stacks: bool
    recorder_s: float
    worker_s: float


@dataclass(frozen=True, slots=True)
class RankDumps:
    """The dumps of one rank by recorder, as files or bytes; or why there are none."""

    found: tuple[tuple[str, Path | bytes], ...] = ()
    why: str = ""


def ask_recorder(mark: Mark, request: DumpRequest) -> RankDumps:
    """Ask our recorder, and where it is silent torch's worker server."""
    answer = _from_socket(mark, request)
    if answer.found:
        return answer
    second = _from_worker(
        mark.worker_socket, request.worker_s, backends=mark.backend, hooked=mark.hooked
    )
    return second if second.found else RankDumps(why=f"{answer.why}; {second.why}")


def _from_socket(mark: Mark, request: DumpRequest) -> RankDumps:
    if not mark.socket:
        return RankDumps(why="it has no trigger socket")
    files: dict[Path, None] = {}
    why = "its recorder had nothing to write"
    try:
        for reply in request_dump(
            mark.socket,
            reason=request.reason,
            timeout_s=request.recorder_s,
            incident=request.incident,
            directory=request.directory,
            stacks=request.stacks,
        ):
            files |= {Path(name): None for name in reply.get("files", []) if isinstance(name, str)}
            if reply.get("failures"):
                why = f"nothing was written: {'; '.join(map(str, reply['failures']))}"
    except AskError as error:  # after the dump without stacks that with them may be late
        why = f"its recorder did not answer: {_words(error)}"
    return RankDumps(tuple((path.parent.name, path) for path in files), why)


def _from_worker(
    path: str, patience_s: float, backends: str = "", hooked: str = "", pid: int = 0
) -> RankDumps:
    """Ask a worker server: for the recorders of these backends, or for all of them."""
    if not path:
        return RankDumps(why="torch's worker server does not run in it")
    found: list[tuple[str, bytes]] = []
    why = "torch's worker server has no recorder of this backend"
    for backend, handler in handlers(backends_in(backends)):
        try:
            data = ask_worker(path, handler, patience_s, pid)
        except RefusedError as error:  # noqa: PERF203 - a few questions
            why = f"torch's worker server: {_words(error)}"
        except AskError as error:
            why = f"torch's worker server: {_words(error)}"
            break  # the next question would wait as long
        else:
            known = not is_hooked(backend) or backend in hooked.split(",")
            if known or holds_calls(data, backend):
                found.append((backend, data))
    used = [each for each in found if backends or holds_calls(each[1], each[0])]
    return RankDumps(tuple(used or found), why)


def ask_torch(pid: int, rank: int, environ: Mapping[str, str], worker_s: float) -> RankDumps:
    """Ask a process without our recorder: torch's worker server, then NCCL's pipe.

    Args:
        pid: The process; ranks may all have been given one socket, at which one of them serves.
        rank: Its rank.
        environ: Its environment.
        worker_s: How long the worker server may take.
    """
    told = environ.get("TORCH_WORKER_SERVER_SOCKET", "")
    if told.startswith("/"):
        answer = _from_worker(told, worker_s, pid=pid)
        if answer.found:
            return answer
    prefix = environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "")
    if not prefix:
        return RankDumps(
            why="no recorder of unhang is armed in it; torch's worker server and NCCL's pipe "
            "do not answer"
        )
    return _from_pipe(prefix, rank, environ)


def _from_pipe(prefix: str, rank: int, environ: Mapping[str, str]) -> RankDumps:
    """Write to NCCL's pipe, and wait for the file that its watchdog makes."""
    before = time.time()
    try:
        pipe = os.open(f"{prefix}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
        with os.fdopen(pipe, "wb") as file:
            file.write(b"1\n")
    except OSError as error:
        return RankDumps(why=f"NCCL's pipe: {error.strerror}")
    end = time.monotonic() + _PIPE_S
    while time.monotonic() < end:
        for path in default_paths(rank, environ):
            if changed(path) >= before - 1:
                return RankDumps((("nccl", path),))
        time.sleep(0.2)
    return RankDumps(why="NCCL's pipe took the request, but no dump came in time")


def default_paths(rank: int, environ: Mapping[str, str]) -> Iterator[Path]:
    """Where torch puts dumps: told by the environment, else the defaults of its versions."""
    for key in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
        if environ.get(key):
            yield Path(f"{environ[key]}{rank}")
    caches = [environ.get("XDG_CACHE_HOME", ""), f"{environ.get('HOME', '')}/.cache"]
    for cache in caches:
        if cache.startswith("/"):
            yield Path(cache, "torch", f"comm_lib_trace_rank_{rank}")
    yield Path(f"/tmp/nccl_trace_rank_{rank}")  # noqa: S108 - torch's own default


def changed(path: Path) -> float:
    """When a file was last written; 0 where it is none that can be taken."""
    try:
        status = path.stat()
    except OSError:
        return 0.0
    usable = path.is_file() and 0 < status.st_size <= MAX_DUMP_BYTES and os.access(path, os.R_OK)
    return status.st_mtime if usable else 0.0


def _words(error: OSError) -> str:
    """An error without the path of a socket, which means nothing to a reader."""
    return str(error).rpartition(": ")[2] or type(error).__name__
