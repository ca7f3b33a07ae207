"""One look at a process: what the kernel had counted of it and of all that it has started."""

from __future__ import annotations

from typing import NamedTuple


class ProcessLook(NamedTuple):
    """What the kernel had counted of a process at one moment.

    Attributes:
        time_s: A clock that never goes back, in seconds.
        state: The kernel's letter of the main thread (R, S, D, T, t, Z, X), or "".
        wait_channel: The kernel function in which the main thread waits, or "".
        cpu_s: CPU time of the process and all below it, in seconds.
        ran_s: How long the main thread has been on a core, in seconds.
        woken: How often the main thread has waited and gone on.
        moved: Bytes read and written by system calls, and from and to devices.
        stored: Bytes from and to devices alone: no sockets, pipes or terminals, and nothing that
            was in memory already.
        said: Bytes that the main thread wrote to files, pipes and terminals, as a print does. What
            goes to sockets by send(2) is none of these.
        helped_s: CPU time of the processes below it, in seconds.
        started: How many processes were seen to appear below it so far.
        traffic: Bytes over TCP; -1 where it was not asked for.
        tasks_s: CPU time of the other tasks and actors of its node's Ray; -1 where it is none.
        disk: The kernel holds it, or a process below it, as a slow disk does.
        disturbed: It was looked into since the look before, which stops and wakes it.
    """

    time_s: float
    state: str = ""
    wait_channel: str = ""
    cpu_s: float = 0.0
    ran_s: float = 0.0
    woken: int = 0
    moved: int = 0
    stored: int = 0
    said: int = 0
    helped_s: float = 0.0
    started: int = 0
    traffic: int = -1
    tasks_s: float = -1.0
    disk: bool = False
    disturbed: bool = False
