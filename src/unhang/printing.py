"""`unhang.print`: lines of many ranks that never tear each other apart.

One text is written with one system call under a lock that all processes of this user on this node
share, each line with its rank. Standard library only: it is used inside jobs.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from typing import TextIO

from unhang.rankenv import rank_env


def rank_here() -> str:
    """This process's rank by torch.distributed if it is up, else by its environment, else "?"."""
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        return str(torch.get_rank())
    told = rank_env(os.environ)
    return str(told.rank) if told else "?"


def print_atomic(
    *values: object, sep: str = " ", end: str = "\n", file: TextIO | None = None
) -> None:
    """Print like `print`, each line behind "[rank3]: ", whole even when all ranks print at once.

    Args:
        values: What to print.
        sep: Between the values.
        end: Behind the last one.
        file: A text stream with a file descriptor; standard output by default.
    """
    text = sep.join(map(str, values)) + end
    prefix = f"[rank{rank_here()}]: "
    lines = [prefix + line for line in text.splitlines(keepends=True)]
    stream = file or sys.stdout
    stream.flush()
    data = "".join(lines).encode(stream.encoding or "utf-8", "replace")
    with _lock():
        try:
            descriptor = stream.fileno()
        except OSError:  # a stream in memory has no descriptor, and no process to share it with
            stream.write(data.decode(stream.encoding or "utf-8"))
            return
        while data:
            data = data[os.write(descriptor, data) :]


class _lock:  # noqa: N801 - used as a function in a with statement
    """A lock file of this user; printing goes on without it where it cannot be made."""

    def __enter__(self) -> None:
        self.descriptor = -1
        path = os.path.join(tempfile.gettempdir(), f"unhang-print-{os.getuid()}.lock")  # noqa: PTH118 - cheap
        try:
            self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            fcntl.flock(self.descriptor, fcntl.LOCK_EX)
        except OSError:
            return

    def __exit__(self, *_: object) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)  # which gives the lock back
