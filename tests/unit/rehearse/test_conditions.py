"""Which condition decides whether a rank comes to a line."""

from __future__ import annotations

from pathlib import Path

from unhang.rehearse.verdict.conditions import conditions_of

SCRIPT = """\
if __name__ == "__main__":
    def save():
        call()
    if rank == 0:
        save()
        if step % 2:
            for _ in range(3):
                call()
    else:
        call()
    call()
"""


def test_a_line_stands_under_the_ifs_of_its_function(tmp_path: Path) -> None:
    """Not under those of the function that makes it; an else is one too."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    main = "__name__ == '__main__'"
    found = {line: conditions_of(str(script), line) for line in (3, 4, 5, 8, 10, 11)}
    assert found == {
        3: (), 4: (main,), 5: (main, "rank == 0"), 8: (main, "rank == 0", "step % 2"),
        10: (main, "rank == 0"), 11: (main,),
    }  # fmt: skip


GUARDED = """\
def save(step):
    if rank != 0:
        return
    for each in range(3):
        if each == step:
            continue
        call()
    if late:
        if last:
            return
    else:
        call()
    call()
"""


def test_what_follows_an_if_that_leaves_stands_under_it(tmp_path: Path) -> None:
    """In its own block only."""
    script = tmp_path / "train.py"
    script.write_text(GUARDED)
    found = {line: conditions_of(str(script), line) for line in (2, 7, 12, 13)}
    guard = "not (rank != 0)"
    assert found == {2: (), 7: (guard, "not (each == step)"), 12: (guard, "late"), 13: (guard,)}


def test_a_source_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    """Neither one that is no Python."""
    assert conditions_of(str(tmp_path / "gone.py"), 3) is None
    broken = tmp_path / "broken.py"
    broken.write_text("if (")
    assert conditions_of(str(broken), 1) is None
