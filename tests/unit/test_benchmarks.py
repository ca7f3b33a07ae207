"""Each section of the benchmarks' page has its script, and is read back as it was written."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from benchmarks import drawing
from benchmarks.__main__ import PAGE, SCRIPTS
from benchmarks.harness import Section, measure, page, read_sections, table


def test_every_section_has_its_script() -> None:
    """`make bench` names no script that does not measure it, and leaves none out."""
    scripts = {name: import_module(f"benchmarks.{name}") for name in set(SCRIPTS.values())}
    measured = {section: name for name, script in scripts.items() for section in script.SECTIONS}
    assert measured == SCRIPTS


def test_the_page_is_what_its_sections_give() -> None:
    """A part that is measured again replaces only its own section."""
    written = PAGE.read_text(encoding="utf-8")
    head = written.partition("<!-- ")[0]
    assert page(read_sections(PAGE), list(SCRIPTS), head) == written
    assert drawing.lines_of(drawing.series_of(written)) == drawing.PICTURE.read_text()


def test_a_program_is_measured_by_how_it_ends() -> None:
    """Its exit code, and memory of its own: not that of the process which measures."""
    assert measure([sys.executable, "-S", "-c", "raise SystemExit(3)"], runs=1).exit_code == 3
    held = bytearray(200 << 20)
    assert measure(["sh", "-c", "exit 0"], runs=1).peak_mib < len(held) / (1 << 21)
    with pytest.raises(RuntimeError, match="ended with 3, not 1"):
        measure(["sh", "-c", "exit 3"], runs=1, ends=1)
    with pytest.raises(TimeoutError):
        measure(["sleep", "600"], runs=1, timeout_s=0.2)


def test_a_table_is_markdown() -> None:
    """A line of names, a line of dashes, the rows."""
    section = Section("", "", ("what", "time"), (("one", "1 s"),))
    assert table(section) == "| what | time |\n| --- | --- |\n| one | 1 s |"
