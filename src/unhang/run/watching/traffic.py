"""Bytes that processes sent and received over TCP.

What is received with recv(2) is in no counter of /proc/PID/io; the kernel's socket diagnostics tell
it per connection (sock_diag(7), linux/inet_diag.h, `struct tcp_info` in linux/tcp.h).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from unhang.activity.peers import sockets_of

_SOCK_DIAG, _BY_FAMILY = 4, 20
_DUMP_REQUEST = 0x301
_TCP_INFO = 2
_ANY_STATE = 0xFFF
_HEADER, _MESSAGE, _ATTRIBUTE = 16, 72, 4
_INODE_AT, _ACKED_AT, _INFO_BYTES = 68, 120, 136
_WAIT_S = 0.5
_ROOM = 1 << 18


def tcp_bytes() -> dict[int, int]:
    """Bytes sent and received by each TCP socket of this network namespace, by inode.

    Empty where the kernel does not tell.
    """
    found: dict[int, int] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        with (
            suppress(OSError, struct.error),
            socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as asked,
        ):
            asked.settimeout(_WAIT_S)
            asked.send(_request(family))
            found |= dict(_answers(asked))
    return found


def bytes_of(pids: Iterable[int], sockets: Mapping[int, int]) -> int:
    """Bytes of those sockets that these processes hold, each once."""
    if not sockets:
        return 0
    held = {int(inode) for pid in pids for _, inode in sockets_of(pid)}
    return sum(sockets.get(inode, 0) for inode in held)


def _request(family: int) -> bytes:
    wanted = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 1 << (_TCP_INFO - 1), _ANY_STATE)
    return struct.pack("=IHHII", _HEADER + len(wanted), _BY_FAMILY, _DUMP_REQUEST, 1, 0) + wanted


def _answers(asked: socket.socket) -> Iterator[tuple[int, int]]:
    while True:
        data = asked.recv(_ROOM)
        at = 0
        while at + _HEADER <= len(data):
            size, kind = struct.unpack_from("=IH", data, at)
            if kind != _BY_FAMILY or size < _HEADER + _MESSAGE:
                return  # the end, or a refusal
            yield from _counted(data[at + _HEADER : at + size])
            at += size + -size % 4
        if not data:
            return


def _counted(message: bytes) -> Iterator[tuple[int, int]]:
    (inode,) = struct.unpack_from("=I", message, _INODE_AT)
    at = _MESSAGE
    while at + _ATTRIBUTE <= len(message):
        size, kind = struct.unpack_from("=HH", message, at)
        if kind == _TCP_INFO and size >= _ATTRIBUTE + _INFO_BYTES:
            yield inode, sum(struct.unpack_from("=QQ", message, at + _ATTRIBUTE + _ACKED_AT))
        at += max(size + -size % 4, _ATTRIBUTE)
