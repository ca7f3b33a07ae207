"""What unix sockets need on both sides: names that fit, and who is at the other end."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LONGEST_NAME: Final = 107
"""Bytes that the kernel takes for a socket's name."""


@contextlib.contextmanager
def short(path: Path) -> Iterator[str]:
    """A name for a socket's path that fits: a long one goes through its directory's descriptor.

    Raises:
        OSError: The directory cannot be opened.
    """
    if len(os.fsencode(path)) <= LONGEST_NAME:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def peer_uid(connection: socket.socket) -> int:
    """The user id of the process at the other end of a unix socket."""
    return _peer(connection)[1]


def peer_pid(connection: socket.socket) -> int:
    """The process at the other end of a unix socket: the one that called listen(), or connected."""
    return _peer(connection)[0]


def _peer(connection: socket.socket) -> tuple[int, int]:
    size = struct.calcsize("3i")
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, _ = struct.unpack("3i", data)
    return int(pid), int(uid)
