"""Whether the job has room for us: descriptors, and memory where its address space is limited.

What the recorder takes, the job no longer has. Where it has little itself, the recorder makes do
with its heartbeat, which keeps no descriptor, and says so in the mark.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

__all__ = ["few_descriptors", "little_memory"]

DESCRIPTORS: Final = 64
"""So many must be free: the recorder keeps four, and a job opens one or more for each peer."""

ADDRESS_SPACE: Final = 2 << 30
"""So many bytes: each thread of torch's worker server reserves a stack and an arena, and one that
cannot be made would end the process."""


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
