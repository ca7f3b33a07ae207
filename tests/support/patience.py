"""Wait until something is so, for as long as a machine that does a lot besides may take."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

PATIENCE_S = 600.0


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so; the test fails where it never is."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"never seen: {what}"
        time.sleep(0.2)


def longer_if_busy(seconds: int, on_a_busy_machine: int) -> str:
    """An option's number of seconds: where much else runs, what is healthy is slow, too."""
    busy = os.getloadavg()[0] >= 3 * (os.cpu_count() or 1)
    return str(on_a_busy_machine if busy else seconds)
