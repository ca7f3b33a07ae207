"""What each rank sends in an all_to_all and what its peers expect, by heartbeats."""

from __future__ import annotations

import pytest

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.report import Finding, Report
from unhang.testing import FakeJob, sample_of

Rows = tuple[tuple[int, ...], ...]
C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
SITE = f"{C10D}:4600 all_to_all_single < moe.py:31 dispatch"
FITS: Rows = ((1, 2, 3), (2, 2, 2), (4, 1, 3))
"""What each rank sends to each; the columns are what they expect."""


def verdict(sends: Rows, expects: Rows, seq: tuple[int, ...] = (9, 9, 9)) -> Report:
    """Three ranks in one exchange."""
    samples = [
        sample_of(
            rank, SITE, sample=at, state="S", phase="ready", last_op="all_to_all", last_call=9,
            splits=(((seq[rank],), (0, 1, 2), sends[rank], expects[rank]),),
        )
        for rank in range(3)
        for at in (0, 1)
    ]  # fmt: skip
    alone = diagnose(Case(samples=tuple(samples)))
    job = FakeJob(3, backend="gloo")
    job.call(range(3), "alltoall_base", finished=False)
    both = diagnose(job.case(samples=samples)).findings[0]
    assert (both.code, both.culprits) == (alone.findings[0].code, alone.findings[0].culprits)
    return alone


def expected(sends: Rows, **changed: dict[int, int]) -> Rows:
    """What each rank expects, where that fits; r2={0: 5}: rank 2 expects 5 from rank 0."""
    columns = [list(column) for column in zip(*sends, strict=True)]
    for name, parts in changed.items():
        for sender, part in parts.items():
            columns[int(name[1:])][sender] = part
    return tuple(map(tuple, columns))


def first(report: Report) -> Finding:
    """The first finding."""
    return report.findings[0]


def test_of_one_pair_the_receiver_is_named_and_nothing_is_sure() -> None:
    """What it expects it was told by its peer; but that may have told it wrongly."""
    found = first(verdict(FITS, expected(FITS, r0={1: 1})))
    assert (found.code, found.culprits, found.confidence) == ("UH204", (0,), "low")
    assert "rank 1 sends rank 0 2 elements, and rank 0 expects 1 from it" in found.summary
    assert [site.line for site in found.sites if site.role == "culprit"] == [31]
    assert verdict(FITS, expected(FITS, r0={1: 1})).causes == (found,)


@pytest.mark.parametrize(
    ("parts", "odd", "sure"),
    [
        ({"r2": {0: 7, 1: 0}}, (2,), "high"),
        ({"r0": {2: 7}, "r1": {2: 0}}, (2,), "high"),
        ({"r0": {2: 7}, "r2": {0: 0}}, (), "medium"),
        ({"r0": {1: 7}, "r1": {2: 0}, "r2": {0: 9}}, (), "medium"),
    ],
    ids=["expects", "sends", "two of each other", "all"],
)
def test_who_is_in_all_pairs_that_do_not_fit_is_wrong(
    parts: dict[str, dict[int, int]], odd: tuple[int, ...], sure: str
) -> None:
    """Of what it sends or of what it expects; where two or none are, no rank is named."""
    found = first(verdict(FITS, expected(FITS, **parts)))
    assert (found.code, found.culprits, found.confidence) == ("UH204", odd, sure)


def test_exchanges_that_fit_or_are_not_the_same_say_nothing() -> None:
    """That a rank gets more than the others is its right; of another call nothing follows."""
    assert first(verdict(FITS, expected(FITS))).code != "UH204"
    assert first(verdict(FITS, expected(FITS, r0={1: 1}), seq=(9, 8, 8))).code != "UH204"


def test_the_first_exchange_that_does_not_fit_counts() -> None:
    """Gloo lets one that gets too little go on; what it sends back is the second that is wrong."""
    first_call, second = expected(FITS, r2={0: 4}), ((1, 2, 4), (2, 2, 1), (4, 2, 3))
    back = expected(second, r0={2: 3})
    samples = [
        sample_of(
            rank, SITE, sample=at, state="S", phase="ready", last_op="all_to_all", last_call=9,
            splits=(((8,), (0, 1, 2), FITS[rank], first_call[rank]),
                    ((9,), (0, 1, 2), second[rank], back[rank])),
        )
        for rank in range(3)
        for at in (0, 1)
    ]  # fmt: skip
    found = first(diagnose(Case(samples=tuple(samples))))
    assert (found.code, found.culprits, found.seq) == ("UH204", (2,), 8)


@pytest.mark.parametrize("splits", [((),), (((9,), (0, 1), (1,), (1, 2)),), (((), (), (), ()),)])
def test_splits_that_no_recorder_writes_are_left_out(
    splits: tuple[tuple[tuple[int, ...], ...], ...],
) -> None:
    """Files of stacks come from outside."""
    samples = [sample_of(rank, SITE, splits=splits, last_op="all_to_all") for rank in range(2)]
    assert first(diagnose(Case(samples=tuple(samples)))).code != "UH204"
