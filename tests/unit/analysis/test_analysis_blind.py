"""Recorders that were asked and hold nothing, of ranks that have made calls."""

from __future__ import annotations

from typing import Any

import pytest

from unhang.analysis import diagnose
from unhang.report import Report
from unhang.testing import FakeJob, sample_of

AT_DEVICE = "/opt/site-packages/torch/cuda/__init__.py:1000 synchronize < train.py:51 sync"
ELSEWHERE = "train.py:56 load"
CALLED = {"last_op": "all_reduce", "last_call": 12, "last_site": "train.py:40"}


def verdict(stacks: list[str], calls: int = 0, **told: Any) -> Report:  # noqa: ANN401 - of a sample
    """Ranks whose dumps hold this many calls, and where they stand."""
    job = FakeJob(len(stacks), backend="nccl2")
    for _ in range(calls):
        job.call(range(len(stacks)))
    samples = [
        sample_of(rank, stack, sample=number, time_ns=number * 10**9, state="S", **told)
        for number in (0, 1)
        for rank, stack in enumerate(stacks)
    ]
    return diagnose(job.case(samples=samples))


def said(report: Report) -> str:
    """Every sentence of a report."""
    texts = [report.summary, *(rank.detail for rank in report.ranks)]
    for finding in report.findings:
        texts += [finding.summary, *finding.evidence, *finding.alternatives]
    return "\n".join(texts)


@pytest.mark.parametrize("stacks", [[AT_DEVICE] * 4, [AT_DEVICE] * 3 + [ELSEWHERE]])
def test_nothing_is_said_over_an_empty_recorder(stacks: list[str]) -> None:
    """It is told as blind, with what helps; what it lacks proves nothing."""
    report = verdict(stacks, **CALLED)
    (blind,) = (f for f in report.findings if f.code == "UH902")
    assert (blind.role, blind.family) == ("observation", "evidence")
    assert blind.actions
    assert "ranks 0-3" in blind.summary
    assert "no rank is in communication" not in said(report).lower()
    assert "no call in flight" not in said(report)
    assert all(call.op for finding in report.findings for call in finding.calls)
    assert report.status != "healthy"


def test_ranks_that_called_nothing_are_not_blind() -> None:
    """Before its first call, and while it makes a group, a rank has an empty dump."""
    for told in ({}, {**CALLED, "makes": ("0",)}):
        report = verdict([AT_DEVICE] * 4, **told)
        assert "UH902" not in {finding.code for finding in report.findings}


def test_a_recorder_that_holds_calls_sees() -> None:
    """Be they finished."""
    report = verdict([AT_DEVICE] * 4, calls=2, **CALLED)
    assert "UH902" not in {finding.code for finding in report.findings}
