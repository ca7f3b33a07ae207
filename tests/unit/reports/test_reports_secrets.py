"""No secret leaves in any format: those that commands offer, agents ask for and receivers take.

The formats are asked of the house's own tables, so that a new one is covered by itself.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from report_samples import SAMPLES

from unhang.analysis import diagnose
from unhang.analysis.picture import picture_of
from unhang.cli import mcp
from unhang.cli.main import build_parser, main
from unhang.ingest import load
from unhang.redact import SECRET, Redactor
from unhang.report import Report
from unhang.reports import FORMATS, PICTURED, Look, render
from unhang.run.incident.notifying import FORMS, Receiver, _notice, payload_of
from unhang.telltale import REMOVED

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "never-joined-armed" / "dumps"
LINES = (ROOT / "tests" / "data" / "secrets.txt").read_text().splitlines()
SOME = LINES[::25]
"""A few of each kind: that each line is cleaned, test_telltale shows."""

WHOLE = Look(full=True)

READ = {
    "diagnose": "",
    "entries": "",
    "query": "",
    "stacks": "stacks",
    "logs": "logs",
    "paste": "logs/rank_0.log",
    "history": "..",
}
"""What each command that reads is given of the case."""

START = {"core", "doctor", "numerics", "rehearse", "trace"}
"""Commands that start something, or read no text; their reports are drawn by the same formats."""


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A case in which ranks, NCCL and programs say secrets, as logs and stacks of a job do."""
    folder = tmp_path_factory.mktemp("unhang-cases") / "case"
    shutil.copytree(EXAMPLE, folder / "dumps")
    for name in ("logs", "stacks"):
        (folder / name).mkdir()
    for rank, line in enumerate(SOME):
        (folder / "logs" / f"rank_{rank}.log").write_text(
            f"[rank{rank}]: Traceback (most recent call last):\n"
            f'[rank{rank}]:   File "/a/train.py", line 3, in f\n'
            f"[rank{rank}]: RuntimeError: {line}\n"
            f"node01:7:8 [0] NCCL WARN {line}\n{line}\n"
        )
        (folder / "stacks" / f"rank{rank}.txt").write_text(
            f'Process {rank + 7}: python train.py --about "{line}"\nPython v3.11.4\n\n'
            'Thread 7 (idle): "MainThread"\n    step (train.py:12)\n'
        )
    manifest = {"schema": "unhang.case/1", "world_size": 4, "command": ["python", "t.py", *SOME]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def said_by(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """All that a command prints."""
    page = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", page)
    monkeypatch.setattr(sys, "stderr", page)
    assert main(words) in (0, 1, 3)
    page.seek(0)
    return page.read()


@pytest.fixture(scope="module")
def drawn(case: Path) -> Callable[[str], str]:
    """Draws the verdict about the case in a format; it is made once."""
    read = load([case])
    report = diagnose(read)
    assert REMOVED in render("json", report, read, WHOLE), "the verdict quotes what held secrets"

    @cache
    def draw(name: str) -> str:
        picture = picture_of(read, report, every=True) if name in PICTURED else None
        return render(name, report, read, WHOLE, picture)

    return draw


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_no_format_shows_a_secret_of_the_evidence(drawn: Callable[[str], str], name: str) -> None:
    """Whatever a format takes of case, report and picture."""
    assert "HIDDEN" not in drawn(name)


def with_secrets(value: Any, lines: list[str]) -> Any:  # noqa: ANN401 - nested data
    """A report whose every sentence ends with another secret; words of a fixed set stay."""
    if isinstance(value, str):
        return f"{value} {(lines or list(LINES)).pop()}" if " " in value else value
    if isinstance(value, (tuple, list)):
        return type(value)(with_secrets(item, lines) for item in value)
    if isinstance(value, dict):
        return {key: with_secrets(item, lines) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: with_secrets(getattr(value, f.name), lines) for f in fields(value)}
        return replace(value, **changed)
    return value


@pytest.fixture(scope="module")
def redacted() -> list[Report]:
    """Reports that say secrets everywhere, after --redact."""
    lines: list[str] = []
    spoilt = [with_secrets(SAMPLES[name](), lines or lines[:]) for name in sorted(SAMPLES)]
    assert any("HIDDEN" in render("json", report) for report in spoilt)
    return [Redactor().report(report) for report in spoilt]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_no_format_shows_a_secret_of_a_redacted_report(redacted: list[Report], name: str) -> None:
    """Whichever field of a report holds it."""
    pages = [render(name, report, None, WHOLE) for report in redacted]
    assert not [page for page in pages if "HIDDEN" in page]
    if name == "json":
        assert any(SECRET in page for page in pages)


def formats_of() -> dict[str, list[str]]:
    """Each command's own formats, besides those of reports."""
    commands = next(a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return {
        name: [own for own in action.choices or () if own not in FORMATS or name not in ROUTED]
        for name, parser in commands.choices.items()
        for action in parser._actions
        if "--format" in action.option_strings
    }


ROUTED = {"diagnose", "stacks", "logs", "paste", *START}
"""Commands whose formats are those of reports, drawn by `render` alone."""


def test_every_command_with_formats_is_looked_at() -> None:
    """A new one has to say what it reads, or that it starts something."""
    assert set(formats_of()) == {*READ, *START}


@pytest.mark.parametrize(
    ("command", "own"),
    [(name, own) for name, choices in formats_of().items() for own in choices if name in READ],
)
def test_no_format_of_a_command_shows_a_secret(
    case: Path, monkeypatch: pytest.MonkeyPatch, command: str, own: str
) -> None:
    """Calls, tables, trees and lists of cases."""
    more = ["SELECT * FROM log_events"] if command == "query" else []
    if own == "tree":
        more = ["-o", str(case.parent / "tree")]
    said = said_by([command, str(case / READ[command]), *more, "--format", own], monkeypatch)
    assert "HIDDEN" not in said
    assert said or own == "tree"


@pytest.mark.parametrize("command", sorted(set(READ) & ROUTED))
def test_no_page_of_a_command_shows_a_secret(
    case: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """What it prints below the report, too."""
    said = said_by([command, str(case / READ[command]), "-v"], monkeypatch)
    assert said
    assert "HIDDEN" not in said


@pytest.mark.parametrize("form", sorted(FORMS))
def test_no_notification_tells_a_secret(case: Path, drawn: Callable[[str], str], form: str) -> None:
    """Of the report, the event's sentence and the job's name."""
    (case / "report.json").write_text(drawn("json"))
    line = "cannot log in: https://u:HIDDEN1@h.example.org/a?sig=HIDDEN2"
    order = {"case": str(case), "job": line, "event": "verdict", "time_s": 1.0, "text": line}
    told = json.dumps(payload_of(Receiver(form, key="k"), _notice(order)))
    (case / "report.json").unlink()
    assert "cannot log in" in told
    assert "HIDDEN" not in told


@pytest.mark.parametrize("full", [False, True])
def test_no_answer_to_an_agent_holds_a_secret(case: Path, *, full: bool) -> None:
    """What the tools of `unhang mcp` return."""
    log = (case / "logs" / "rank_0.log").read_text()
    answers = [mcp.diagnose(str(case), full), mcp.paste(log, full)]
    answers += [mcp.stacks(str(case / "stacks")), mcp.entries(str(case))] if full else []
    assert not [answer for answer in answers if "HIDDEN" in answer or "error" in answer[:9]]
