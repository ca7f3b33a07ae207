"""The ends of logs: where the ranks' output goes, torchelastic's error files, and globs.

The kernel knows which file a process writes to (/proc/PID/fd/1), so output that SLURM or torchrun
sends to files is found without being told where, and read even where the file has been deleted.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from unhang.collect.ranks import Target

MAX_LOGS = 10_000
_DELETED = " (deleted)"


def take_logs(
    targets: Iterable[Target], patterns: Sequence[str], tail_bytes: int
) -> tuple[dict[str, bytes], list[str]]:
    """Read the ends of all logs that are known, each file once.

    Returns:
        Content by file name, which begins with "rank_N." where only one rank writes to it, and
        notes on what could not be read.
    """
    writers: dict[Path, set[int]] = {}
    places: dict[Path, Path] = {}
    for target in targets:
        for path, place in (*_outputs(target.process.pid), *_error_file(target)):
            writers.setdefault(path, set()).add(target.rank)
            places[path] = place
    notes = []
    for pattern in patterns:
        found = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207 - a pattern may be absolute
        if not found:
            notes.append(f"log {pattern}: no such file")
        for path in found[:MAX_LOGS]:
            writers.setdefault(path, set())
    logs: dict[str, bytes] = {}
    for path, ranks in writers.items():
        data = _tail(places.get(path, path), tail_bytes)
        if data is None:
            notes.append(f"{path} cannot be read")
        elif data:
            logs[_name(path, ranks, logs)] = data
    return logs, notes


def _outputs(pid: int) -> Iterator[tuple[Path, Path]]:
    """The files behind standard output and error, and where they can be read."""
    for descriptor in (1, 2):
        link = Path(f"/proc/{pid}/fd/{descriptor}")
        try:
            if stat.S_ISREG(link.stat().st_mode):
                path = link.readlink()
                yield path, link if path.name.endswith(_DELETED) else path
        except OSError:
            continue


def _error_file(target: Target) -> Iterator[tuple[Path, Path]]:
    told = (target.process.environ or {}).get("TORCHELASTIC_ERROR_FILE", "")
    if told.startswith("/") and Path(told).is_file():
        yield Path(told), Path(told)


def _tail(path: Path, limit: int) -> bytes | None:
    """The end of a regular file, from the beginning of a line; None where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return None
            file.seek(max(0, status.st_size - limit))
            data = file.read(limit)
    except OSError:
        return None
    if len(data) < status.st_size:
        data = data[data.find(b"\n") + 1 :]
    return data


def _name(path: Path, ranks: set[int], taken: Iterable[str]) -> str:
    own = path.name.removesuffix(_DELETED)
    plain = "".join(c if c.isalnum() or c in "_.-" else "_" for c in own)[-120:]
    name = f"rank_{next(iter(ranks))}.{plain}" if len(ranks) == 1 and min(ranks) >= 0 else plain
    stem, number, used = name, 1, set(taken)
    while name in used:
        number += 1
        name = f"{number}.{stem}"
    return name
