"""SIGKILL while a case is written: a name stands for a whole file, and the case opens."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.casedir.manifest import Ending, NodePart, RankPart, write_ending, write_part
from unhang.ingest import load
from unhang.report import Report
from unhang.run.incident.judge import _save

DUMPS = Path(__file__).parents[3] / "examples" / "never-joined-armed" / "dumps"
FILES = 7
"""A node's part and its ending, the manifest after each, and the report in three formats."""


@pytest.fixture(scope="module")
def judged() -> tuple[Case, Report]:
    """The verdict that is written."""
    case = load([DUMPS])
    return case, diagnose(case)


def write_all(folder: Path, case: Case, report: Report) -> None:
    """What `unhang run` writes of an incident once the dumps are there."""
    part = NodePart(
        run="run", host="node01", job="job", attempt=0, world_size=4,
        ranks=[RankPart(rank, "node01") for rank in range(4)],
    )  # fmt: skip
    write_part(folder, part)
    _save(folder, report, case)
    write_ending(folder, "run", Ending("the command ended with exit code 1", 1))


def killed_at(number: int, step: str, *, after: bool) -> None:
    """Let this process be killed at the n-th time that it comes to a step of writing a file."""
    os.fsync = lambda _: None  # the disk of a busy machine takes seconds
    owner: Any = os if step == "fsync" else Path
    original: Callable[..., Any] = getattr(owner, step)
    left = [number]

    def deadly(*args: Any) -> Any:  # noqa: ANN401 - whatever it takes
        left[0] -= 1
        if left[0] >= 0:
            return original(*args)
        done = original(*args) if after else None
        os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(owner, step, deadly)


@pytest.mark.parametrize("number", [0, 1, 3, 4, 6])
@pytest.mark.parametrize(
    ("step", "after"), [("fsync", False), ("replace", False), ("replace", True)]
)
def test_a_run_killed_while_it_writes_leaves_a_case_that_opens(
    tmp_path: Path, judged: tuple[Case, Report], number: int, step: str, *, after: bool
) -> None:
    """At each file: what is there is whole, and says what it would have said."""
    shutil.copytree(DUMPS, tmp_path / "dumps")
    (tmp_path / "parts").mkdir()
    pid = os.fork()
    if pid == 0:
        try:
            killed_at(number, step, after=after)
            write_all(tmp_path, *judged)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name[0] != "."]
    assert len(written) == len(list(DUMPS.rglob("rank_*"))) + expected(number, after=after)
    for path in written:
        if path.suffix == ".json":
            json.loads(path.read_text())
        if path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>")
    if after:
        assert diagnose(load([tmp_path])).summary == judged[1].summary


def expected(number: int, *, after: bool) -> int:
    """How many files there are once so many writes are done: the last replaces the manifest."""
    return min(number + after, FILES - 1)
