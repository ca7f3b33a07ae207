"""For whom a process waits: the other end of its connection, or who holds the lock of a file.

The kernel tells the system call and its descriptors (/proc/PID/syscall, fdinfo), the connection of
each (/proc/PID/net/tcp), who of this node holds its other end, and who holds which lock
(/proc/locks). Where it may not be read, where the call is about several connections, or about none,
it names none.
"""

from __future__ import annotations

import os
import platform
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from unhang.telltale import harmless_command

PROC: Final = Path("/proc")

_DIRECT: Final = {
    "x86_64": frozenset({0, 1, 19, 20, 42, 44, 45, 46, 47}),
    "aarch64": frozenset({63, 64, 65, 66, 203, 206, 207, 211, 212}),
}
"""System calls whose first argument is the descriptor: read, write, connect, send and receive.

Those of x86_64 were tried on living processes; those of aarch64 are from the kernel's table alone.
"""
_POLL: Final = {"x86_64": frozenset({7, 271}), "aarch64": frozenset({73})}
_EPOLL: Final = {"x86_64": frozenset({232, 281, 441}), "aarch64": frozenset({22, 441})}

_LOCKING: Final = {"x86_64": frozenset({72, 73}), "aarch64": frozenset({25, 32})}
"""fcntl and flock. Those of x86_64 were tried on living processes, too."""

_MOST_POLLED: Final = 64
_MOST_BYTES: Final = 4 << 20
_MOST_PROCESSES: Final = 20_000
_MOST_COMMAND: Final = 120
_CONNECTED: Final = frozenset({"01", "02", "03", "04", "05", "08"})
"""Established, connecting, and the states of a connection that one side has left."""
_LISTENS: Final = "0A"
_ANYWHERE: Final = ("0.0.0.0", "[::]")  # noqa: S104 - compared with, not bound to


class Peer(NamedTuple):
    """The other end of a connection, or the holder of a lock.

    Attributes:
        address: "10.0.0.2:8000", "[fd00::2]:8000"; "" for a lock.
        pid: The process of this node that holds it; 0 where none was seen.
        command: Its command line, without secrets, cut.
        lock: The file whose lock it is; "" for a connection.
    """

    address: str = ""
    pid: int = 0
    command: str = ""
    lock: str = ""


class _Connection(NamedTuple):
    local: str
    remote: str
    inode: str
    listens: bool


def peer_of(pid: int, proc: Path = PROC) -> Peer:
    """For whom the main thread of a process waits; empty where nothing tells, or several could be.

    It itself, and what it has started, are its own: for these no other one is to be looked at.
    """
    with suppress(OSError, ValueError, struct.error, OverflowError):
        if locked := _locked(pid, proc):
            return _of_lock(locked, pid, proc)
        wanted = _descriptors(proc / str(pid))
        inodes = {inode for fd, inode in sockets_of(pid, proc) if fd in wanted} if wanted else set()
        table = list(_connections(proc / str(pid) / "net")) if inodes else []
        mine = [each for each in table if each.inode in inodes and not each.listens]
        if len({each.remote for each in mine}) == 1:
            return _told(mine[0], table, pid, proc)
    return Peer()


def _told(mine: _Connection, table: Iterable[_Connection], pid: int, proc: Path) -> Peer:
    holder = next(filter(None, (_holder(e.inode, proc) for e in _others(mine, table))), 0)
    return _held(Peer(mine.remote), holder, pid, proc)


def _held(what: Peer, holder: int, pid: int, proc: Path) -> Peer:
    """The same with who holds it; nothing where that is the process itself, or one of its own."""
    if not holder:
        return what
    if holder == pid or _descends(holder, pid, proc):
        return Peer()
    return what._replace(pid=holder, command=_command(proc / str(holder) / "cmdline"))


def _locked(pid: int, proc: Path) -> str:
    """The file for whose lock the main thread asks, if it is in a call that may; else ""."""
    words = (proc / str(pid) / "syscall").read_text(encoding="ascii").split()
    number = int(words[0]) if words and words[0].isdigit() else -1
    if number not in _LOCKING.get(platform.machine(), ()):
        return ""
    return os.readlink(proc / str(pid) / "fd" / str(int(words[1], 16)))  # noqa: PTH115 - no path, a name


def _of_lock(file: str, pid: int, proc: Path) -> Peer:
    """The holder of the lock for which a process waits: both have one number in the kernel's list.

    "2: FLOCK ADVISORY WRITE 100 fe:00:77 0 EOF", and below it "2: -> FLOCK … 200 …" for who waits.
    """
    with (proc / "locks").open(encoding="ascii") as lines:
        rows = [line.split() for line in lines.read(_MOST_BYTES).splitlines()]
    mine = next((r[0] for r in rows if r[1:2] == ["->"] and r[5:6] == [str(pid)]), None)
    if mine is None:
        return Peer()
    holders = (row[4] for row in rows if row[:1] == [mine] and row[1] != "->")
    holder = next((int(each) for each in holders if each.isdigit()), 0)
    if not _has_open(holder, file, proc):  # it let go or ended: one that it started keeps the lock
        holder = 0
    return _held(Peer(lock=file), holder, pid, proc)


def _has_open(pid: int, file: str, proc: Path) -> bool:
    """Whether a process still has a file open; of a lock, the kernel names who asked for it."""
    with suppress(OSError):
        for each in (proc / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if str(each.readlink()) == file:
                    return True
    return False


def _command(path: Path) -> str:
    words = path.read_text(encoding="utf-8", errors="replace")[:_MOST_BYTES].rstrip("\0")
    return " ".join(harmless_command(words.split("\0")))[:_MOST_COMMAND]


def _others(mine: _Connection, table: Iterable[_Connection]) -> Iterator[_Connection]:
    """The other end, and who listens there: a connection that was not accepted has no holder."""
    host, _, port = mine.remote.rpartition(":")
    table = list(table)
    yield from (e for e in table if (e.local, e.remote) == (mine.remote, mine.local))
    if any((e.local, e.remote) == (mine.remote, mine.local) for e in table):
        places = {f"{each}:{port}" for each in (host, *_ANYWHERE)}
        yield from (e for e in table if e.listens and e.local in places)


def _descriptors(folder: Path) -> list[int]:
    """The descriptors that the system call is about, in which the main thread stands."""
    words = (folder / "syscall").read_text(encoding="ascii").split()
    if not words or not words[0].isdigit():
        return []
    number, machine = int(words[0]), platform.machine()
    arguments = [int(word, 16) for word in words[1:7]]
    if number in _DIRECT.get(machine, ()):
        return arguments[:1]
    if number in _POLL.get(machine, ()):
        return _polled(folder, arguments)
    if number in _EPOLL.get(machine, ()):
        return list(_registered(folder / "fdinfo" / str(arguments[0])))
    return []


def _polled(folder: Path, arguments: Sequence[int]) -> list[int]:
    count = min(arguments[1], _MOST_POLLED)
    with (folder / "mem").open("rb", buffering=0) as memory:
        memory.seek(arguments[0])
        raw = memory.read(8 * count)
    return [fd for fd, _, _ in struct.iter_unpack("ihh", raw)]


def _registered(path: Path) -> Iterator[int]:
    for line in path.read_text(encoding="ascii").splitlines()[: 4 * _MOST_POLLED]:
        if line.startswith("tfd:"):
            yield int(line.split()[1])


def sockets_of(pid: int, proc: Path = PROC) -> Iterator[tuple[int, str]]:
    """The sockets that a process holds: descriptor and inode; none of another user's."""
    with suppress(OSError), os.scandir(proc / str(pid) / "fd") as entries:
        for entry in entries:
            with suppress(OSError):  # closed since
                link = os.readlink(entry.path)  # noqa: PTH115 - no path, a name
                if link.startswith("socket:["):
                    yield int(entry.name), link[8:-1]


def _connections(folder: Path) -> Iterator[_Connection]:
    """The connections of the network namespace of a process, as its kernel has them."""
    for name in ("tcp", "tcp6"):
        with suppress(OSError), (folder / name).open(encoding="ascii") as lines:
            for line in lines.read(_MOST_BYTES).splitlines()[1:]:
                words = line.split()
                if len(words) > 9 and words[3] in {*_CONNECTED, _LISTENS}:  # noqa: PLR2004 - columns
                    ends = _address(words[1]), _address(words[2])
                    yield _Connection(*ends, words[9], words[3] == _LISTENS)


def _address(text: str) -> str:
    """Make "127.0.0.1:8000" of "0100007F:1F40": words stand in the machine's own order."""
    digits, _, port = text.partition(":")
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    raw = struct.pack(f"={len(words)}I", *words)
    if raw.startswith(b"\0" * 10 + b"\xff\xff"):
        raw = raw[12:]
    if len(raw) == 4:  # noqa: PLR2004 - bytes of an address
        return f"{socket.inet_ntop(socket.AF_INET, raw)}:{int(port, 16)}"
    return f"[{socket.inet_ntop(socket.AF_INET6, raw)}]:{int(port, 16)}"


def _holder(inode: str, proc: Path) -> int:
    """The process that holds a socket; 0 where none of ours does."""
    if inode == "0":
        return 0
    pids = [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
    held = (
        pid for pid in pids[:_MOST_PROCESSES] for _, its in sockets_of(pid, proc) if its == inode
    )
    return next(held, 0)


def _descends(child: int, parent: int, proc: Path) -> bool:
    seen: set[int] = set()
    while child > 1 and child not in seen:
        seen.add(child)
        with suppress(OSError, ValueError, IndexError):
            line = (proc / str(child) / "stat").read_text(encoding="utf-8", errors="replace")
            child = int(line.rpartition(")")[2].split()[1])
        if child == parent:
            return True
    return False
