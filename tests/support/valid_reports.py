"""The JSON of a judging command, which must be a report by the schema in the package."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator


def report_in(text: str) -> dict[str, Any]:
    """Read a report, and see that the schema agrees with it."""
    report: dict[str, Any] = json.loads(text)
    schema = json.loads(files("unhang").joinpath("report.schema.json").read_text())
    Draft202012Validator(schema).validate(report)
    return report
