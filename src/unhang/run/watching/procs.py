"""The few things that watching needs from /proc beyond `unhang.collect.processes`, read cheaply.

A process that is gone, or belongs to another user, gives None or nothing: both are ordinary.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from unhang.activity.looks import ProcessLook
from unhang.collect.processes import ProcessTable, read_process
from unhang.record.contact.marks import stat_words
from unhang.room import pairs_of, text_of
from unhang.run.watching.traffic import bytes_of

_STATUS_WORD = 49
"""Position of `exit_code` behind the command in /proc/PID/stat (see proc(5), field 52)."""


def exit_status(pid: int) -> int | None:
    """How a process ended, as shells say it, while no process has waited for it yet; else None."""
    words = stat_words(pid)
    if len(words) <= _STATUS_WORD or words[0] not in ("Z", "X"):
        return None
    code = os.waitstatus_to_exitcode(int(words[_STATUS_WORD]))
    return 128 - code if code < 0 else code


_PIDFD_GET_INFO = 0xC040FF0B
"""_IOWR(0xFF, 11, 64 bytes): linux/pidfd.h, `struct pidfd_info` in its first version."""

_INFO_EXIT = 1 << 3
_INFO_BYTES, _EXIT_CODE_AT = 64, 60


def reaped_status(descriptor: int) -> int | None:
    """How a process ended that its parent has waited for, from a pidfd that was opened before.

    Linux 6.15 and later tell; None before that, and while no process has waited for it.
    """
    info = bytearray(_INFO_BYTES)
    struct.pack_into("Q", info, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    (mask,) = struct.unpack_from("Q", info)
    (status,) = struct.unpack_from("i", info, _EXIT_CODE_AT)
    if not mask & _INFO_EXIT:
        return None
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


_OF_RAY = "ray::"
_MOVED = ("rchar:", "wchar:", "read_bytes:", "write_bytes:")
_SWITCHES = "voluntary_ctxt_switches:"
_STORED = ("read_bytes:", "write_bytes:")


def work_of(
    pid: int,
    table: ProcessTable,
    now_s: float,
    ours: int = 0,
    sockets: Mapping[int, int] | None = None,
    *,
    rpc: bool = False,
) -> ProcessLook:
    """What a process and all below it have done so far.

    Args:
        pid: The process.
        table: All processes at that moment.
        now_s: The moment.
        ours: Thread of it that is our recorder's, whose work is none of the program's; 0 for none.
        sockets: Bytes of TCP sockets by inode; None where nothing asked for them.
        rpc: It is a worker of torch's RPC, with a thread that polls without a pause.
    """
    tree = list(table.below(pid))
    cpu_s, io = sum(max(p.cpu_s, 0.0) for p in tree), _io_bytes(str(p.pid) for p in tree)
    stored = _io_bytes((str(p.pid) for p in tree), _STORED)
    for number in (*([ours] if ours else []), *(_pollers(pid) if rpc else [])):
        thread = read_process(number, Path(f"/proc/{pid}/task"))
        if thread is not None:
            cpu_s, io = cpu_s - thread.cpu_s, io - _io_bytes([f"{pid}/task/{number}"])
            stored -= _io_bytes([f"{pid}/task/{number}"], _STORED)
    own = table.by_pid.get(pid)
    # The main thread of Ray's workers wakes others by writing to descriptors of its own.
    prints = own is not None and not own.command.startswith(_OF_RAY)
    return ProcessLook(
        now_s,
        state=own.state if own is not None else "",
        wait_channel=own.wait_channel if own is not None else "",
        cpu_s=cpu_s,
        ran_s=_ran_s(pid),
        woken=pairs_of(Path(f"/proc/{pid}/task/{pid}/status")).get(_SWITCHES, 0),
        moved=io,
        stored=stored,
        said=_io_bytes([f"{pid}/task/{pid}"], ("wchar:",)) if prints else 0,
        helped_s=sum(max(p.cpu_s, 0.0) for p in tree if p.pid != pid),
        traffic=-1 if sockets is None else bytes_of((p.pid for p in tree), sockets),
        disk=any(p.state == "D" for p in tree),
    )


_POLLER = "TP_SHM_reactor"
"""TensorPipe's thread that looks at memory shared with other processes, as often as it may run:
it took 6 % of a core on a crowded machine, and a third of one where there was room."""


def _pollers(pid: int) -> list[int]:
    """The threads of a process that poll for RPC, whatever the program does."""
    names = Path(f"/proc/{pid}/task").glob("[0-9]*/comm")
    return [int(name.parent.name) for name in names if text_of(name).strip() == _POLLER]


def ray_tasks_s(pid: int, table: ProcessTable, ranks: Container[int]) -> float:
    """CPU time of what Ray runs on this node next to a process and the other ranks; -1 for none.

    Its workers name themselves after what they run (ray/_private/worker.py, setproctitle).
    """
    own = table.by_pid.get(pid)
    if own is None or not own.command.startswith(_OF_RAY):
        return -1.0
    others = (p for p in table.children.get(own.ppid, ()) if p != pid and p not in ranks)
    tasks = (p for p in others if table.by_pid[p].command.startswith(_OF_RAY))
    return sum(max(p.cpu_s, 0.0) for task in tasks for p in table.below(task))


def _ran_s(pid: int) -> float:
    words = text_of(Path(f"/proc/{pid}/task/{pid}/schedstat")).split()
    return int(words[0]) / 1e9 if words else 0.0


def _io_bytes(folders: Iterable[str], kinds: tuple[str, ...] = _MOVED) -> int:
    """Bytes that processes read and wrote so far: by system calls, and from and to devices.

    A single long write shows in the latter while it goes on, in the former only once it ends.
    """
    counted = (pairs_of(Path(f"/proc/{folder}/io")) for folder in folders)
    return sum(told.get(kind, 0) for told in counted for kind in kinds)
