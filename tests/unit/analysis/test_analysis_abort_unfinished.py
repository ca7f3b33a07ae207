"""An abort of communicators that does not return: told alone, and blames no rank."""

from __future__ import annotations

import pytest

from unhang.analysis import diagnose
from unhang.pasted import paste_of
from unhang.report import Report
from unhang.testing import FakeJob, sample_of

GDB = """\
Thread 1 (Thread 0x7feb810ff640 (LWP 23530) "python"):
#0  0x00007ff0b872aa1f in syscall () from /lib64/libc.so.6
#1  0x00007fefe4a7fe62 in c10d::ProcessGroupNCCL::waitForFutureOrTimeout() at ProcessGroupNCCL.cpp
#2  0x00007fefe4a7fe62 in c10d::ProcessGroupNCCL::abort() at ProcessGroupNCCL.cpp
#3  0x00007fefe4a7fe62 in c10d::ProcessGroupNCCL::abortCommsFromMap() at ProcessGroupNCCL.cpp
#4  0x00007fefe4a7fe62 in ncclCommAbort() at init.cc
#5  0x00007fefe4a7fe62 in commFree() at init.cc
#6  0x00007fefe4a7fe62 in pthread_join() at pthread_join.c
"""
"""From https://github.com/NVIDIA/nccl/issues/1777."""

LLDB = """\
thread #16, name = 'python', stop reason = signal SIGSTOP
  frame #0: 0x00007fb0b7f0792d libc.so.6`syscall + 29
  frame #1: 0x00007fb090db0b85 libtorch_cuda.so`c10d::ProcessGroupNCCL::waitForFutureOrTimeout + 725
  frame #2: 0x00007fb090db1068 libtorch_cuda.so`c10d::ProcessGroupNCCL::abort() + 664
"""
"""From https://github.com/pytorch/pytorch/issues/149153."""

SHUTDOWN = GDB.replace("::abort()", "::shutdown()").replace("abortComms", "shutdownComms")
SHUTDOWN = SHUTDOWN.replace("ncclCommAbort", "ncclCommDestroy")
HELPER = """\
Thread 70 (Thread 0x7feb810ff641 (LWP 23601) "python"):
#0  0x00007ff0b871f9ff in poll () from /lib64/libc.so.6
#1  0x00007fefe4b00da7 in ncclProxyService () at proxy.cc
"""


def of_text(text: str) -> Report:
    """The verdict on a text that was pasted."""
    return diagnose(paste_of({"stacks.txt": text.encode()}).case)


@pytest.mark.parametrize("text", [GDB, LLDB, GDB + "\n" + HELPER])
def test_an_abort_leads_where_nothing_else_is_known(text: str) -> None:
    """It says that a failure came before, and that this is no verdict."""
    report = of_text(text)
    first = report.findings[0]
    assert (first.code, first.role, report.status) == ("UH608", "observation", "insufficient")
    assert not first.culprits
    assert "after an earlier failure" in report.summary
    assert any("unhang logs" in action for action in first.actions)


@pytest.mark.parametrize("text", [SHUTDOWN, GDB + "\n" + SHUTDOWN.replace("1 (", "2 ("), HELPER])
def test_an_orderly_end_is_no_abort(text: str) -> None:
    """Nor is one that aborts in a thread of its own, nor threads of NCCL that are always there."""
    assert "UH608" not in {finding.code for finding in of_text(text).findings}


ABORTS = "abort.cc:1 c10d::ProcessGroupNCCL::abort < train.py:30 step"


def test_beside_a_cause_it_is_not_told() -> None:
    """A rank that others wait for is the cause; an abort is what comes of that."""
    job = FakeJob(4)
    job.call([0, 1, 2], "all_reduce", finished=False)
    report = diagnose(job.case(samples=[sample_of(0, ABORTS)]))
    assert report.status == "problem"
    assert "UH608" not in {finding.code for finding in report.findings}


def test_ranks_are_named() -> None:
    """Where they are known."""
    job = FakeJob(2)
    job.missing = {0, 1}
    report = diagnose(job.case(samples=[sample_of(rank, ABORTS) for rank in (0, 1)]))
    told = next(finding for finding in report.findings if finding.code == "UH608")
    assert "Ranks 0-1 abort their communicators" in told.summary
    assert told.confidence_reasons
