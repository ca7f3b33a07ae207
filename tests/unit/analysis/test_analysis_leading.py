"""One rank leads, as in a server, and its peers wait for its next call: idle, or stuck."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.report import Report
from unhang.testing import FakeJob

MODULE = Frame("<module>", "/home/user/serve.py", 39)
WAITING = (
    Frame("broadcast", "/usr/lib/torch/distributed/distributed_c10d.py", 100),
    Frame("main", "/home/user/serve.py", 30),
    MODULE,
)
OWN = Frame("main", "/home/user/serve.py", 29)
QUEUE = (
    Frame("Condition.wait", "/usr/lib/python3.11/threading.py", 327),
    Frame("Queue.get", "/usr/lib/python3.11/queue.py", 171),
    OWN,
    MODULE,
)
ACCEPT = (Frame("socket.accept", "/usr/lib/python3.11/socket.py", 294), OWN, MODULE)
LOADER = (
    Frame("_BaseDataLoaderIter.__next__", "/usr/lib/torch/utils/data/dataloader.py", 600),
    OWN,
    MODULE,
)
MS = 1_000_000


def looks(rank: int, frames: tuple[Frame, ...]) -> list[ProcessSample]:
    """Two looks at a rank that stands still."""
    main = ThreadStack("MainThread", 100 + rank, frames, is_main=True)
    sample = ProcessSample(rank=rank, host="node01", pid=100 + rank, state="S", threads=(main,))
    return [replace(sample, sample=number) for number in (0, 1)]


def served(
    *lates_ms: int, works_ms: int = 2, frames: tuple[Frame, ...] = QUEUE, hosts: int = 1
) -> Case:
    """Turns of a loop: a broadcast to which rank 0 came so late, and an all_reduce at once.

    Below 0, the others came so late. Like Gloo's recorder, the dumps do not say when calls ended.
    """
    job = FakeJob(3)
    job.dump_fields = {rank: {"host": f"node{rank % hosts}"} for rank in range(3)}
    begun: list[tuple[int, int]] = []  # rank and ms of each call, as they are made
    now = 0
    for late in lates_ms:
        begun += [(rank, now + max(late if rank == 0 else -late, 0)) for rank in (1, 2, 0)]
        job.call((1, 2, 0), "broadcast", site="serve.py:30 main")
        now += abs(late) + works_ms
        begun += [(rank, now) for rank in (1, 2, 0)]
        job.call((1, 2, 0), site="serve.py:33 main")
        now += 1
    begun += [(rank, now) for rank in (1, 2)]
    job.call((1, 2), "broadcast", site="serve.py:30 main", finished=False)
    case = job.case(samples=[*looks(0, frames), *looks(1, WAITING), *looks(2, WAITING)])
    created = case.calls.created_ns.copy()
    for rank in range(3):
        own = case.calls.rank == rank
        created[own] = [10**18 + ms * MS for who, ms in begun if who == rank]
    ended = np.zeros_like(created)
    return replace(case, calls=replace(case.calls, created_ns=created, completed_ns=ended))


def essence(report: Report) -> tuple[str, tuple[int, ...], str, str]:
    """What matters of a verdict."""
    assert report.decision is not None
    first = report.findings[0]
    return first.code, first.culprits, first.confidence, report.decision.reason


@pytest.mark.parametrize("frames", [QUEUE, ACCEPT])
def test_a_server_without_requests_may_be_idle(frames: tuple[Frame, ...]) -> None:
    """Captured of a server with a request each 0.3 s, and none for minutes after these."""
    report = diagnose(served(*[300] * 30, frames=frames))
    assert essence(report) == ("UH101", (0,), "low", "idle")
    assert "In 30 earlier calls like this one the others waited for rank 0" in " ".join(
        report.findings[0].evidence
    )
    assert "and have no work" in " ".join(report.findings[0].alternatives)


@pytest.mark.parametrize(
    ("channel", "sure"), [("anon_pipe_read", ("low", "idle")), ("do_wait", ("high", "away"))]
)
def test_orders_may_come_by_a_pipe(channel: str, sure: tuple[str, str]) -> None:
    """A person types, or another program prints them; the end of a child is no order."""
    case = served(*[300] * 30, frames=(OWN, MODULE))
    stands = [replace(s, wait_channel=channel) if s.rank == 0 else s for s in case.samples]
    assert essence(diagnose(replace(case, samples=tuple(stands))))[2:] == sure


def test_a_busy_server_that_had_some_lulls_may_be_idle_too() -> None:
    """Most requests follow at once; the pauses between the others are most of the time."""
    lates = [1, 1, 1, 2000] * 10
    assert essence(diagnose(served(*lates, works_ms=20)))[2:] == ("low", "idle")


@pytest.mark.parametrize(
    "case",
    [
        served(*[20] * 30, works_ms=50),
        served(*[300] * 4),
        served(*([3] * 10 + [-30] * 20)),
        served(*([3] * 20 + [60_000] + [3] * 20)),
        served(*[300] * 30, frames=LOADER),
        served(*[90] * 30, hosts=3),
    ],
    ids=[
        "slow",
        "few turns",
        "last in a third",
        "paused once",
        "loads data",
        "clocks of three hosts",
    ],
)
def test_a_rank_that_hangs_elsewhere_is_none(case: Case) -> None:
    """Merely slower than the others, seldom waited for, or held by what hands in no work."""
    assert essence(diagnose(case)) == ("UH101", (0,), "high", "away")


def test_clocks_of_hosts_need_not_be_set_for_long_waits() -> None:
    """Nothing in the dumps sets them; they are no tenth of a second apart."""
    assert essence(diagnose(served(*[400] * 30, hosts=3)))[2:] == ("low", "idle")


SERVER = ThreadStack(
    "Thread-1",
    7,
    (
        Frame("selectors.select", "/usr/lib/python3.11/selectors.py", 415),
        Frame("BaseServer.serve_forever", "/usr/lib/python3.11/socketserver.py", 233),
    ),
)


def one_look(rank: int, case: Case, **told: object) -> Case:
    """The case with something more told of a rank."""
    samples = (replace(s, **told) if s.rank == rank else s for s in case.samples)  # type: ignore[arg-type]  # its fields
    return replace(case, samples=tuple(samples))


def with_server(case: Case) -> Case:
    """The case with a server in a thread of rank 0."""
    main = next(s for s in case.samples if s.rank == 0).threads
    return one_look(0, case, threads=(*main, SERVER))


@pytest.mark.parametrize("said", ["idle", "Idle", "waiting for requests"])
def test_a_program_that_says_that_it_is_idle_is_believed(said: str) -> None:
    """From its first request on, and whatever it did before."""
    report = diagnose(one_look(0, served(*[3] * 4), activity=said))
    assert essence(report) == ("UH101", (0,), "low", "idle")
    assert report.summary == (
        "Rank 0 says that it is idle, waiting for work, and ranks 1-2 wait for it."
    )
    assert essence(diagnose(one_look(0, served(*[3] * 4), activity="evaluation")))[2:] != (
        "low", "idle",
    )  # fmt: skip


def test_a_server_before_its_first_requests_may_be_idle() -> None:
    """A thread of it serves; it waits for what comes in there."""
    report = diagnose(with_server(served(*[3] * 4)))
    assert essence(report) == ("UH101", (0,), "low", "idle")
    assert "it runs a server in BaseServer.serve_forever" in report.findings[0].alternatives[0]


def test_a_rank_that_accepts_connections_is_a_server() -> None:
    """Also before its first request; a thread that accepts them serves tensors, or a debugger."""
    case = served(*[3] * 4, frames=ACCEPT)
    assert essence(diagnose(case)) == ("UH101", (0,), "low", "idle")
    main = next(s for s in served(*[3] * 4).samples if s.rank == 0).threads
    helper = ThreadStack("Thread-1", 7, ACCEPT[:1])
    report = diagnose(one_look(0, served(*[3] * 4), threads=(*main, helper)))
    assert essence(report) == ("UH101", (0,), "high", "away")


def test_a_rank_with_a_server_that_hangs_elsewhere_is_stuck() -> None:
    """An exporter of metrics is a server too: who waits for data, waits for no request."""
    report = diagnose(with_server(served(*[3] * 4, frames=LOADER)))
    assert essence(report) == ("UH101", (0,), "high", "away")
