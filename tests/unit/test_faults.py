"""Versions with a known fault: each row is proven, told by the doctor, and beside what it fits."""

from __future__ import annotations

import re

import pytest

from unhang.analysis import diagnose
from unhang.doctor.checks.env import check_env
from unhang.faults import FAULTS, KnownFault, faults_of, library_of
from unhang.pasted import paste_of
from unhang.report import Report

TIMED_OUT = (
    "[rank{rank}]:[E513 13:25:57.714 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, "
    "Timeout(ms)=600000) ran for 600042 milliseconds before timing out."
)
ABSENT = "[1,0]<stderr>:[2019-04-13 13:55:31.85: W x.cc:588] op_0 [missing ranks: 1]"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.library} {fault.since}")
def test_a_row_is_whole(fault: KnownFault) -> None:
    """A range that is one, a thread that can be looked up, words that fit into a sentence."""
    assert fault.since < fault.before
    assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", fault.thread)
    assert fault.what[-1] not in ".!"
    first = ".".join(map(str, fault.since))
    assert fault in faults_of(fault.library, f"{first}+cu130", fault.machine or "x86_64")
    fixed = ".".join(map(str, fault.before))
    assert fault not in faults_of(fault.library, fixed, fault.machine or "x86_64")


@pytest.mark.parametrize("version", ["", "unknown", "master", "+cu12"])
def test_what_is_no_version_has_no_fault(version: str) -> None:
    """A name, nothing."""
    assert list(faults_of("NCCL", version)) == []


def test_the_doctor_tells_the_version_of_a_package() -> None:
    """By the package's name, with the thread and what to do until it is updated."""
    assert library_of("nvidia-nccl-cu13") == "NCCL"
    results = check_env({"node1": {"versions": {"nvidia-nccl-cu13": "2.28.9", "machine": "x"}}})
    told = [result.seen for result in results if result.code == "UH810"]
    assert len(told) == 1
    assert "vllm-project/vllm#52504" in told[0]
    assert "--enforce-eager" in told[0]


def judged(*lines: str) -> Report:
    """The verdict of a paste."""
    return diagnose(paste_of({"a.log": "\n".join(lines).encode()}).case)


def told_beside(report: Report) -> list[str]:
    """Faults that stand beside the first finding."""
    return [text for text in report.findings[0].alternatives if "known fault" in text]


def test_a_fault_stands_beside_a_verdict_that_names_no_rank() -> None:
    """Where all ranks time out in one call, and where it is not known who did not come."""
    said = "node1:1:2 [0] NCCL INFO NCCL version 2.28.9+cuda12.9"
    stuck = judged(said, *(TIMED_OUT.format(rank=rank) for rank in range(4)))
    waited = judged(said, TIMED_OUT.format(rank=3))
    assert (stuck.status, waited.status) == ("problem", "insufficient")
    for report in (stuck, waited):
        assert ["vllm#52504" in text for text in told_beside(report)] == [True]


@pytest.mark.parametrize(
    "lines",
    [
        ("NCCL version 2.28.9+cuda12.9", ABSENT),
        ("NCCL version 2.27.5+cuda12.9", TIMED_OUT.format(rank=3)),
        ("NCCL version 2.25.1+cuda12.9", TIMED_OUT.format(rank=3)),
        ("NCCL version 2.28.9+cuda12.9", "step 1 loss 0.5", "step 2 loss 0.4"),
    ],
)
def test_a_fault_that_does_not_fit_is_not_told(lines: tuple[str, ...]) -> None:
    """A rank is named; the version has no such fault; no rank waits."""
    report = judged(*lines)
    assert not report.findings or told_beside(report) == []
