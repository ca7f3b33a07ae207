"""A progress bar on stderr while a long read goes on; silent in pipes, and for short reads.

It never touches stdout, and what it drew is gone when the work is done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

DELAY_S = 0.7
"""Reads shorter than this show nothing."""


@contextmanager
def reading_progress(
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
    what: str = "reading",
) -> Iterator[Callable[[int, int], None] | None]:
    """Yield what to call with (things done, things in all), or None without a terminal."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(file=stream), transient=True)
    task = bar.add_task(what, total=None)
    begin = clock()

    def show(done: int, total: int) -> None:
        if not bar.live.is_started and clock() - begin >= DELAY_S:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()
