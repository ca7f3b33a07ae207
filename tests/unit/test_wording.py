from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.errors import UsageError
from unhang.wording import (
    count_of,
    fold_ranks,
    intervals,
    parse_ranks,
    printable,
    rank_phrase,
    shell_word,
)


def test_ranks_fold_to_ranges() -> None:
    """Runs fold, lone ranks stay, order and repetition do not matter."""
    assert fold_ranks([8, 0, 1, 2, 2, 3, 4, 5, 6]) == "0-6,8"
    assert fold_ranks([7]) == "7"
    assert fold_ranks([]) == ""


def test_many_ranges_are_cut_and_counted() -> None:
    """A scattered set says how many there are instead of filling the screen."""
    pairs = [rank for rank in range(256) if rank % 8 < 2]
    assert fold_ranks(pairs, limit=3) == "0-1,8-9,16-17,… (64 ranks)"


def test_equal_steps_fold_as_cpu_lists_do() -> None:
    """A parallel group of every eighth rank is one range, three ranks are written out."""
    assert fold_ranks(range(0, 64, 8)) == "0-56:8"
    assert fold_ranks([0, 8, 16, 99]) == "0,8,16,99"


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(0, 300), min_size=1))
def test_what_is_folded_can_be_read_back(ranks: set[int]) -> None:
    """Reading undoes folding, whatever the set."""
    assert parse_ranks(fold_ranks(ranks, limit=10_000)) == ranks


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "3-1", "0-8:0", "1,,2", "0-99999999", "٣"])
def test_a_bad_list_of_ranks_is_a_usage_error(text: str) -> None:
    """Every slip ends in one sentence, and none of them in a huge set."""
    with pytest.raises(UsageError):
        parse_ranks(text)


def test_counts_and_ranks_in_sentences() -> None:
    """Singular, plural and thousands."""
    assert count_of(1, "rank") == "1 rank"
    assert count_of(1024, "entry", "entries") == "1,024 entries"
    assert [rank_phrase(r) for r in ([], [7], [1, 0])] == ["no rank", "rank 7", "ranks 0-1"]


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


@pytest.mark.parametrize(
    "word", ["x\u202eq", "a b\x1b[31m'\\c", "\u200bz", "plain", "a 'b'", "é\n"]
)
def test_a_word_to_paste_is_visible_and_the_same(word: str) -> None:
    """Nothing that changes the direction or hides reaches a terminal raw; a shell gets it whole."""
    told = shell_word(word)
    assert told.isprintable()
    done = subprocess.run(["bash", "-c", f"printf %s {told}"], capture_output=True, check=True)
    assert done.stdout.decode() == word
