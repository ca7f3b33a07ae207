"""Wait until something is so, for as long as a machine that does a lot besides may take."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 600.0


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so; the test fails where it never is."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"never seen: {what}"
        time.sleep(0.2)
