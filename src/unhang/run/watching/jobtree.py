"""What the supervisor does to a job's processes: holds its launchers, freezes it, ends it.

Only processes that descend from the command, and each by its pid and the moment that it began.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from unhang.collect.processes import ProcessTable, read_process, read_processes
from unhang.collect.ranks import is_launcher
from unhang.record.contact.marks import start_ticks, stat_words

GRACE_S = 10.0
_DEAD = ("Z", "X")


class JobTree:
    """The command and what descends from it.

    Attributes:
        child: Process id of the command.
    """

    def __init__(self, child: int) -> None:
        self.child = child
        self._parents: dict[int, int] = {}
        self._held: list[int] = []
        self._frozen: list[tuple[int, int]] = []

    def add(self, rank: int) -> None:
        """Note who has started a rank's process, while that can be read."""
        self._parents[rank] = _parent(rank)

    def hold_launcher(self, rank: int, ranks: Iterable[int]) -> None:
        """Stop the launcher of a rank's process, until `let_go`.

        A launcher that is stopped for some seconds does not mind; ranks that it has ended because
        one of them failed leave nothing.

        Args:
            rank: The process that has ended.
            ranks: The processes of all ranks, which are not stopped.
        """
        launcher = self._parents.get(rank, 0)
        if launcher in ranks or launcher in self._held or not self._is_below(launcher):
            return
        _send(launcher, signal.SIGSTOP)
        self._held.append(launcher)

    def beside(self, rank: int, ranks: Iterable[int]) -> list[int] | None:
        """The other ranks of a rank's launcher; None where none that starts ranks has started it.

        Args:
            rank: The process that has ended.
            ranks: The processes of all ranks.
        """
        pid = self._parents.get(rank, 0)
        launcher = read_process(pid) if pid else None
        if launcher is None or launcher.state in _DEAD or not is_launcher(launcher):
            return None
        return [each for each in ranks if each != rank and self._parents.get(each) == pid]

    def _is_below(self, pid: int) -> bool:
        """Whether a process is the command or descends from it; in haste, so without a table."""
        while pid > 1 and pid != self.child:
            pid = _parent(pid)
        return pid == self.child

    def let_go(self) -> None:
        """Let held launchers go on."""
        for pid in self._held:
            _send(pid, signal.SIGCONT)
        self._held.clear()

    def freeze(self) -> None:
        """Stop all of them, the youngest first, until `thaw`."""
        self._frozen = self._all()
        for process in reversed(self._frozen):
            _send_to(process, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the frozen go on."""
        for process in self._frozen:
            _send_to(process, signal.SIGCONT)
        self._frozen = []

    def end(self, is_over: Callable[[], bool]) -> None:
        """Ask the command to end; after a while end whatever of it is left.

        Args:
            is_over: Whether the command has ended.
        """
        tree = self._all()
        _send(self.child, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline and not is_over():
            time.sleep(0.1)
        for process in tree:
            _send_to(process, signal.SIGKILL)

    def _all(self) -> list[tuple[int, int]]:
        return [(p.pid, p.start_ticks) for p in read_processes().below(self.child)]


def _parent(pid: int) -> int:
    return int(next(iter(stat_words(pid)[1:]), 0))


def _send(pid: int, number: int) -> None:
    with suppress(OSError):
        os.kill(pid, number)


def _send_to(process: tuple[int, int], number: int) -> None:
    """Signal the very process that was seen before: its pid, and when it began."""
    pid, began = process
    if start_ticks(pid) == began:
        _send(pid, number)


def starter_below(table: ProcessTable, child: int) -> str:
    """The launcher of whole nodes (srun, mpirun…) in a command, by its name; "" without any."""
    found = (each for each in table.below(child) if not each.python and is_launcher(each))
    return next((each.command.split()[0].rpartition("/")[2] for each in found), "")
