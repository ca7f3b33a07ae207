"""A small process next to the supervisor: passes output on, and bears witness to signals.

It is forked before the command starts and lives as long as any process holds a pipe that it pumps,
so a command that leaves a daemon behind, or a supervisor that is killed, breaks no pipe. Being in
the same process group, it gets the signals that are sent to the whole group and tells the
supervisor: those have reached the command already and must not be passed on a second time.
It imports nothing but what is loaded before the fork and does not know what flows through it.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from unhang.run.child.streams import Keeper, Stream, keep

PASSED_ON = frozenset({
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGVTALRM, signal.SIGXCPU, signal.SIGIO, signal.SIGPWR, signal.SIGWINCH,
    signal.SIGTSTP, signal.SIGCONT,
})  # fmt: skip
"""Signals that a user may send to a wrapper and mean the command."""

_CHUNK = 1 << 16
_WITNESS_S, _DRAIN_S = 0.05, 2.0


class Shadow:
    """The supervisor's side.

    Attributes:
        redirections: (descriptor for the child, its number in the child), to be closed here once
            the child has them.
    """

    def __init__(
        self, orders: int, answers: int, witness: int, redirections: list[tuple[int, int]]
    ) -> None:
        self.redirections = redirections
        self._orders = orders
        self._answers = answers
        self._witness = witness

    def close_redirections(self) -> None:
        """Let go of the child's ends, so that the pump sees when the last writer is gone."""
        for fd in {fd for fd, _ in self.redirections}:
            os.close(fd)
        self.redirections.clear()

    def reached_group(self, number: int) -> bool:
        """Whether a signal that we got was sent to the whole process group."""
        while select.select([self._witness], [], [], _WITNESS_S)[0]:
            seen = os.read(self._witness, 1)
            if not seen:
                return False
            if seen[0] == number:
                return True
        return False

    def drain(self) -> None:
        """Wait until everything that was written so far is on its way."""
        try:
            os.write(self._orders, b"d")
        except OSError:
            return  # It is gone, and its output with it.
        select.select([self._answers], [], [], _DRAIN_S)


class _Pump(NamedTuple):
    source: int
    target: int
    keeper: Keeper


def start_shadow(streams: Sequence[Stream], folder: str) -> Shadow:
    """Fork the process.

    Args:
        streams: Those with `how` "pipe" or "terminal" are pumped.
        folder: Where their last bytes are kept.

    All signals that a user may send must be blocked by the caller.
    """
    orders_read, orders = os.pipe()
    answers, answers_write = os.pipe()
    witness, witness_write = os.pipe()
    pumps: list[_Pump] = []
    redirections: list[tuple[int, int]] = []
    for stream in streams:
        if stream.how not in ("pipe", "terminal"):
            continue
        source, sink = os.pipe() if stream.how == "pipe" else _terminal_like(stream.fds[0])
        redirections += [(sink, fd) for fd in stream.fds]
        pumps.append(_Pump(source, stream.fds[0], keep(folder, stream)))
    pid = os.fork()
    if pid == 0:
        # Its own hold on the reading end: a signal after the supervisor's end breaks no pipe.
        _be_shadow(pumps, orders_read, answers_write, (witness, witness_write))
    for fd in (orders_read, answers_write, witness_write, *(pump.source for pump in pumps)):
        os.close(fd)
    return Shadow(orders, answers, witness, redirections)


def _terminal_like(fd: int) -> tuple[int, int]:
    """A terminal of the size and settings of `fd` that passes bytes on unchanged."""
    import termios

    master, slave = os.openpty()
    attributes = termios.tcgetattr(fd)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    _copy_size(fd, slave)
    return master, slave


def _copy_size(source: int, target: int) -> None:
    import fcntl
    import termios

    size = fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8)
    fcntl.ioctl(target, termios.TIOCSWINSZ, size)


def _be_shadow(pumps: list[_Pump], orders: int, answers: int, witness: tuple[int, int]) -> None:
    """Run as the forked process; never returns."""
    try:
        _let_go({orders, answers, *witness, *(pump.source for pump in pumps)})
        _bear_witness(witness[1], pumps)
        _run(pumps, orders, answers)
    finally:
        os._exit(0)


def _let_go(wanted: set[int]) -> None:
    """Close every descriptor that is not needed, so that no reader waits for us to close it."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - no pathlib in this process
        fd = int(name)
        if fd > 2 and fd not in wanted:  # noqa: PLR2004 - the three standard streams
            try:
                os.close(fd)
            except OSError:
                continue  # The listing's own descriptor is gone already.
    os.chdir("/")


def _bear_witness(pipe: int, pumps: list[_Pump]) -> None:
    def note(number: int, _frame: object) -> None:
        if number == signal.SIGWINCH:
            for pump in pumps:
                if os.isatty(pump.target) and os.isatty(pump.source):
                    _copy_size(pump.target, pump.source)

    os.set_blocking(pipe, False)
    signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    for number in PASSED_ON:
        signal.signal(number, note)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _run(pumps: list[_Pump], orders: int, answers: int) -> None:
    open_pumps = {pump.source: pump for pump in pumps}
    poll = select.poll()
    for fd in (*open_pumps, orders):
        poll.register(fd, select.POLLIN)
    supervised = True

    def forget(fd: int) -> None:
        poll.unregister(fd)
        os.close(fd)
        del open_pumps[fd]

    while supervised or open_pumps:
        for fd, _ in poll.poll():
            if fd in open_pumps:
                if not _pass_on(open_pumps[fd]):
                    forget(fd)
            elif not os.read(orders, 1):
                supervised = False
                poll.unregister(orders)
            else:
                _drain(open_pumps, forget)
                with suppress(OSError):  # It has not waited for the answer.
                    os.write(answers, b"d")


def _drain(open_pumps: dict[int, _Pump], forget: Callable[[int], None]) -> None:
    """Pass on all that is there, without waiting for more."""
    for fd, pump in list(open_pumps.items()):
        while select.select([fd], [], [], 0)[0]:
            if not _pass_on(pump):
                forget(fd)
                break


def _pass_on(pump: _Pump) -> bool:
    """Copy one chunk; False at the end, or where no process reads the target any more."""
    try:
        data = os.read(pump.source, _CHUNK)
    except OSError:  # EIO: the last writer of a terminal is gone
        return False
    if not data:
        return False
    pump.keeper.write(data)
    view = memoryview(data)
    try:
        while view:
            select.select([], [pump.target], [])  # Another process may have made it non-blocking.
            view = view[os.write(pump.target, view[:_CHUNK]) :]
    except OSError:
        return False
    return True
