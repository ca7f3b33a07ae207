from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.wording import fold_ranks, intervals, printable


def test_ranks_fold_to_ranges() -> None:
    """Runs fold, lone ranks stay, order and repetition do not matter."""
    assert fold_ranks([8, 0, 1, 2, 2, 3, 4, 5, 6]) == "0-6,8"
    assert fold_ranks([7]) == "7"
    assert fold_ranks([]) == ""


def test_many_ranges_are_cut_and_counted() -> None:
    """A scattered set says how many there are instead of filling the screen."""
    assert fold_ranks(range(0, 128, 2), limit=3) == "0,2,4,… (64 ranks)"


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 300)))
def test_intervals_hold_exactly_the_ranks(ranks: set[int]) -> None:
    """Spreading the intervals gives the set back."""
    assert {r for a, b in intervals(ranks) for r in range(a, b + 1)} == ranks


def test_nothing_from_outside_reaches_the_terminal() -> None:
    """Escape sequences, new lines and direction marks are shown, not obeyed."""
    assert printable("\x1b[31mred\n") == "\\x1b[31mred\\n"
    assert printable("a\u202eb") == "a\\u202eb"
    assert printable("plain ü") == "plain ü"
    assert printable("abcdef", limit=4) == "abc…"
