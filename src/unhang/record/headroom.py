"""Whether the job has room for us: descriptors, threads, memory where address space is limited.

What the recorder takes, the job no longer has. Where it has little itself, the recorder makes do
with its heartbeat, which keeps no descriptor, and says so in the mark.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
CGROUPS: Final = Path("/sys/fs/cgroup")

DESCRIPTORS: Final = 64
"""So many must be free: the recorder keeps four, and a job opens one or more for each peer."""

ADDRESS_SPACE: Final = 2 << 30
"""So many bytes: each thread of torch's worker server reserves a stack and an arena, and one that
cannot be made would end the process."""

SERVER_THREADS: Final = 8
"""Torch's worker server starts so many, or one less than there are cores, and one that listens: the
default of its library (cpp-httplib). Seen with torch 2.13 on two cores, and not on a large node."""

THREADS: Final = 16
"""So many must be left to a rank: a second group and the first backward pass start four."""

_WHOLE: Final = "4294967295"
"""As many users as there are: a user namespace that maps all of them is the first one."""


def few_descriptors() -> str:
    """Why no descriptor should be kept in this process, or ""."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return ""
    try:
        used = len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 - one is the listing's own
    except OSError:
        return "its file descriptors cannot be counted"
    if limit - used >= DESCRIPTORS:
        return ""
    return f"{used} of {limit} file descriptors are in use"


def little_memory() -> str:
    """Why no thread should be started in this process, or ""."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return "its address space is limited and its size is not known"
    used = pages * resource.getpagesize()
    if limit - used >= ADDRESS_SPACE:
        return ""
    return f"{used >> 20} of {limit >> 20} MiB of address space are in use"


def few_threads(ranks: int) -> str:
    """Why torch's worker server should not be started in this process, or "".

    It starts all its threads at once, and one that cannot be made ends the process.

    Args:
        ranks: How many ranks of this node may start theirs at the same moment.
    """
    server = 1 + max(SERVER_THREADS, (os.cpu_count() or 1) - 1)
    wanted = (server + THREADS) * max(ranks, 1)
    for used, limit, whose in (*_of_user(wanted), *_of_groups()):
        if limit - used < wanted:
            return f"{used} of {limit} threads of {whose} are in use"
    return ""


def _of_user(wanted: int) -> Iterator[tuple[int, int, str]]:
    """Threads of this process's user, and their limit; nothing where there is plainly room."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if limit == resource.RLIM_INFINITY or _is_root() or limit - _all_threads() >= wanted:
        return
    used = 0
    with os.scandir(PROC) as entries:
        for entry in entries:
            used += _threads_of(entry.path) if entry.name.isdigit() else 0
    yield used, limit, "its user"


def _all_threads() -> int:
    """Threads of the whole system, of whichever user; a number beyond limits where that hides."""
    try:
        return int((PROC / "loadavg").read_text(encoding="ascii").split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 1 << 62


def _threads_of(process: str) -> int:
    """Threads of a process of this user; 0 of others, and of one that has ended."""
    try:
        if os.stat(process).st_uid != os.getuid():  # noqa: PTH116 - quicker
            return 0
        stat = Path(process, "stat").read_bytes()
        return int(stat.rpartition(b")")[2].split()[17])
    except (OSError, ValueError, IndexError):
        return 0


def _is_root() -> bool:
    """Whether this is the user whom the kernel does not limit; root of a container may be none."""
    if os.getuid():
        return False
    try:
        return (PROC / "self" / "uid_map").read_text(encoding="ascii").split()[2] == _WHOLE
    except (OSError, IndexError):
        return False


def _of_groups() -> Iterator[tuple[int, int, str]]:
    """Threads of each cgroup that this process is in, and their limit."""
    try:
        lines = (PROC / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") > 1):
        if controllers in {"", "pids"}:
            place = CGROUPS / controllers / path.strip("/")
            for folder in (place, *place.parents):
                if not folder.is_relative_to(CGROUPS):
                    break
                yield from _of_group(folder)


def _of_group(folder: Path) -> Iterator[tuple[int, int, str]]:
    try:
        used = int((folder / "pids.current").read_text(encoding="ascii"))
        limit = int((folder / "pids.max").read_text(encoding="ascii"))  # "max": no limit
    except (OSError, ValueError):
        return
    yield used, limit, "its cgroup"
