"""Messages between ranks and referee: JSON after its length, over a unix socket.

A thread of a rank has a connection of its own, so that one that waits holds up no other. It refuses
to know what messages mean.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from typing import Any, Final, TypeAlias

Message: TypeAlias = dict[str, Any]
Foreign: TypeAlias = Any
"""A value of torch's, or of a script's: ours to hand on, not to check."""

LENGTH: Final = struct.Struct("<I")


class GoneError(Exception):
    """The referee has ended the rehearsal."""


def encoded(message: Message) -> bytes:
    """A message as it travels."""
    data = json.dumps(message, separators=(",", ":")).encode()
    return LENGTH.pack(len(data)) + data


def decoded(buffer: bytearray) -> Message | None:
    """Take the next whole message off a buffer; None where none is whole yet."""
    if len(buffer) < LENGTH.size:
        return None
    end = LENGTH.size + LENGTH.unpack_from(buffer)[0]
    if len(buffer) < end:
        return None
    message: Message = json.loads(buffer[LENGTH.size : end])
    del buffer[:end]
    return message


class RankLine:
    """A rank's side: `tell` sends, `ask` sends and waits for the answer.

    Attributes:
        rank: The rank, as soon as it is known.
        joined: The process that has joined the job; a fork of it has not.
        told_end: The process that has told its end.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.rank = int(os.environ.get("RANK", "-1"))
        self.joined = self.told_end = 0
        self._local = threading.local()

    def tell(self, kind: str, /, **fields: object) -> None:
        """Send a message that has no answer."""
        connection = self._connection()
        try:
            connection.sendall(encoded({"t": kind, **fields}))
        except OSError as error:
            raise GoneError from error

    def ask(self, kind: str, /, **fields: object) -> Message:
        """Send a message and wait for its answer."""
        self.tell(kind, **fields)
        return self._answer(self._connection())

    def _connection(self) -> socket.socket:
        """This thread's connection; a fork makes its own."""
        pid = os.getpid()
        if getattr(self._local, "pid", 0) != pid:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(self.path)
            except OSError as error:
                raise GoneError from error
            main = threading.current_thread() is threading.main_thread()
            hello = {"t": "hello", "pid": pid, "rank": self.rank, "main": main}
            connection.sendall(encoded(hello))
            self._local.connection, self._local.pid = connection, pid
            self._local.buffer = bytearray()
        found: socket.socket = self._local.connection
        return found

    def _answer(self, connection: socket.socket) -> Message:
        buffer: bytearray = self._local.buffer
        while (message := decoded(buffer)) is None:
            try:
                data = connection.recv(1 << 16)
            except OSError as error:
                raise GoneError from error
            if not data:
                raise GoneError
            buffer += data
        return message
