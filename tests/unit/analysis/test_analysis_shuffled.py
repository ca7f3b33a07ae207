"""The same evidence in another order gives the same report, to the letter.

Of the captures one in twelve is shuffled; all with UNHANG_SHUFFLED_EACH=1, before a release.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from shuffled import in_other_order

from unhang.analysis import diagnose, steps
from unhang.analysis.linking import linked
from unhang.analysis.shared.claims import Claim, Reason
from unhang.case import Case
from unhang.ingest import load
from unhang.model import LogEvent, ProcessSample
from unhang.report import Report
from unhang.testing import FakeJob, sample_of

EXAMPLES = sorted(Path("examples").glob("*/"))
CAPTURES = sorted(Path("tests/data/nccl").glob("*/*.tar.gz"))[
    :: int(os.environ.get("UNHANG_SHUFFLED_EACH", "12"))
]


@pytest.mark.parametrize("folder", [*EXAMPLES, *CAPTURES], ids=str)
def test_the_order_of_sources_changes_nothing(folder: Path) -> None:
    """Dumps, processes and lines of logs may be read in any order."""
    case = load([folder])
    report = diagnose(case)
    for seed in range(3):
        assert diagnose(in_other_order(case, seed)) == report


def gone(rank: int, status: int) -> ProcessSample:
    """A rank whose process has ended."""
    return replace(sample_of(rank, ""), state="X", exit_status=status)


def ended_for_sizes() -> Case:
    """A size that does not fit, the rank that Gloo ended for it, and those who lost that one."""
    builder = FakeJob(4, backend="gloo")
    builder.call(range(4), "all_reduce")
    builder.call([0, 1, 2], "all_reduce", finished=False)
    builder.call([3], "all_reduce", dtype="Double", finished=False)
    builder.missing |= {2}
    told = "[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 1000 vs 500. Received"
    event = LogEvent("UH762", "cause", 2, told, "job.log:1")
    samples = [gone(rank, 134 if rank == 2 else 1) for rank in range(4)]
    return builder.case(samples=samples, log_events=[event])


def failed_and_waited_for() -> Case:
    """A rank that was killed and for which others wait, and one that failed by its log."""
    builder = FakeJob(4)
    builder.call(range(4), "all_reduce")
    builder.call([0, 1, 2], "all_reduce", finished=False)
    event = LogEvent("UH724", "cause", 3, "OSError: No space left on device", "job.log:1")
    return builder.case(samples=[gone(3, 137)], log_events=[event])


def verdicts(report: Report) -> list[object]:
    """What is said of whom, and of what it comes; in whatever order equals are told."""
    kinds = {each.id: each.code for each in report.findings}
    return sorted(
        (f.code, f.role, f.confidence, f.culprits, f.victims, [kinds[n] for n in f.caused_by])
        for f in report.findings
    )


def shuffled_links(seed: int) -> object:
    """The linking, as if rules had told in another order."""

    def links(claims: Iterable[Claim], *bare: Reason) -> list[Claim]:
        told = list(claims)
        Random(seed).shuffle(told)  # noqa: S311 - nothing is secret here
        return linked(told, *bare)

    return links


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(ended_for_sizes, id="ended for sizes"),
        pytest.param(failed_and_waited_for, id="failed"),
        *(pytest.param(lambda folder=f: load([folder]), id=str(f)) for f in (*EXAMPLES, *CAPTURES)),
    ],
)
def test_the_order_of_rules_changes_no_verdict(
    case: Callable[[], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rule sees what another one claims, and reasons are linked in an order of their own."""
    given = case()
    told = verdicts(diagnose(given))
    for seed in range(3):
        monkeypatch.setattr(steps, "linked", shuffled_links(seed))
        assert verdicts(diagnose(given)) == told


def test_the_shuffled_cases_have_something_to_link() -> None:
    """Else no order could matter."""
    for case in (ended_for_sizes(), failed_and_waited_for()):
        assert any(each.caused_by for each in diagnose(case).findings)
