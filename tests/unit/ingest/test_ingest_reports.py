"""Reports of other commands in a case: what is taken over, what is left out and told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import never_joined

from unhang.casedir.reports import check_place, name_told, save_report
from unhang.errors import InputError, UsageError
from unhang.ingest import Beside, load
from unhang.ingest.savedreports import MAX_FINDINGS, MAX_REPORTS, read_reports
from unhang.model import Note
from unhang.report import SCHEMA, Finding, Report, SavedReport, Subject, to_json
from unhang.reports import render

NOON_S = 1_763_640_000.0
FOUND = Finding(
    id="f1",
    code="UH823",
    role="cause",
    confidence="high",
    summary="node02 cannot be reached on port 29500.",
    subjects=(Subject("link", "node01 -> node02:29500"),),
    actions=("Open the port.",),
    slug="port-blocked",
)
REPORT = Report("problem", FOUND.summary, findings=(FOUND,))


def saved(case: Path, report: Report = REPORT, command: str = "doctor") -> Path:
    """A report as `--case` saves it."""
    return save_report(case, command, render("json", report), NOON_S)


def in_case(case: Path) -> tuple[tuple[SavedReport, ...], list[Note]]:
    """What a case's reports are read as."""
    notes: list[Note] = []
    return read_reports([case / "reports"], [], notes), notes


def test_a_saved_report_comes_back(tmp_path: Path) -> None:
    """With whose it is, and when it was made; the case holds it."""
    saved(tmp_path / "case")
    (report,) = load(tmp_path / "case").reports
    assert (report.command, report.time_ns) == ("doctor", int(NOON_S) * 10**9)
    assert report.findings == (replace(FOUND, id=""),)


def test_no_report_is_overwritten(tmp_path: Path) -> None:
    """Two of one second are two files."""
    names = [saved(tmp_path).name for _ in range(3)]
    stem = "doctor-20251120T120000Z"
    assert names == [f"{stem}.json", f"{stem}-2.json", f"{stem}-3.json"]
    assert [name_told(name)[0] for name in names] == ["doctor"] * 3


def test_only_cases_take_reports(tmp_path: Path) -> None:
    """Loose dumps would be lost from sight in what looks like a case; a file is none."""
    (tmp_path / "nccl_trace_rank_0").touch()
    with pytest.raises(UsageError, match="is not a case directory"):
        check_place(tmp_path)
    with pytest.raises(UsageError, match="is not a directory"):
        saved(tmp_path / "nccl_trace_rank_0")
    (tmp_path / "dumps").mkdir()
    assert saved(tmp_path).is_file()


def test_a_report_of_every_kind_is_read(tmp_path: Path) -> None:
    """Also one of `diagnose`, with its ranks, calls and stacks, which are not taken over."""
    path = tmp_path / "report.json"
    path.write_text(render("json", never_joined()))
    (report,) = load([], beside=Beside(reports=(str(path),))).reports
    assert (report.command, report.time_ns) == ("", 0)
    assert [f.summary for f in report.findings] == [f.summary for f in never_joined().findings]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("\udcff\udcfe", "is no JSON"),
        ("[]", "is not a report of unhang"),
        ('{"schema": 3}', "is not a report of unhang"),
        ('{"schema": "unhang.report/9\\u001b[2J"}', r"another schema (unhang.report/9\x1b[2J"),
        (json.dumps({"schema": SCHEMA, "status": "fine", "findings": []}), "at `$.status`"),
        (json.dumps({"schema": SCHEMA, "status": "healthy", "findings": {}}), "at `$.findings`"),
        (json.dumps({"schema": SCHEMA, "status": [], "findings": []}), "at `$.status`"),
    ],
)
def test_what_is_no_report(text: str, why: str, tmp_path: Path) -> None:
    """In a case it is a note, where the user names it an error."""
    path = tmp_path / "reports" / "doctor-20251120T120000Z.json"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    found, notes = in_case(tmp_path)
    assert not found
    assert [note.level for note in notes] == ["warning"]
    assert why in notes[0].text
    with pytest.raises(InputError) as error:
        load([], beside=Beside(reports=(str(path),)))
    assert why in error.value.message


@pytest.mark.parametrize(
    "change",
    [
        {"code": "UH1"},
        {"code": None},
        {"role": "culprit"},
        {"confidence": 1},
        {"summary": ""},
        {"summary": ["x"]},
        {"culprits": [True]},
        {"culprits": [-1]},
        {"culprits": [1 << 80]},
        {"victims": "0-3"},
        {"evidence": [1]},
        {"actions": {}},
        {"subjects": [[]]},
        {"subjects": [{"kind": "planet", "id": "Mars"}]},
        {"subjects": [{"kind": "host", "id": "a", "role": "judge"}]},
    ],
    ids=str,
)
def test_findings_of_another_shape_are_counted(change: dict[str, Any], tmp_path: Path) -> None:
    """They are left out; those beside them stay, and keys that nobody knows are ignored."""
    value = to_json(REPORT)
    value["findings"] = [{**to_json(FOUND), **change}, "?", {**to_json(FOUND), "more": {"a": 1}}]
    path = saved(tmp_path)
    path.write_text(json.dumps({**value, "unknown": [1]}))
    (report,), notes = in_case(tmp_path)
    assert report.findings == (replace(FOUND, id=""),)
    assert [note.text for note in notes] == ["2 findings skipped: not of the schema"]


def test_a_kind_of_a_later_version_is_read(tmp_path: Path) -> None:
    """Codes may have four digits; slug and family are taken as told, if they can be any."""
    later = {**to_json(FOUND), "code": "UH9001", "slug": "of-tomorrow"}
    value = {**to_json(REPORT), "findings": [later, {**later, "family": "unheard of"}]}
    saved(tmp_path).write_text(json.dumps(value))
    (report,), notes = in_case(tmp_path)
    assert not notes
    read = [(found.code, found.slug, found.family) for found in report.findings]
    assert read == [("UH9001", "of-tomorrow", "transport"), ("UH9001", "of-tomorrow", "")]


def test_sizes_are_bounded(tmp_path: Path) -> None:
    """Many findings, many reports, long texts: cut, and said."""
    long = replace(FOUND, summary="x" * 9_000)
    saved(tmp_path, replace(REPORT, findings=(long,) * (MAX_FINDINGS + 9)))
    (report,), notes = in_case(tmp_path)
    assert len(report.findings) == MAX_FINDINGS
    assert len(report.findings[0].summary) < 3_000
    assert "the first 256 of 265 findings" in notes[0].text
    for _ in range(MAX_REPORTS):
        saved(tmp_path)
    found, notes = in_case(tmp_path)
    assert len(found) == MAX_REPORTS
    assert "the newest 64 of 65 reports are read" in [note.text for note in notes]


def test_links_and_other_files_are_left_alone(tmp_path: Path) -> None:
    """A link may lead anywhere; what is no JSON file is counted."""
    path = saved(tmp_path / "other")
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "doctor-20251120T120000Z.json").symlink_to(path)
    (tmp_path / "reports" / "notes.txt").touch()
    found, notes = in_case(tmp_path)
    assert not found
    assert [note.text for note in notes] == ["left out: 2 entries that are not JSON files"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)
SPOILT = st.dictionaries(st.sampled_from(sorted(to_json(FOUND))), JSON, max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(SPOILT, max_size=3))
def test_any_values_are_notes(spoilt: list[dict[str, Any]]) -> None:
    """Whatever stands where the schema has something else: a finding less, never an exception."""
    from tempfile import TemporaryDirectory

    value = to_json(REPORT) | {"findings": [to_json(FOUND) | change for change in spoilt]}
    with TemporaryDirectory() as folder:
        case = Path(folder)
        saved(case).write_text(json.dumps(value))
        (report,), notes = in_case(case)
    assert len(report.findings) == len(spoilt) or notes
