"""What the programs have in common: their table, and how they say that they are at their place.

Each program is a shape that a rank of a real job was seen in: its comment names the defect or the
pause that it stands for.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PROGRAMS: dict[str, Callable[[], None]] = {}
TRUTH: dict[str, str] = {}
"""By name: "works" (gets on by itself), "waits" (blocked for ever), "polls" (looks again and again
for what never comes), "spins" (computes, and gets nowhere)."""


def program(truth: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a program with its truth."""

    def take(function: Callable[[], None]) -> Callable[[], None]:
        name = function.__name__
        PROGRAMS[name], TRUTH[name] = function, truth
        return function

    return take


def ready() -> None:
    """The program stands where it is meant to: what it does from now on is recorded."""
    if path := os.environ.get("ACTIVITY_READY"):
        Path(path).touch()


def main(*, is_ready: bool = True) -> None:
    """Run the program that is named, or list all with their truth."""
    if sys.argv[1:] == ["--list"]:
        print(json.dumps(TRUTH))
        return
    if is_ready:
        ready()
    PROGRAMS[sys.argv[1]]()


def forever(turn: Callable[[], object]) -> None:
    """The same again and again."""
    while True:
        turn()


def scratch() -> Path:
    """A new folder."""
    return Path(tempfile.mkdtemp(prefix="activity-"))


def work_for(seconds: float) -> None:
    """Use so much CPU time."""
    until, data = time.process_time() + seconds, b"x" * 4096
    while time.process_time() < until:
        data = hashlib.sha256(data).digest() * 128


def poll(apart_s: float, look: Callable[[], object]) -> None:
    """Look until something is there."""
    while not look():
        time.sleep(apart_s)
