"""Which tests may be left out, and who says so.

`gpu` and `debian` are the only reasons that need no word in the test itself: the first is skipped
where no GPU with a CUDA build of torch is there, the second where a program that it names is
missing: `@pytest.mark.debian("srun", "sshd")`. Under CI=true every other skip, and a missing Debian
program too, makes the run fail: what CI does not run, nobody runs.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    # Ignored in what a script runs in the background, and inherited by all that tests start.
    if signal.getsignal(_number) is signal.SIG_IGN:
        _default = signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL
        signal.signal(_number, _default)

# Tests start thousands of Pythons: where this is set each compiles all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("events", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("events")  # a busy machine is no fault of a property

IN_CI = os.environ.get("CI", "").lower() == "true"

Result = TypeVar("Result", pytest.TestReport, pytest.CollectReport)


@cache
def _why_no_gpu() -> str:
    if not Path("/dev/nvidiactl").exists():  # without an import that takes two seconds
        return "no NVIDIA GPU"
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return "" if torch.cuda.is_available() else "no GPU that this torch can use"


def _why_not(item: pytest.Item) -> str:
    """Why a test cannot run here; empty if it can."""
    if item.get_closest_marker("gpu") and (reason := _why_no_gpu()):
        return reason
    programs = [name for marker in item.iter_markers("debian") for name in marker.args]
    missing = [name for name in programs if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}; see requirements/debian.sh" if missing else ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip, with the reason, what cannot run here; a worker of several begins with long tests."""
    for item in items:
        if reason := _why_not(item):
            item.add_marker(pytest.mark.skip(reason=reason))
    if hasattr(config, "workerinput"):
        from longest_first import in_order

        items[:] = in_order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Hand files out as support/longest_first.py says, where `--dist loadfile` asks for files."""
    if config.getvalue("dist") != "loadfile":
        return None
    from longest_first import LongestFirst

    return LongestFirst(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI, a test that is skipped for another reason than a missing GPU fails."""
    report = yield
    excused = item.get_closest_marker("gpu") is not None or hasattr(report, "wasxfail")
    return report if excused else _not_in_ci(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """In CI, a module that skips itself fails."""
    return _not_in_ci((yield))


def _not_in_ci(report: Result) -> Result:
    if IN_CI and report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = f"skipped under CI=true: {report.longrepr}"
    return report
