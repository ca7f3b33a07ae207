"""Which test files cost most CPU time, with their children's: `pytest -p cpu_by_file`.

The list of what `make check` leaves out is made by it: wall time says little on a busy machine.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

_spent: Counter[str] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Add what a test took, its set-up included."""
    before = sum(os.times()[:4])
    result = yield
    _spent[item.nodeid.partition("::")[0]] += sum(os.times()[:4]) - before
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Add what a worker tells when it ends."""
    _spent.update(getattr(node, "workeroutput", {}).get("cpu_by_file", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell it, in a worker."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cpu_by_file"] = dict(_spent)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show it."""
    terminalreporter.section("CPU seconds by file")
    for path, seconds in _spent.most_common(40):
        terminalreporter.write_line(f"{seconds:7.1f} {path}")
    terminalreporter.write_line(f"{sum(_spent.values()):7.1f} all")
