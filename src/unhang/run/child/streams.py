"""The command's output: it goes where it always went, and its last lines are kept for the case.

Where the output is a file already, nothing stands between: the file is read when it matters.
A pipe is passed through a pump (see `shadow`), because it cannot be read twice. A terminal is
left alone unless the user asks, since programs that draw on it want the real one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

KEEP_BYTES = 8 << 20
"""The pump keeps the last one to two times as much of each stream."""

_STDOUT, _STDERR = 1, 2


class Stream(NamedTuple):
    """One of the command's output streams.

    Attributes:
        name: "stdout", "stderr", or "output" where both are one.
        fds: The descriptors of the command that it stands for.
        how: "file" (read where it is), "pipe" or "terminal" (pumped), "" (not kept).
        start: Size of the file when the command began; what is before is not its output.
        why_not: Why it is not kept, or "".
    """

    name: str
    fds: tuple[int, ...]
    how: str
    start: int = 0
    why_not: str = ""


def plan_streams(mode: str = "auto") -> tuple[Stream, ...]:
    """Look at our own stdout and stderr and decide how each is kept.

    Args:
        mode: "auto", "always" (terminals too) or "never".
    """
    stats = {fd: _fstat(fd) for fd in (_STDOUT, _STDERR)}
    out, err = stats[_STDOUT], stats[_STDERR]
    if out and err and (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino):
        return (_plan("output", (_STDOUT, _STDERR), out, mode),)
    return (_plan("stdout", (_STDOUT,), out, mode), _plan("stderr", (_STDERR,), err, mode))


def _fstat(fd: int) -> os.stat_result | None:
    """None where the command gets no such descriptor."""
    try:
        return os.fstat(fd) if os.get_inheritable(fd) else None
    except OSError:
        return None


def _plan(name: str, fds: tuple[int, ...], status: os.stat_result | None, mode: str) -> Stream:
    why_not = ""
    if status is None:
        why_not = "it is closed"
    elif mode == "never":
        why_not = "--logs never"
    elif stat.S_ISREG(status.st_mode):
        return Stream(name, fds, "file", start=status.st_size)
    elif stat.S_ISFIFO(status.st_mode):
        return Stream(name, fds, "pipe")
    elif not os.isatty(fds[0]):
        why_not = "it is neither a file, a pipe nor a terminal"
    elif mode == "always":
        return Stream(name, fds, "terminal")
    else:
        why_not = "it is a terminal; --logs always keeps it"
    return Stream(name, fds, "", why_not=why_not)


class Keeper:
    """Writes a stream into a file and starts a new one when it is full, keeping one old one.

    A full disk ends the keeping and nothing else.
    """

    def __init__(self, path: str, limit: int = KEEP_BYTES) -> None:
        self.path = path
        self.limit = limit
        self.broken = False
        self._size = 0
        self._fd = -1

    def write(self, data: bytes) -> None:
        """Keep `data`."""
        if self.broken:
            return
        try:
            if self._fd < 0 or self._size >= self.limit:
                self._next_file()
            os.write(self._fd, data)
        except OSError:
            self.broken = True
        self._size += len(data)

    def _next_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            os.replace(self.path, f"{self.path}.1")  # noqa: PTH105 - the pump does without pathlib
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o600)
        self._size = 0


def keep(folder: str, stream: Stream) -> Keeper:
    """The keeper of a pumped stream."""
    return Keeper(f"{folder}/{stream.name}.log")


def tail_of(stream: Stream, folder: str, limit: int) -> bytes:
    """The last `limit` bytes that the command wrote to a stream; OSError where it cannot be read.

    Args:
        stream: As planned.
        folder: Where the pump keeps its files.
        limit: Bytes.
    """
    if stream.how == "file":
        return _tail([f"/proc/self/fd/{stream.fds[0]}"], limit, stream.start)
    if not stream.how:
        return b""
    path = f"{folder}/{stream.name}.log"
    return _tail([path, f"{path}.1"], limit, 0)


def _tail(newest_first: Sequence[str], limit: int, start: int) -> bytes:
    data = b""
    for path in newest_first:
        if len(data) < limit and os.path.exists(path):  # noqa: PTH110 - as above
            data = end_of(path, limit - len(data), start) + data
    return data


def end_of(path: str, limit: int, start: int = 0) -> bytes:
    """The last `limit` bytes of a file, none before `start`; OSError where it cannot be read."""
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        size = file.seek(0, os.SEEK_END)
        # A file that shrank was emptied and begun again: all of it is the command's.
        file.seek(max(size - limit, start if start <= size else 0))
        return file.read(limit)
