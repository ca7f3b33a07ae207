"""What test files cost, with their children: `pytest -p cost_by_file`.

CPU seconds, which a busy machine changes little, choose what `make check` leaves out; seconds with
waits are what longest_first.py goes by.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator

import pytest

LEAST_S = 3.0
_cpu: Counter[str] = Counter()
_wall: Counter[str] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Add what a test took, its set-up included."""
    before, begin = sum(os.times()[:4]), time.monotonic()
    result = yield
    path = item.nodeid.partition("::")[0]
    _cpu[path] += sum(os.times()[:4]) - before
    _wall[path] += time.monotonic() - begin
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Add what a worker tells when it ends."""
    cpu, wall = getattr(node, "workeroutput", {}).get("cost_by_file", ({}, {}))
    _cpu.update(cpu)
    _wall.update(wall)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell it, in a worker."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cost_by_file"] = (dict(_cpu), dict(_wall))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show it."""
    terminalreporter.section("CPU seconds, seconds, file")
    for path in sorted(path for path in _cpu if max(_cpu[path], _wall[path]) >= LEAST_S):
        terminalreporter.write_line(f"{_cpu[path]:7.1f} {_wall[path]:7.1f} {path}")
    terminalreporter.write_line(f"{sum(_cpu.values()):7.1f} {sum(_wall.values()):7.1f} all")
