from __future__ import annotations

import argparse
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from report_samples import SAMPLES, healthy, insufficient, never_joined, slow

from unhang._version import __version__
from unhang.cli.shared.output import (
    ReportOptions,
    add_report_arguments,
    emit,
    exit_code,
    look_of,
    report_options,
)
from unhang.errors import OutputError, UsageError


def parsed(*words: str) -> ReportOptions:
    """The output options as a command would make them."""
    parser = argparse.ArgumentParser()
    add_report_arguments(parser)
    return report_options(parser.parse_args(words))


class Terminal(io.StringIO):
    """A stream that says that somebody looks at it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_exit_codes() -> None:
    """0 nothing wrong, 1 a problem, 3 not enough evidence; slow passes if only causes fail."""
    reports = (healthy(), never_joined(), slow(), insufficient())
    assert [exit_code(report) for report in reports] == [0, 1, 1, 3]
    assert [exit_code(report, "cause") for report in reports] == [0, 1, 0, 3]


def test_json_is_all_of_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing but the document, with the version of the tool in it."""
    assert emit(never_joined(), parsed("--format", "json")) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["tool_version"] == __version__
    assert err == ""


def test_what_was_read_is_not_replaced(tmp_path: Path) -> None:
    """A report that is written over its own evidence."""
    dump = tmp_path / "rank_0"
    dump.write_text("evidence")
    options = replace(parsed("-o", str(dump)), inputs=(str(tmp_path / "." / "rank_0"),))
    with pytest.raises(OutputError, match="exists and is input"):
        emit(never_joined(), options)
    assert dump.read_text() == "evidence"


@pytest.mark.parametrize(("name", "start"), [("r.json", "{"), ("r.txt", "PROBLEM"), ("r", "PROB")])
def test_the_files_name_chooses_the_format(
    name: str, start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With -o nothing goes to stdout, and what was there is replaced whole."""
    target = tmp_path / name
    target.write_text("old" * 10_000)
    assert emit(never_joined(), parsed("-o", str(target))) == 1
    assert target.read_text().startswith(start)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("unhang: PROBLEM  Rank 7 ")
    assert said.err.endswith(f" (written to {target})\n")
    assert list(tmp_path.iterdir()) == [target]


def test_a_format_given_beats_the_name(tmp_path: Path) -> None:
    """--format is the stronger word."""
    emit(healthy(), parsed("-o", str(tmp_path / "x.json"), "--format", "text"))
    assert (tmp_path / "x.json").read_text().startswith("HEALTHY")


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    """A directory, or a place that is not there."""
    for place in (tmp_path, tmp_path / "missing" / "x.txt", tmp_path / ("x" * 300)):
        with pytest.raises(OutputError) as caught:
            emit(healthy(), parsed("-o", str(place)))
        assert caught.value.hint


@pytest.mark.parametrize("width", ["0", "-1", "39", "401", "999999999"])
def test_absurd_widths_are_refused(width: str) -> None:
    """No page is that narrow or wide."""
    with pytest.raises(UsageError):
        emit(healthy(), parsed("--width", width))


def test_colours_only_for_terminals_that_want_them() -> None:
    """NO_COLOR, --no-color, a dumb terminal, a pipe and a file get none."""
    terminal = Terminal()
    assert look_of(parsed().look, terminal, {}).color
    assert not look_of(parsed().look, terminal, {"NO_COLOR": "1"}).color
    assert not look_of(parsed().look, terminal, {"TERM": "dumb"}).color
    assert not look_of(parsed("--no-color").look, terminal, {}).color
    assert not look_of(parsed("-o", "x.txt").look, terminal, {}).color
    pipe = io.TextIOWrapper(io.BytesIO())
    assert not look_of(parsed().look, pipe, {}).color
    assert look_of(parsed().look, pipe, {"FORCE_COLOR": "1"}).color
    assert not look_of(parsed().look, pipe, {"FORCE_COLOR": "1", "NO_COLOR": "1"}).color
    assert not look_of(parsed("-o", "x.txt").look, pipe, {"FORCE_COLOR": "1"}).color


def test_the_page_fits_what_it_goes_to() -> None:
    """A pipe gets 80 columns and, where its encoding is ASCII, ASCII; a file gets UTF-8."""
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert look_of(parsed().look, pipe, {}).width == 80
    assert not look_of(parsed().look, pipe, {}).unicode
    assert look_of(parsed("-o", "x.txt").look, pipe, {}).unicode
    assert look_of(parsed("--width", "132").look, pipe, {}).width == 132


def test_the_columns_of_the_environment_count_for_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS is how somebody tells a pipe its width, within reason."""
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    for columns, width in (("100", 100), ("9999", 120), ("10", 40)):
        monkeypatch.setenv("COLUMNS", columns)
        assert look_of(parsed().look, pipe, {"COLUMNS": columns}).width == width


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_sample_can_be_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Printing never fails, whatever the report holds."""
    emit(SAMPLES[name](), parsed())
    assert capsys.readouterr().out
