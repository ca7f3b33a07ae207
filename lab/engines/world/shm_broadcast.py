"""The queue between an engine and its workers, here a pipe (vllm/…/shm_broadcast.py)."""

from __future__ import annotations

import os
import select
from collections.abc import Callable

BLOCK = 4_096
"""Bytes of a message: a pipe of one page holds one."""


def acquire_read(queue: int, warn: Callable[[], None], warn_s: float) -> None:
    """Wait for a message, with a line of the log now and then."""
    while not select.select([queue], [], [], warn_s)[0]:
        warn()


def dequeue(queue: int, warn: Callable[[], None], warn_s: float) -> str:
    """The next message; "" where the other end is closed."""
    acquire_read(queue, warn, warn_s)
    return os.read(queue, BLOCK).decode().strip()


def acquire_write(queue: int, warn: Callable[[], None], warn_s: float) -> None:
    """Wait for room."""
    while not select.select([], [queue], [], warn_s)[1]:
        warn()


def enqueue(queue: int, message: str, warn: Callable[[], None], warn_s: float) -> None:
    """Write a message that fills a block."""
    acquire_write(queue, warn, warn_s)
    os.write(queue, message.ljust(BLOCK).encode())
