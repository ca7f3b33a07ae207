from __future__ import annotations

import json
from dataclasses import fields, replace
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator
from report_samples import SAMPLES, never_joined

from unhang import model, report
from unhang.redact import Redactor
from unhang.reports import render

SCHEMA = json.loads(files("unhang").joinpath("report.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
PARTS = {
    "checked": report.Checked,
    "decision": report.Decision,
    "job": report.Job,
    "incident": report.Incident,
    "finding": report.Finding,
    "subject": report.Subject,
    "group": report.GroupRef,
    "call": report.CallSide,
    "wait": report.Wait,
    "site": report.Site,
    "excerpt": report.Excerpt,
    "identity": report.Identity,
    "blamed": report.Blamed,
    "before": report.Before,
    "difference": report.Unlike,
    "side": report.UnlikeSide,
    "rank": report.RankStatus,
    "step": report.Step,
    "frame": model.Frame,
    "note": model.Note,
    "node": model.AskedNode,
}
RENAMED = {"waiter": "from", "target": "to"}


def test_the_schema_is_a_schema() -> None:
    """The file itself is valid, and says which contract it is."""
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"] == report.SCHEMA


@pytest.mark.parametrize("part", [*PARTS, ""])
def test_the_schema_has_every_key_and_no_other(part: str) -> None:
    """A key that is added to the report is added to the schema, with its meaning."""
    described = SCHEMA["$defs"][part] if part else SCHEMA
    kind = PARTS[part] if part else report.Report
    assert list(described["properties"]) == [RENAMED.get(f.name, f.name) for f in fields(kind)]
    assert described["required"] == list(described["properties"])


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_report_keeps_the_contract(name: str) -> None:
    """What --format json prints is valid, redacted or not."""
    sample = SAMPLES[name]()
    for each in (sample, Redactor().report(sample)):
        VALIDATOR.validate(json.loads(render("json", each)))


@pytest.mark.parametrize(
    "broken",
    [
        {"status": "fine"},
        {"schema": "unhang.report/2"},
        {"findings": (replace(never_joined().findings[0], code="X1"),)},
        {"findings": (replace(never_joined().findings[0], role="guess"),)},
        {"ranks": (report.RankStatus(0, "lost"),)},
    ],
)
def test_the_schema_can_say_no(broken: dict[str, object]) -> None:
    """A report outside the contract is told from one inside."""
    page = json.loads(render("json", replace(never_joined(), **broken)))
    assert not VALIDATOR.is_valid(page)
