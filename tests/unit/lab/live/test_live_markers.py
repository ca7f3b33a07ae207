from __future__ import annotations

from pathlib import Path

import pytest

from lab.live.markers import Marker, read_markers


def test_markers_say_who_stands_where_and_when(tmp_path: Path) -> None:
    """All that a comment can say, and nothing of lines without one."""
    script = tmp_path / "job.py"
    script.write_text(
        "import torch\n"
        "reduce(x)  # lab: victims wait, step 4, site\n"
        "load()  # a comment\n"
        "load()  # lab: culprits stay\n"
        "reduce(y)  # lab: site\n"
        "wait()  # lab: all stay, armed site\n"
    )
    assert read_markers(script) == (
        Marker(2, "victims", waits=True, step=4, site=True),
        Marker(4, "culprits"),
        Marker(5, site=True),
        Marker(6, "all", armed_site=True),
    )


@pytest.mark.parametrize("words", ["victims sleep", "step x", "everybody wait", "site, "])
def test_a_marker_that_says_nothing_is_an_error(tmp_path: Path, words: str) -> None:
    """A misspelt marker must not silently mean "nowhere"."""
    script = tmp_path / "job.py"
    script.write_text(f"x = 1  # lab: {words}\n")
    with pytest.raises(ValueError, match="line 1"):
        read_markers(script)


@pytest.mark.parametrize(
    ("role", "line", "step", "there"),
    [
        ("victims", 7, 4, True),
        ("victims", 7, 3, False),
        ("victims", 8, 4, False),
        ("culprits", 7, 4, False),
    ],
)
def test_a_rank_is_there_in_its_role_line_and_step(
    role: str, line: int, step: int, *, there: bool
) -> None:
    """An earlier round of the same loop is not the hang."""
    assert Marker(7, "victims", step=4).holds(role, line, step) is there


def test_a_marker_for_all_in_any_step_holds_for_everybody() -> None:
    """Everybody in any step: `all` is every role."""
    marker = Marker(7, "all")
    assert marker.holds("victims", 7, -1)
    assert marker.holds("culprits", 7, 12)
