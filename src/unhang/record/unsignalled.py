"""Threads of ours take no signal of the job's.

The kernel may give a signal of the process to any of its threads. Python runs handlers in the main
thread alone, and a main thread that waits in C is not woken by a signal that another thread took:
Ctrl-C would be lost. In a process with a thread of ours it must arrive as it did without it.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

_OF_THE_THREAD_ITSELF = {
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP,
    signal.SIGSYS,
}  # fmt: skip


@contextlib.contextmanager
def unsignalled() -> Iterator[None]:
    """Threads that are started inside have all signals blocked but those that they cause."""
    blocked = signal.valid_signals() - _OF_THE_THREAD_ITSELF
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
