"""Ranks that are short of cores or memory: when that is a cause, when it stands beside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.model import Frame, ProcessSample, Shortage, ThreadStack
from unhang.report import Report
from unhang.stacks.formats.saved import dump_samples, parse

WORK = (Frame("grind", "/job/train.py", 9), Frame("<module>", "/job/train.py", 30))
WAIT = (
    Frame("all_reduce", "/x/torch/distributed/distributed_c10d.py", 2800),
    Frame("<module>", "/job/train.py", 20),
)
THROTTLED = Shortage(
    seconds=1.0, ran_s=0.2, queued_s=0.8, threads=1, usable=8, cores=0.2, periods=10, throttled=9
)
CROWDED = Shortage(seconds=1.0, ran_s=0.1, queued_s=0.9, threads=16, usable=4)
FULL = Shortage(
    seconds=1.0, ran_s=0.1, usable=8, memory_limit=1 << 30, memory_used=1 << 30,
    memory_held=1020 << 20, pushed_back=7, memory_stalled=0.8, faults=400,
)  # fmt: skip


def looked(rank: int, frames: tuple[Frame, ...], lacks: Shortage | None) -> list[ProcessSample]:
    """Two looks at a rank that stands."""
    threads = (ThreadStack("MainThread", 100 + rank, frames, is_main=True),)
    look = ProcessSample(rank, "n1", 100 + rank, threads, state="R", tool="py-spy")
    return [look, replace(look, sample=1, short_of=lacks)]


def judged(
    lacks: Shortage | None, *, frames: tuple[Frame, ...] = WORK, others: bool = True
) -> Report:
    """A job whose rank 1 stands somewhere, and of which the others wait in all_reduce."""
    samples = looked(1, frames, lacks)
    for rank in (0, 2) if others else ():
        samples += looked(rank, WAIT, Shortage(seconds=1.0, usable=4))
    return diagnose(Case(samples=tuple(samples), world_size=3 if others else 1))


def test_a_limit_is_the_cause_and_the_waiting_its_consequence() -> None:
    """The rank that others wait for is stopped in most periods."""
    report = judged(THROTTLED)
    first, second = report.findings
    assert (first.code, first.role, first.culprits, first.victims) == (
        "UH607",
        "cause",
        (1,),
        (0, 2),
    )
    assert (second.code, second.role, second.caused_by) == ("UH101", "consequence", ("f1",))
    assert report.summary == (
        "Rank 1 is short of CPU time: its cgroup may use 0.2 cores, and was throttled in 9 of 10 "
        "periods (90%); ranks 0,2 wait for it in all_reduce."
    )
    assert report.decision is not None
    assert report.decision.action == "look-first"


def test_a_rank_that_waits_and_spins_is_blamed_for_nothing() -> None:
    """It uses up its share by looking whether its peers have come."""
    report = judged(THROTTLED, frames=WAIT)
    assert [f.role for f in report.findings if f.code == "UH607"] == ["observation"]
    assert all(f.culprits == () for f in report.findings if f.code == "UH607")


def test_a_crowded_machine_stands_beside() -> None:
    """It makes a rank slow; that a rank is away is told first, with the figures."""
    report = judged(CROWDED)
    assert [(f.code, f.role) for f in report.findings] == [
        ("UH101", "cause"), ("UH607", "observation"),
    ]  # fmt: skip
    said = (
        "Rank 1 is short of CPU time: it wanted a core and had none for 90% of the time, as 16 "
        "threads of 3 processes share 4 cores."
    )
    assert said in report.findings[0].evidence
    assert report.findings[1].summary == said
    assert any("OMP_NUM_THREADS=1" in action for action in report.findings[1].actions)


def test_busy_neighbours_are_told_as_such() -> None:
    """The threads of the job would fit."""
    report = judged(replace(CROWDED, threads=1))
    assert "other processes of the node use them" in report.findings[1].summary


def test_memory() -> None:
    """A full group in which somebody waits for memory most of the time."""
    report = judged(FULL)
    assert report.findings[0].code == "UH607"
    assert report.findings[0].role == "cause"
    assert "its cgroup uses 1,024 of 1,024 MB (1,020 without page cache)" in report.summary
    assert "it read back 400 pages per second from a disk" in report.summary


@pytest.mark.parametrize(
    "lacks",
    [
        None,
        Shortage(),
        replace(THROTTLED, periods=2, throttled=2, queued_s=0.1),
        replace(THROTTLED, throttled=1, queued_s=0.1),
        replace(THROTTLED, seconds=0.05),
        replace(CROWDED, queued_s=0.2),
        replace(FULL, pushed_back=0, memory_stalled=0.0),
        replace(FULL, memory_held=100 << 20, faults=0),
    ],
)
def test_what_is_no_shortage(lacks: Shortage | None) -> None:
    """Nothing measured, too short, few periods, a page cache that fills its group."""
    assert "UH607" not in {finding.code for finding in judged(lacks).findings}


def test_a_process_without_a_rank() -> None:
    """It is named by its process id."""
    samples = [replace(look, rank=-1, role="unknown") for look in looked(1, WORK, THROTTLED)]
    report = diagnose(Case(samples=tuple(samples)))
    assert report.status == "problem"
    assert report.summary.startswith("Process 101 is short of CPU time: its cgroup may use 0.2")


def test_a_worker_of_a_data_loader_is_its_ranks() -> None:
    """The rank waits for it, and others for the rank."""
    worker = (
        Frame("decode", "/job/data.py", 3),
        Frame("_worker_loop", "/x/torch/utils/data/_utils/worker.py", 349),
    )
    loads = (
        Frame("_try_get_data", "/x/torch/utils/data/dataloader.py", 1100),
        Frame("<module>", "/job/train.py", 12),
    )
    helper = [
        replace(look, rank=-1, parent_rank=1, pid=500, role="data-loader")
        for look in looked(1, worker, THROTTLED)
    ]
    samples = (*looked(0, WAIT, None), *looked(1, loads, None), *helper)
    report = diagnose(Case(samples=samples, world_size=2))
    assert (report.findings[0].code, report.culprits) == ("UH607", (1,))


def test_saved_and_read_back() -> None:
    """Figures that no machine has are left out, and the rest of the process stays."""
    samples = looked(1, WORK, THROTTLED)
    text = dump_samples(samples)
    assert parse(text) == samples
    odd = text.replace('"queued_s":0.8', '"queued_s":1e999')
    assert [each.short_of for each in parse(odd)] == [None, None]
