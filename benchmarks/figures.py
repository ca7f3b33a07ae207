"""Measure whole programs and lay out what was measured; no benchmark lives here."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["INSTALLED", "Cost", "Section", "machine", "measure", "program", "show"]

ROOT = Path(__file__).parents[1]
KIB, MIB = 1 << 10, 1 << 20
PARTS = ("torch", "numpy", "duckdb")
INSTALLED = "UNHANG_BENCH_PYTHON"
"""Names the Python of an environment into which a wheel was installed."""


@dataclass(frozen=True, slots=True)
class Section:
    """One benchmark's result.

    Attributes:
        title: Heading.
        text: What was measured and how, one paragraph.
        columns: Headings of the table.
        rows: Cells, as they are shown.
    """

    title: str
    text: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one program cost: medians over its runs.

    Attributes:
        wall_s: From start to end of the whole process, in seconds.
        cpu_s: User and system time in seconds, of all its threads and children.
        peak_mib: Largest resident set in MiB.
        exit_code: Of the last run.
    """

    wall_s: float
    cpu_s: float
    peak_mib: float
    exit_code: int


def program(*words: str) -> list[str]:
    """The command line that runs unhang: this checkout's, or that of an environment."""
    return [os.environ.get(INSTALLED, sys.executable), "-m", "unhang", *words]


def measure(
    command: Sequence[str],
    *,
    runs: int = 3,
    timeout_s: float = 1800.0,
    env: Mapping[str, str] | None = None,
) -> Cost:
    """Run a program several times, one after the other, and return the medians.

    Args:
        command: Program and arguments; its output is thrown away.
        runs: How often; the first run is not left out, so warm caches before.
        timeout_s: A run that takes longer is an error.
        env: Variables beside those of this process.

    Raises:
        TimeoutError: A run took too long; it was killed.
    """
    costs = [_once(command, timeout_s, env or {}) for _ in range(runs)]
    return Cost(
        wall_s=statistics.median(cost.wall_s for cost in costs),
        cpu_s=statistics.median(cost.cpu_s for cost in costs),
        peak_mib=statistics.median(cost.peak_mib for cost in costs),
        exit_code=costs[-1].exit_code,
    )


def _once(command: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> Cost:
    own = {} if INSTALLED in os.environ else {"PYTHONPATH": str(ROOT / "src")}
    environ = {**os.environ, **own, **env}
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    guard = threading.Timer(timeout_s, process.kill)
    guard.start()
    _, status, used = os.wait4(process.pid, 0)  # the only wait that says what this child used
    wall = time.perf_counter() - begin
    guard.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    if wall > timeout_s:
        raise TimeoutError(f"{command[0]} took longer than {timeout_s:g} s")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * KIB / MIB, process.returncode)


def show(section: Section) -> str:
    """The section as Markdown."""
    head = [section.columns, tuple("---" for _ in section.columns)]
    table = ["| " + " | ".join(row) + " |" for row in (*head, *section.rows)]
    return "\n".join([f"## {section.title}", "", section.text, "", *table, "", machine(), ""])


@cache
def machine() -> str:
    """What it ran on, without names of hosts or users."""
    versions = ", ".join(f"{name} {found}" for name in PARTS if (found := _version(name)))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"*{len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB, {platform.system()} "
        f"{platform.machine()}, Python {platform.python_version()}, {versions}; "
        f"{time.strftime('%B %Y')}.*"
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
