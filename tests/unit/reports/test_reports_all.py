from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from report_samples import SAMPLES

from unhang.cli.shared import output
from unhang.report import Report, Site, to_json
from unhang.reports import FORMATS, render


@pytest.mark.parametrize("name", sorted(SAMPLES))
@pytest.mark.parametrize("format_", sorted(FORMATS))
def test_every_renderer_draws_every_report(format_: str, name: str) -> None:
    """No report is too odd for any format, and every page ends with a line end."""
    page = render(format_, SAMPLES[name]())
    assert page.endswith("\n")
    assert page.encode("utf-8")


def test_the_command_line_offers_every_format() -> None:
    """The names are listed twice, because the parser must not import the renderers."""
    assert sorted((*output.FORMATS, *output.DRAWINGS)) == sorted(FORMATS)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_json_holds_the_whole_report(name: str) -> None:
    """Nothing is folded or cut in JSON."""
    report = SAMPLES[name]()
    whole = json.dumps(to_json(report)).replace("\\ud800", "\\\\ud800")
    assert json.loads(render("json", report)) == json.loads(whole)


def test_json_has_no_halves_of_characters() -> None:
    """Strict readers refuse them; whole characters beyond 16 bits stay what they are."""
    page = json.loads(render("json", Report("slow", "half \udc00, whole \U0001f600")))
    assert page["summary"] == "half \\udc00, whole \U0001f600"


def test_json_has_no_word_for_not_a_number() -> None:
    """NaN becomes null and numpy's numbers become numbers: strict readers must not choke."""
    site = Site((np.int32(3),), "culprit", "a.py", 1, "f", age_s=float("nan"))
    finding = replace(SAMPLES["slow"]().findings[0], sites=(site,))
    page = json.loads(render("json", Report("slow", "x", findings=(finding,))))
    assert page["findings"][0]["sites"][0]["ranks"] == [3]
    assert page["findings"][0]["sites"][0]["age_s"] is None
