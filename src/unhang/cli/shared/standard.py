"""Our standard streams, which may be closed, full, or without a reader.

A closed descriptor is held open, because the next file to be opened would get its number, and what
is meant for people would go into it. What cannot be said on stderr is no reason to stop; what
cannot be written to stdout is an error, which `unhang.cli.main` turns into a sentence and an exit
code.
"""

from __future__ import annotations

import atexit
import errno
import io
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer

QUIET_END: Final = 128 + 13
"""The exit code of a program whose reader has gone, as shells know it: SIGPIPE."""

_WRITING: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE}
)
_STDOUT, _STDERR = 1, 2


class _Forgiving(io.FileIO):
    """A descriptor that takes everything, also where nothing can be written to it."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def hold_streams() -> None:
    """Make the three descriptors and their Python objects safe to use; once a process.

    What was closed stays so for programs that we start: descriptors opened here are not inherited.
    """
    for number in range(_STDERR + 1):
        try:
            os.fstat(number)
        except OSError:  # noqa: PERF203 - three rounds
            os.open(os.devnull, os.O_RDONLY)  # The lowest number that is free: this one.
    if sys.stdout is None:
        sys.stdout = open(_STDOUT, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - a descriptor
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Forgiving(_STDERR, "w", closefd=False)),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=True,
    )


def is_of_output(error: OSError) -> bool:
    """Whether an error is one of writing to a stream: it names no file."""
    return error.filename is None and error.errno in _WRITING


def discard_output() -> None:
    """Let what is still in stdout's buffer go nowhere: Python would try once more at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, _STDOUT)
    os.close(null)


def end_at_once(code: int) -> None:
    """End the process without freeing all that it holds, which takes a seventh of a small verdict.

    What was registered for the end is run. Nothing happens if another thread runs, or a
    debugger or profiler is attached.
    """
    if threading.active_count() > 1 or sys.getprofile() or sys.gettrace() or sys.flags.interactive:
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - what os._exit would leave out
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
