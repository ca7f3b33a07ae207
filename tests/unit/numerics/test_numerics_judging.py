"""Judging hashes of all ranks: the minority is named, halves blame nobody. No torch needed."""

from __future__ import annotations

import pytest

from unhang.numerics.ranks import judge_hashes


@pytest.mark.parametrize(
    ("hashes", "culprits", "status"),
    [
        (["a", "a", "a"], (), "healthy"),
        (["a", "b", "a"], (1,), "problem"),
        (["a", "b"], (), "problem"),
        (["a", "a", "b", "b"], (), "problem"),
        (["a", "b", "c", "a", "a"], (1, 2), "problem"),
    ],
)
def test_the_minority_is_named(hashes: list[str], culprits: tuple[int, ...], status: str) -> None:
    """More than half must agree before anybody is blamed."""
    report = judge_hashes([{"weight": h, "bias": "same"} for h in hashes], {})
    assert (report.status, report.culprits) == (status, culprits)


@pytest.mark.parametrize(
    ("hashes", "why"), [([{}, {}], "no parameter"), ([{"weight": "a"}], "one rank only")]
)
def test_where_nothing_is_compared_nothing_agrees(hashes: list[dict[str, str]], why: str) -> None:
    """A module without tensors, and a rank alone."""
    report = judge_hashes(hashes, {})
    assert report.status == "insufficient"
    assert why in report.summary


def test_a_tensor_that_one_rank_lacks() -> None:
    """A missing tensor is a difference too."""
    report = judge_hashes([{"w": "a", "extra": "x"}, {"w": "a"}, {"w": "a"}], {})
    assert report.culprits == (0,)
