"""Measure whole programs and pieces of work, lay out what was measured, write the page.

No benchmark lives here. Each program is started by a small process of its own, because the largest
memory of a process counts what started it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KIB, MIB = 1 << 10, 1 << 20
PARTS = ("torch", "numpy", "duckdb")
INSTALLED = "UNHANG_BENCH_PYTHON"
"""Names the Python of an environment into which a wheel was installed."""

_STARTER = """
import json, os, signal, sys, time
nothing = os.open(os.devnull, os.O_RDWR)
begin = time.perf_counter()
child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ, file_actions=[
    (os.POSIX_SPAWN_DUP2, nothing, 1), (os.POSIX_SPAWN_DUP2, nothing, 2)])
signal.signal(signal.SIGALRM, lambda *_: os.kill(child, 9))
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
_, status, used = os.wait4(child, 0)
wall = time.perf_counter() - begin
print(json.dumps([wall, used.ru_utime + used.ru_stime, used.ru_maxrss,
                  os.waitstatus_to_exitcode(status)]))
"""
_SECTION = re.compile(r"<!-- (\w+) -->\n(.*?)(?=<!-- |\Z)", re.DOTALL)


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


# ------------------------------------------------------------------ programs


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

    def cells(self, digits: int = 2) -> tuple[str, str, str]:
        """Time, CPU time and memory as they are shown."""
        wall, cpu = (f"{seconds:.{digits}f} s" for seconds in (self.wall_s, self.cpu_s))
        return wall, cpu, f"{self.peak_mib:,.0f} MiB"

    def times(self, other: Cost) -> tuple[str, str]:
        """How many times as long another program takes: by wall time, by CPU time."""
        return f"{other.wall_s / self.wall_s:.0f}", f"{other.cpu_s / self.cpu_s:.0f}"


def program(*words: str) -> list[str]:
    """The command line that runs unhang: this checkout's, or that of an environment."""
    return [os.environ.get(INSTALLED, sys.executable), "-m", "unhang", *words]


def measure(
    command: Sequence[str],
    *,
    runs: int = 3,
    timeout_s: float = 1800.0,
    env: Mapping[str, str] | None = None,
    ends: int | None = None,
) -> Cost:
    """Run a program several times, one after the other, and return the medians.

    Args:
        command: Program and arguments; its output is thrown away.
        runs: How often; the first run is not left out, so warm caches before.
        timeout_s: A run that takes longer is an error.
        env: Variables beside those of this process.
        ends: The exit code without which nothing was measured.

    Raises:
        TimeoutError: A run took too long; it was killed.
        RuntimeError: It ended in another way.
    """
    costs = [_once(command, timeout_s, env or {}) for _ in range(runs)]
    found = _medians(costs)
    if ends is not None and found.exit_code != ends:
        raise RuntimeError(f"{' '.join(command)} ended with {found.exit_code}, not {ends}")
    return found


def by_turns(commands: Mapping[str, Sequence[str]], *, runs: int) -> dict[str, Cost]:
    """Run programs by turns, so that whatever else the machine does meets all alike."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            costs[name].append(_once(command, 1800.0, {}))
    return {name: _medians(each) for name, each in costs.items()}


def _once(command: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> Cost:
    own = {} if INSTALLED in os.environ else {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _STARTER, str(timeout_s), *command],
        env={**os.environ, **own, **env}, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    wall_s, cpu_s, peak_kib, code = json.loads(done.stdout)
    if wall_s > timeout_s:
        raise TimeoutError(f"{command[0]} took longer than {timeout_s:g} s")
    return Cost(wall_s, cpu_s, peak_kib * KIB / MIB, code)


def _medians(costs: Sequence[Cost]) -> Cost:
    return Cost(
        wall_s=statistics.median(cost.wall_s for cost in costs),
        cpu_s=statistics.median(cost.cpu_s for cost in costs),
        peak_mib=statistics.median(cost.peak_mib for cost in costs),
        exit_code=costs[-1].exit_code,
    )


# ------------------------------------------------------------------ pieces of work


def answer_of(module: str, *words: str) -> Any:  # noqa: ANN401 - JSON of the module's own
    """What a module of ours prints as JSON, measured in a process of its own."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def peak_mib() -> float:
    """Largest resident set of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB / MIB


def placed(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, 95th percentile and worst."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)], ordered[-1]


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as name:
        yield Path(name)


# ------------------------------------------------------------------ the page


def describe(text: str | None) -> str:
    """A docstring as one paragraph of the page."""
    return " ".join((text or "").split())


def table(section: Section) -> str:
    """The table as Markdown."""
    lines = [section.columns, tuple("---" for _ in section.columns), *section.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def show(section: Section) -> str:
    """The section as Markdown."""
    return f"## {section.title}\n\n{section.text}\n\n{table(section)}\n\n{machine()}\n"


def read_sections(path: Path) -> dict[str, str]:
    """The sections of an earlier page; none where there is no page."""
    return dict(_SECTION.findall(path.read_text(encoding="utf-8"))) if path.exists() else {}


def page(sections: Mapping[str, str], order: Sequence[str], head: str) -> str:
    """The whole page."""
    parts = [f"<!-- {name} -->\n{sections[name].strip()}\n" for name in order if name in sections]
    return "\n".join([head.rstrip() + "\n", *parts])


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
