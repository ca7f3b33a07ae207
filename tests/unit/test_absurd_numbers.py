"""Numbers of reports and manifests that no job has: they cost what they stand in, and no more."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unhang import analysis
from unhang.casedir.manifest import merge_manifest
from unhang.casedir.sharing import heard_of
from unhang.context.recalled import Past
from unhang.context.tallies import history_of
from unhang.incoming import value_of
from unhang.ingest import load
from unhang.reports import render
from unhang.serve.pages import comparison_page, history_page, list_page, saved_page
from unhang.serve.past import tried

EXAMPLES = Path(__file__).parents[2] / "examples"
DUMPS = EXAMPLES / "never-joined-armed" / "dumps"
ABSURD = {
    "400 digits": "1" + "0" * 400,
    "minus 400 digits": "-1" + "0" * 400,
    "5,000 digits": "9" * 5_000,
    "64 bits and one": str(1 << 63),
    "most of 64 bits": str((1 << 63) - 1),
    "least of 64 bits": str(-(1 << 63)),
    "32 bits": str(1 << 32),
    "minus one": "-1",
    "not a number": "NaN",
    "infinite": "Infinity",
    "a large float": "1e999",
    "a float": "1e300",
    "true": "true",
    "null": "null",
    "a text": '"x"',
}
HERE = "\ue000"
"""Stands where an absurd number goes."""


def places_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 - JSON
    """Where numbers stand in JSON, of each list in its first item."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places_of(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value[:1]):
            yield from places_of(each, (*path, index))
    elif type(value) in (int, float):
        yield path


def absurd(value: Any, path: tuple[Any, ...], number: str) -> str:  # noqa: ANN401 - JSON
    """The JSON with one number replaced."""
    made = json.loads(json.dumps(value))
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = HERE
    return json.dumps(made).replace(json.dumps(HERE), number)


def judged() -> dict[str, Any]:
    """A report with numbers in it."""
    case = load([DUMPS])
    report: dict[str, Any] = json.loads(render("json", analysis.diagnose(case), case))
    return report


REPORT = judged()
MOMENT = 1_700_000_000_000_000_000
SLOW = {"rank": 1, "excess": 0.5, "late_ms": 3.0, "since_ns": MOMENT, "for_s": 5.0}
MANIFEST: dict[str, Any] = {
    "schema": "unhang.case/1",
    "world_size": 4,
    "job": {"attempt": 0, "command": ["train"]},
    "incident": {"time_ns": MOMENT, "quiet_s": 5.0, "slow": SLOW},
    "nodes": [{"run": "n1", "ranks": [0], "ending": {"exit_code": 0}}],
    "ranks": {"0": {"rank": 0, "pid": 1, "exit_status": 0}},
}
PART: dict[str, Any] = {
    "run": "n1", "attempt": 0, "world_size": 4, "incident": {"time_ns": 1, "quiet_s": 1.0},
    "timings_s": {"look": 1.0}, "ranks": [{"rank": 0, "pid": 1, "exit_status": 0}],
}  # fmt: skip


@pytest.mark.parametrize("number", ABSURD)
def test_a_report_with_an_absurd_number_costs_no_other(tmp_path: Path, number: str) -> None:
    """Of each number of a report; the list of all cases is made."""
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "report.json").write_text(json.dumps(REPORT))
    places = list(places_of(REPORT))
    assert len(places) > 20
    pasts = []
    for index, place in enumerate(places):
        case = tmp_path / f"bad{index}"
        case.mkdir()
        (case / "report.json").write_text(absurd(REPORT, place, ABSURD[number]))
        pasts.append(tried(case))
    good = tried(tmp_path / "good")
    assert isinstance(good, Past)
    readable = [good, *(past for past in pasts if isinstance(past, Past))]
    assert history_of(readable).cases == len(readable)
    assert "".join(list_page({str(i): past for i, past in enumerate(readable)}, {}))
    assert history_page(history_of(readable))
    for past in readable:
        assert saved_page(past)
        assert comparison_page(("a", good), ("b", past))


@pytest.mark.parametrize("number", ABSURD)
def test_a_manifest_with_an_absurd_number_costs_no_verdict(tmp_path: Path, number: str) -> None:
    """Of each number of the manifest, and of a report that lies in the case."""
    shutil.copytree(DUMPS, tmp_path / "dumps")
    (tmp_path / "reports").mkdir()
    saved = tmp_path / "reports" / "stacks-20250101T000000Z.json"
    findings = [place for place in places_of(REPORT) if place[0] == "findings"]
    for index, place in enumerate(places_of(MANIFEST)):
        (tmp_path / "manifest.json").write_text(absurd(MANIFEST, place, ABSURD[number]))
        saved.write_text(absurd(REPORT, findings[index % len(findings)], ABSURD[number]))
        case = load([tmp_path])
        report = analysis.diagnose(case)
        assert 2 in report.culprits
        assert render("text", report, case)
        assert render("json", report, case)


@pytest.mark.parametrize("number", ABSURD)
def test_a_part_with_an_absurd_number_is_merged(tmp_path: Path, number: str) -> None:
    """The manifest of a case that nodes share is written whatever one of them says."""
    (tmp_path / "parts").mkdir()
    for place in places_of(PART):
        (tmp_path / "parts" / "n1.json").write_text(absurd(PART, place, ABSURD[number]))
        merge_manifest(tmp_path)
        assert json.loads((tmp_path / "manifest.json").read_text())["nodes"]


@pytest.mark.parametrize("number", ABSURD)
def test_an_announcement_of_an_absurd_time_is_heard(tmp_path: Path, number: str) -> None:
    """Another node's clock, or another's hand, ends no watch."""
    said = {"run": "n2", "kind": "hang", "detail": "", "time_s": 1.0}
    (tmp_path / ".claim.json").write_text('{"job": "j"}')
    (tmp_path / ".claim-n2").touch()
    (tmp_path / ".incident.json").write_text(absurd(said, ("time_s",), ABSURD[number]))
    os.utime(tmp_path)
    assert heard_of(tmp_path, "j", "n1") is None


def test_integers_of_64_bits_are_kept() -> None:
    """Those with more are infinite, in bytes and in text."""
    for text, value in (
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", float("inf")),
        ("-9223372036854775809", float("-inf")),
        ("1" * 5_000, float("inf")),
    ):
        assert value_of(f"[{text}, 1]") == [value, 1]
        assert value_of(f"[{text}, 1]".encode()) == [value, 1]
