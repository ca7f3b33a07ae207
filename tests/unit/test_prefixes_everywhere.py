"""The prefixes that launchers put before a line, in every command that reads logs or stacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unhang.cli.main import main
from unhang.cli.mcp import diagnose as tool

PREFIXES = {
    "srun --label": "3: ",
    "mpirun --tag-output": "[1,3]<stderr>:",
    "horovodrun": "Fri Sep 25 16:52:53 2020[3]<stderr>:",
    "MPICH": "[3] ",
    "torch": "[rank3]: ",
    "torchrun": "[default3]:",
    "torchrun with a role that is a number": "[5:3]: ",
    "Ray": "(RayTrainWorker pid=81, ip=10.0.0.7) ",
    "Ray in colour": "\x1b[36m(RayTrainWorker pid=81, ip=10.0.0.7)\x1b[0m ",
    "compose": "worker-0  | ",
    "compose and torch": "worker-0 | [rank3]: ",
    "kubectl": "[pod/trainer-3/main] ",
    "a container runtime": "2025-09-22T14:00:00.250000000Z stderr F ",
    "kubectl --timestamps": "2025-09-22T14:00:00Z ",
    "pdsh": "gpu004: ",
    "pdsh and torch": "gpu004: [rank3]: ",
    "a mail": "> > > ",
}
RANKLESS = {"Ray", "Ray in colour", "compose", "kubectl", "a container runtime",
            "kubectl --timestamps", "pdsh", "a mail"}  # fmt: skip
LOCAL = {"torchrun", "torchrun with a role that is a number"}
"""They tell a number on its node: it stands for the rank in logs, and for nothing in stacks."""
RAISED = """\
Traceback (most recent call last):
  File "/job/train.py", line 7, in <module>
    main()
  File "/job/train.py", line 5, in main
    raise ValueError("batch 7 has no labels")
ValueError: batch 7 has no labels
"""
STOOD = """\
Process 4711: python train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 4711 (idle): "MainThread"
    load_batch (train.py:15)
    train (train.py:35)
    <module> (train.py:44)
"""


def behind(prefix: str, text: str) -> str:
    """The text as a launcher shows it."""
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The report that a command gives."""
    main([*words, "--format", "json"])
    return dict(json.loads(capsys.readouterr().out))


def by_logs(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """`unhang logs FILE`."""
    return said(capsys, "logs", str(folder / "logs" / "job.log"))


def by_diagnose(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """`unhang diagnose --log FILE`."""
    (folder / "empty").mkdir()
    return said(capsys, "diagnose", "--log", str(folder / "logs" / "job.log"))


def by_case(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """`unhang diagnose CASE`, as for each case that `serve` shows."""
    return said(capsys, "diagnose", str(folder))


def by_tool(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The tool that agents have."""
    del capsys
    return dict(json.loads(tool(str(folder), full=True)))


def by_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What a page of `serve` is drawn from."""
    pytest.importorskip("starlette", reason="needs the extra serve")
    from unhang import reports
    from unhang.serve.app import _judged

    del capsys
    case, report = _judged(folder, 0)
    return dict(json.loads(reports.render("json", report, case)))


@pytest.mark.parametrize("ask", [by_logs, by_diagnose, by_case, by_tool, by_page])
@pytest.mark.parametrize("name", PREFIXES)
def test_a_traceback_behind_each(
    name: str,
    ask: Callable[[Path, pytest.CaptureFixture[str]], dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its exception, its line, and its rank where the prefix tells one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "manifest.json").write_text('{"schema": "unhang.case/1", "ranks": {}}')
    (tmp_path / "logs" / "job.log").write_text(behind(PREFIXES[name], RAISED))
    first = ask(tmp_path, capsys)["findings"][0]
    assert (first["code"], first["culprits"]) == ("UH793", [] if name in RANKLESS else [3])
    assert [(site["file"], site["line"]) for site in first["sites"]] == [("/job/train.py", 5)]


@pytest.mark.parametrize("name", PREFIXES)
def test_a_stack_behind_each(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What py-spy printed on each rank, as the launcher shows it."""
    path = tmp_path / "pasted.txt"
    path.write_text(behind(PREFIXES[name], STOOD))
    report = said(capsys, "stacks", str(path))
    ranks = [] if name in RANKLESS | LOCAL else [3]
    assert [each["rank"] for each in report["ranks"]] == ranks
    assert "load_batch (train.py:15)" in report["summary"] + str(report["findings"])
