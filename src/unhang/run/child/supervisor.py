"""Runs the command as if nothing stood between: streams, signals, job control, exit code.

The command stays in our process group, as under `time` or `nice`, so a terminal's Ctrl-C and
Ctrl-Z reach it directly; what is sent to us alone is passed on, once. What there is to watch is
watched by a thread that is given the child's pid and later its end; if that thread fails, the
command does not notice.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from unhang.errors import UnhangError
from unhang.run.child.shadow import PASSED_ON, Shadow, start_shadow
from unhang.run.child.speak import say
from unhang.run.child.streams import Stream

SI_KERNEL = 0x80
"""`si_code` of a signal that the kernel sent by itself: on SIGINT, a terminal's Ctrl-C."""

_ENDING = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})
_WAITED = PASSED_ON | {signal.SIGCHLD}

_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
"""A second process or a pipe is not to be had: the command alone may still run."""


class NoRoomError(OSError):
    """Limits on descriptors, processes or memory leave no room for us next to the command."""


class NotFoundError(UnhangError):
    """There is no such command; the exit code is the one of a shell."""

    exit_code = 127


class NotExecutableError(UnhangError):
    """The command is there and cannot be executed; the exit code is the one of a shell."""

    exit_code = 126


class Companion(Protocol):
    """What runs next to the command. Its methods may be called from any thread."""

    def run(self, child: int) -> None:
        """Watch until `ended` was called and everything is written; runs in a thread."""

    def ended(self, exit_code: int) -> None:
        """The command is gone."""

    def hurry(self) -> None:
        """The user is impatient: finish with what there is."""

    def told_to_end(self) -> None:
        """The command gets a signal to end."""

    def told_to_continue(self) -> None:
        """The command gets SIGCONT."""


def supervise(
    command: Sequence[str],
    env: Mapping[str, str],
    streams: Sequence[Stream],
    folder: str,
    watcher: Companion,
) -> int:
    """Run `command` to its end and return its exit code, 128 + n where signal n ended it.

    Args:
        command: Program and arguments.
        env: Its environment.
        streams: How its output is kept.
        folder: Where the pump keeps what it passes on.
        watcher: Watches it from a thread of this process.

    Raises:
        NotFoundError: There is no such command.
        NotExecutableError: It cannot be executed.
        NoRoomError: We cannot stand next to it; it has not been started.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    try:
        shadow = _shadow(streams, folder)
        child = _spawn(command, env, shadow, before)
        shadow.close_redirections()
        thread = _started(threading.Thread(target=watcher.run, args=(child,), daemon=True))
        code = _wait(child, shadow, watcher)
        shadow.drain()
        watcher.ended(code)
        if thread is not None:
            _wait_for(thread, watcher)
        return code
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _shadow(streams: Sequence[Stream], folder: str) -> Shadow:
    try:
        return start_shadow(streams, folder)
    except OSError as error:
        raise NoRoomError(error.errno, error.strerror) from error


def _started(thread: threading.Thread) -> threading.Thread | None:
    """The thread, running; None where there is no room for one."""
    try:
        thread.start()
    except RuntimeError as error:
        say(f"the command runs unwatched: {error}")
        return None
    return thread


def _spawn(command: Sequence[str], env: Mapping[str, str], shadow: Shadow, mask: set[int]) -> int:
    actions: list[tuple[int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_DUP2, source, target) for source, target in shadow.redirections
    ]
    actions += [(os.POSIX_SPAWN_CLOSE, fd) for fd in {fd for fd, _ in shadow.redirections}]
    # Python ignores these for itself; a command expects their default.
    defaults = [signal.SIGPIPE, signal.SIGXFSZ]
    try:
        return os.posix_spawnp(
            command[0],
            list(command),
            env,
            file_actions=actions,
            setsigmask=mask,
            setsigdef=defaults,
        )
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise NoRoomError(error.errno, error.strerror) from error
        raise not_started(command[0], error) from error


def not_started(program: str, error: OSError) -> UnhangError:
    """Why a command cannot be started, as people and shells know it."""
    if isinstance(error, FileNotFoundError):
        hint = "check its spelling, and that its environment is active"
        if "/" in program and os.path.exists(program):  # noqa: PTH110 - no pathlib so early
            hint = "its first line (#!) names an interpreter that does not exist"
        return NotFoundError(f"command not found: {program}", hint)
    return NotExecutableError(
        f"cannot run {program}: {error.strerror}",
        "a script needs a #! line and mode +x",
    )


def _wait(child: int, shadow: Shadow, watcher: Companion) -> int:
    to_all: tuple[int, int] | None = None  # A signal, and who sends it to the whole group.
    while True:
        info = signal.sigwaitinfo(_WAITED)
        if info.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return 128 - code if code < 0 else code
            continue
        if info.si_signo in _ENDING:
            watcher.told_to_end()
        sender = (info.si_signo, info.si_pid)
        if info.si_code == SI_KERNEL or sender == to_all:
            pass  # The command has it already.
        elif shadow.reached_group(info.si_signo):
            to_all = sender  # `timeout` signals us first and then the group, us included.
        else:
            _pass_on(child, info.si_signo)
        if info.si_signo == signal.SIGCONT:
            watcher.told_to_continue()
        if info.si_signo == signal.SIGTSTP:
            _stop_as_well()


def _stop_as_well() -> None:
    """The command has stopped: so do we, or the shell would wait on.

    By the same signal, so that the kernel ignores it where it ignored it for the command.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})


def _pass_on(child: int, number: int) -> None:
    try:
        os.kill(child, number)
    except OSError:
        return  # It belongs to another user (sudo), or is gone: then its end is near.


def _wait_for(thread: threading.Thread, watcher: Companion) -> None:
    """Let the watcher finish; the first signal makes it hurry, the second leaves it behind."""
    asked = 0
    thread.join(0.5)
    while thread.is_alive():
        info = signal.sigtimedwait(_WAITED - {signal.SIGCHLD}, 0)
        if info is not None and info.si_signo in _ENDING:
            asked += 1
            if asked > 1:
                return
            watcher.hurry()
        thread.join(0.1)
