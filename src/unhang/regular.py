"""Files that may be anything: regular ones are opened, nothing else is waited for.

A folder of evidence comes from outside. A FIFO or a device in it would hold a reader up for ever;
the descriptor tells what was opened, for it may have been another when it was listed.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO, Final

__all__ = ["open_regular", "reason"]

_FLAGS: Final = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")
)
"""What a system lacks of these it does not need: outside Linux a flag may be missing."""


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        OSError: It cannot be read, or is something else.
    """
    descriptor = os.open(path, _FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is no regular file")
    return os.fdopen(descriptor, "rb")


def reason(error: Exception) -> str:
    """Why something could not be read, in the words of the system or of who refused it."""
    return getattr(error, "message", "") or getattr(error, "strerror", "") or str(error)
