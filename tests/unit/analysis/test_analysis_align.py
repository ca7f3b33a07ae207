"""Alignment of call sequences: where two ranks part for the first time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.analysis.divergence.align import CallSequence, Edit, edits


def sequence(strict: str, loose: str = "") -> CallSequence:
    """A sequence with one letter a call."""
    return CallSequence(*(np.asarray([ord(c) for c in text]) for text in (strict, loose or strict)))


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ("abcabc", "abcabc", []),
        ("abcab", "abcabc", []),
        ("abcbcabc", "abcabcabcabc", [Edit("missing", 3, 3)]),
        ("abcbcabc", "abcabcabc", [Edit("missing", 3, 3)]),
        ("abcXabc", "abcabcabc", [Edit("extra", 3, 3)]),
        ("abXabc", "abcabc", [Edit("changed", 2, 2)]),
        ("bcdef", "abcdef", [Edit("missing", 0, 0)]),
        ("abdef", "abcdefg", [Edit("missing", 2, 2)]),
        ("", "abc", []),
    ],
)
def test_first_difference(mine: str, theirs: str, expected: list[Edit]) -> None:
    """The call that one side lacks, has too many of, or made otherwise; never its end."""
    assert edits(sequence(mine), sequence(theirs)) == expected


def test_lines_tell_equal_calls_apart() -> None:
    """With equal sizes the call sites show which call was left out."""
    mine, theirs = sequence("abcacabc", "x" * 8), sequence("abcabcabc", "x" * 9)
    assert edits(mine, theirs) == [Edit("missing", 4, 4)]


def test_other_lines_alone_are_no_difference() -> None:
    """A rank may make the same calls from lines of its own."""
    assert edits(sequence("defdefdef", "xyzxyzxyz"), sequence("abcabcabc", "xyzxyzxyz")) == []


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.data())
def test_one_missing_call_is_found_where_the_sequences_part(
    calls: list[int], data: st.DataObject
) -> None:
    """Leaving out one call is seen as that, at the first place where it shows."""
    theirs = np.asarray([*calls, 9, 8, 7], np.int64)
    out = data.draw(st.integers(0, len(calls) - 1))
    mine = np.delete(theirs, out)
    found = edits(CallSequence(mine, mine), CallSequence(theirs, theirs))
    shown = int(np.flatnonzero(mine != theirs[:-1])[0])
    assert found == [Edit("missing", shown, shown)]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_edits_turn_one_sequence_into_the_other(left: list[int], right: list[int]) -> None:
    """Applying the edits makes one sequence a beginning of the other."""
    mine, theirs = np.asarray(left, np.int64), np.asarray(right, np.int64)
    found = edits(CallSequence(mine, mine), CallSequence(theirs, theirs))
    gone = {edit.theirs for edit in found if edit.kind in ("missing", "changed")}
    more = {edit.mine for edit in found if edit.kind in ("extra", "changed")}
    a = [call for at, call in enumerate(left) if at not in more]
    b = [call for at, call in enumerate(right) if at not in gone]
    assert a[: len(b)] == b[: len(a)]
