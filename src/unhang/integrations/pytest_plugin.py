"""For pytest: a test marked `@pytest.mark.rehearse(ranks=16)` runs on 16 ranks of a rehearsal.

Outside, the test is one item that runs `unhang rehearse` in a process of its own and passes if all
calls meet. Inside, every rank runs the same test by pytest, with its fixtures and parameters, and
raises what the test raised, so that the rehearsal sees the exception where it happened. pytest
finds this module by its entry point.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from typing import Any, Final

import pytest

from unhang.isolated import python_command

_INSIDE: Final = "UNHANG_REHEARSED_TEST"
"""Set for the ranks of a test that is being rehearsed."""
_MARK: Final = "rehearse"
_OPTIONS: Final = ("ranks", "nodes", "steps", "limit")
_RANKS: Final = 4


class _FailedRehearsalError(Exception):
    """A rehearsal that is not healthy; its text is the report."""


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers",
        "rehearse(ranks=4, nodes=1, steps=0, limit=600): run the test on so many ranks without "
        "GPUs, and fail it where their collectives, sends and receives do not meet.",
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class,
) -> Generator[None, Any, None]:
    """In place of a marked function, an item that rehearses it."""
    outcome = yield
    made = outcome.get_result()
    if _INSIDE in os.environ or not made:
        return
    several = made if isinstance(made, list) else [made]
    outcome.force_result([_rehearsed(collector, each) for each in several])


def _rehearsed(collector: pytest.Module | pytest.Class, item: Any) -> Any:  # noqa: ANN401 - or a class
    if not isinstance(item, pytest.Function) or item.get_closest_marker(_MARK) is None:
        return item
    test: RehearsedTest = RehearsedTest.from_parent(collector, name=item.name)
    test.place = item.location
    test.own_markers.extend(item.own_markers)
    test.keywords.update(item.keywords)
    return test


class RehearsedTest(pytest.Item):
    """A test function on all ranks of a rehearsal.

    Attributes:
        place: File, line and name of the function.
    """

    place: tuple[str, int | None, str]

    def runtest(self) -> None:
        """Rehearse it in a process of its own.

        Raises:
            _FailedRehearsalError: Calls do not meet, the test fails on a rank, or nothing is known.
        """
        config = self.config
        command = python_command("unhang", "rehearse", *self._options(), "--", *self._inside())
        done = subprocess.run(  # noqa: S603 - a command line of ours
            command, cwd=config.rootpath, env={**os.environ, _INSIDE: "1"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        text = "\n".join(filter(None, (done.stdout.strip(), done.stderr.strip())))
        if done.returncode:
            raise _FailedRehearsalError(text)
        self.add_report_section("call", "rehearsal", text)

    def _options(self) -> list[str]:
        mark = self.get_closest_marker(_MARK)
        given: dict[str, Any] = {"ranks": _RANKS, **(mark.kwargs if mark else {})}
        if unknown := sorted(set(given) - set(_OPTIONS)):
            raise pytest.UsageError(
                f"rehearse takes {', '.join(_OPTIONS)}, and {self.nodeid} gives {unknown[0]}"
            )
        return [word for name, value in given.items() for word in (f"--{name}", str(value))]

    def _inside(self) -> list[str]:
        """What a rank runs: pytest, for this test alone, without options of the whole run."""
        config = self.config
        chosen = ["-c", str(config.inipath)] if config.inipath else []
        return [
            sys.executable, "-m", "pytest", *chosen, "--rootdir", str(config.rootpath),
            "-o", "addopts=", "-q", "-s", "-p", "no:cacheprovider", "-p", __name__, self.nodeid,
        ]  # fmt: skip

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:  # noqa: ANN401 - as pytest has it
        """The report of the rehearsal; for anything else what pytest says."""
        if isinstance(excinfo.value, _FailedRehearsalError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, int | None, str]:
        """Where the function is."""
        return self.place


# ------------------------------------------------------------------ inside a rank

_failures: list[BaseException] = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Keep what a test raised on this rank."""
    if (
        _INSIDE in os.environ
        and call.excinfo
        and not call.excinfo.errisinstance(pytest.skip.Exception)
    ):
        _failures.append(call.excinfo.value)


def pytest_unconfigure() -> None:
    """Raise it: who runs the rank sees the test's own exception and line, and no exit code."""
    if _failures:
        raise _failures[0]
