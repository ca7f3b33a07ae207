"""Marks: who is armed on this node, as small JSON files that any process of the same user can read.

The recorder writes one mark a process; `unhang run`, `unhang dump` and `unhang stacks` read them.
The format and the layout of the runtime directory are documented in docs/recorder.md. This module
refuses to trust: files of another user, links, and files of an absurd size are passed over.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from unhang.rankenv import job_of
from unhang.record.contact.runtime_dir import (
    RuntimeDirError,
    create_private_dir,
    is_private,
    job_dir,
    roots,
    runtime_root,
    safe_name,
)
from unhang.record.namespaces import Named, Numbers, pid_namespace, start_ticks, stat_words
from unhang.record.statement import Meeting

__all__ = [
    "Mark",
    "RuntimeDirError",
    "alive",
    "create_private_dir",
    "is_of_here",
    "job_dir",
    "job_from_env",
    "pid_namespace",
    "read_marks",
    "remove_stale_jobs",
    "roots",
    "runtime_root",
    "start_ticks",
    "stat_words",
    "write_mark",
]

SCHEMA: Final = "unhang.mark/1"
MAX_MARK_BYTES: Final = 64 * 1024
MAX_MARKS: Final = 65536


@dataclass(frozen=True, slots=True, repr=False)
class Mark(Meeting):
    """What one armed process says of itself.

    Attributes:
        pid: Process id in the namespace `pid_ns`.
        start_ticks: Start time from /proc/PID/stat, in clock ticks: with `pid` it names a process
            for ever.
        role: "rank" once `init_process_group` has returned in it; "launcher", "helper" (a child
            made by multiprocessing) or "unknown" before.
        rank: Global rank; None unless the role is "rank".
        backend: What the backends of its groups call themselves, with commas.
        hooked: Those of them for which a hook of torch's records (torch 2.15): its worker server
            knows their recorders by name.
        groups: Number of process groups made so far.
        socket: Path of the trigger socket, or "" where there is none.
        worker_socket: Path of torch's worker server (HTTP over a unix socket), or "".
        fifo: Path of the trigger pipe, or "".
        heartbeat: Path of the mmapped heartbeat file, or "".
        faults: Path of faulthandler's file, or "".
        dumps: Directory in which it makes incident directories.
        run: Which `unhang run` started it (UNHANG_RUN), or "".
        armed_by: "hook" or "code".
        limited: Why the process can be watched and not asked ("20 of 22 file descriptors are in
            use"), or "".
        failures: What went wrong while arming or recording, newest last.
        exception: The uncaught exception that ends it ("ValueError: …"), or "".
    """

    pid: int
    start_ticks: int
    host: str = ""
    pid_ns: str = ""
    uid: int = -1
    job_id: str = ""
    attempt: int = 0
    role: str = "unknown"
    phase: str = field(default="imported", kw_only=True)
    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    backend: str = ""
    hooked: str = ""
    groups: int = 0
    socket: str = ""
    worker_socket: str = ""
    fifo: str = ""
    heartbeat: str = ""
    faults: str = ""
    dumps: str = ""
    run: str = ""
    armed_by: str = ""
    armed_ns: int = 0
    updated_ns: int = 0
    command: str = ""
    torch: str = ""
    limited: str = ""
    failures: tuple[str, ...] = ()
    exception: str = ""


_NUMBERS: Final = Numbers()
_TYPES: Final = {"int": (int,), "int | None": (int, type(None)), "str": (str,)}
"""What JSON may hold of a field, by how that is declared."""
_DECLARED: Final = {each.name: str(each.type) for each in fields(Mark)}


# ------------------------------------------------------------------ identity


def job_from_env() -> str:
    """The job's id: UNHANG_JOB, or what the launcher says, or the session of this terminal."""
    told = job_of(os.environ)
    return safe_name(told) if told else f"session-{os.getsid(0)}"


def alive(mark: Mark) -> bool:
    """Whether the very process that wrote the mark still exists here (a zombie does not)."""
    if not is_of_here(mark):
        return False
    words = stat_words(mark.pid)
    is_there = bool(words) and words[0] not in ("Z", "X")
    return is_there and start_ticks(mark.pid) == mark.start_ticks != 0


def is_of_here(mark: Mark) -> bool:
    """Whether its number is one of this host and PID namespace: of others nothing can be seen."""
    return mark.host == socket.gethostname() and mark.pid_ns in ("", pid_namespace())


# ------------------------------------------------------------------ reading and writing


def write_mark(directory: Path, mark: Mark) -> Path:
    """Write `directory/marks/PID.json` in one step (temporary name, rename).

    Raises:
        OSError: It cannot be written.
    """
    path = create_private_dir(directory / "marks") / f"{mark.pid}.json"
    text = json.dumps({"schema": SCHEMA, **asdict(mark)})
    handle, name = tempfile.mkstemp(prefix=f".{mark.pid}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def read_marks(job_id: str | None = None, root: Path | None = None) -> list[Mark]:
    """All marks of this user on this node, or those of one job, by job, rank and pid.

    Unreadable, foreign and malformed files are passed over: a mark is a hint, never evidence.
    Marks of dead processes are included; ask `alive`. Processes of PID namespaces below, as of
    containers, have their numbers of this one, as far as they were seen while they lived.
    """
    found: list[Mark] = []
    for base in [root] if root else roots():
        if not is_private(base):
            continue
        jobs = [base / safe_name(job_id)] if job_id else sorted(base.iterdir())
        for job in jobs:
            found += _marks_of(job)
    return sorted(_seen_here(found), key=_order)


def _seen_here(marks: Iterable[Mark]) -> list[Mark]:
    """The marks, those of PID namespaces below as this one numbers their processes."""
    marks, host, own = list(marks), socket.gethostname(), pid_namespace()
    below = {
        id(mark): Named(mark.pid_ns, mark.pid, mark.start_ticks)
        for mark in marks
        if mark.host == host and mark.pid_ns not in ("", own)
    }
    numbers = _NUMBERS.of(below.values())
    here = {each: numbers[named] for each, named in below.items() if named in numbers}
    return [
        replace(mark, pid=here[id(mark)], pid_ns=own) if id(mark) in here else mark
        for mark in marks
    ]


def remove_stale_jobs(root: Path, now_s: float, older_than_s: float = 86_400.0) -> list[str]:
    """Remove directories of jobs that are over for a day: none of their processes is alive.

    Args:
        root: The runtime directory.
        now_s: Wall clock in seconds.
        older_than_s: How long nothing must have happened in one.

    Returns:
        Names of what was removed.
    """
    removed = []
    for job in sorted(root.iterdir()):
        if not (is_private(job) and _newest_s(job) < now_s - older_than_s):
            continue
        if not (_watched(job) or any(alive(mark) for mark in _seen_here(_marks_of(job)))):
            shutil.rmtree(job, ignore_errors=True)
            removed.append(job.name)
    return removed


def _watched(job: Path) -> bool:
    """Whether an `unhang run` of the job may be there still: its folder names its process.

    Its command may live for days without being armed; the process id may be another's by now.
    """
    pids = (path.name.split("-")[-2:-1] for path in job.glob("run-*-*-*"))
    return any(pid and Path("/proc", *pid).exists() for pid in pids)


def _newest_s(job: Path) -> float:
    """When something last happened in a job's directory."""
    times = [job.lstat().st_mtime]
    with contextlib.suppress(OSError):
        times += [entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(job)]
    return max(times)


def _order(mark: Mark) -> tuple[str, int, bool, int, int]:
    return (mark.job_id, mark.attempt, mark.rank is None, mark.rank or 0, mark.pid)


def _marks_of(job: Path) -> list[Mark]:
    directory = job / "marks"
    if not (is_private(job) and is_private(directory)):
        return []
    paths = sorted(directory.glob("[0-9]*.json"))[:MAX_MARKS]
    return [mark for mark in map(_read_mark, paths) if mark is not None]


def _read_mark(path: Path) -> Mark | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return None
        data = stream.read(MAX_MARK_BYTES + 1)
    if len(data) > MAX_MARK_BYTES:
        return None
    try:
        raw = json.loads(data)
    except ValueError:
        return None
    return _mark_from(raw)


def _mark_from(raw: Any) -> Mark | None:  # noqa: ANN401 - whatever the file holds
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        return None
    known = {name: raw[name] for name in _DECLARED if name in raw}
    failures = known.pop("failures", [])
    if not isinstance(failures, list) or not all(isinstance(text, str) for text in failures):
        return None
    fits = all(type(value) in _TYPES[_DECLARED[name]] for name, value in known.items())
    if not fits or not {"pid", "start_ticks"} <= set(known):
        return None
    return Mark(**known, failures=tuple(failures))
