"""The lines of the user's code at which ranks stand, taken while the processes are there.

Of each rank's main thread the innermost line of the user's own code, with a few lines around it,
read as the process itself would read that file. Secrets are taken out, sizes and counts are
bounded. It is called next to the looks that it takes its lines from, and on no saved stacks: a path
in a case from elsewhere must not make us read a file of this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from unhang.model import Frame, ProcessSample
from unhang.regular import open_regular
from unhang.stacks.ownership import user_frame
from unhang.telltale import without_secrets

SCHEMA: Final = "unhang.source/1"
AROUND: Final = 3
_MOST_PLACES: Final = 64
_MOST_FILE: Final = 4 << 20
_MOST_LINE: Final = 160
_MOST_BYTES: Final = 64 << 10
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def excerpts_of(samples: Iterable[ProcessSample]) -> bytes:
    """The code at the lines of these looks, as JSON; b"" where none can be read.

    Args:
        samples: Of processes of this machine that were looked at just now.
    """
    found: list[dict[str, Any]] = []
    room = _MOST_BYTES
    for pid, frame in list(_places(samples))[:_MOST_PLACES]:
        excerpt = _excerpt(pid, frame)
        room -= sum(map(len, excerpt["lines"])) if excerpt else 0
        if room < 0:
            break
        found += [excerpt] if excerpt else []
    return json.dumps({"schema": SCHEMA, "excerpts": found}, indent=1).encode() if found else b""


def _places(samples: Iterable[ProcessSample]) -> Iterator[tuple[int, Frame]]:
    """Each line once, with a process that stands there."""
    seen: set[tuple[str, int]] = set()
    for sample in samples:
        for thread in sample.threads if sample.rank >= 0 else ():
            frame = user_frame(thread.frames) if thread.is_main else None
            if frame is None or frame.line <= 0 or not frame.file.endswith(".py"):
                continue
            if (frame.file, frame.line) not in seen:
                seen.add((frame.file, frame.line))
                yield sample.pid, frame


def _excerpt(pid: int, frame: Frame) -> dict[str, Any] | None:
    """A few lines; None where the file is not there, or has no such line."""
    for path in _paths(pid, frame.file):
        with suppress(OSError), open_regular(path) as file:
            data = file.read(_MOST_FILE + 1)
            lines = data.decode("utf-8", "replace").splitlines()
            if len(data) > _MOST_FILE or len(lines) < frame.line:
                return None
            first = max(frame.line - AROUND, 1)
            return {
                "file": frame.file,
                "line": frame.line,
                "first": first,
                "lines": [_clean(line) for line in lines[first - 1 : frame.line + AROUND]],
                "changed": os.fstat(file.fileno()).st_mtime > _began_s(pid),
                "digest": "sha256:" + hashlib.sha256(data).hexdigest(),
            }
    return None


def _paths(pid: int, file: str) -> Iterator[str]:
    """Where the process finds its file: it may be in a container, or named from its folder."""
    if file.startswith("/"):
        yield f"/proc/{pid}/root{file}"
        yield file
    else:
        yield f"/proc/{pid}/cwd/{file}"


def _clean(line: str) -> str:
    return without_secrets(line)[:_MOST_LINE].rstrip()


def _began_s(pid: int) -> float:
    """When a process began, wall clock; infinite where nothing tells."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as its neighbour
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime", encoding="ascii") as file:  # noqa: PTH123
            up_s = float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return float("inf")
    return time.time() - up_s + ticks / _TICKS
