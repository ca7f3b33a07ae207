"""Workers of torch's RPC: circles, workers that do not answer, and those that have not ended."""

from __future__ import annotations

import pytest

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.model import ProcessSample, ThreadStack
from unhang.report import Finding, Report
from unhang.testing import sample_of, worked

RPC = "/opt/venv/lib/python3.11/site-packages/torch/distributed/rpc"
SYNC = f"{RPC}/api.py:842 rpc_sync < {RPC}/api.py:98 wrapper"
SERVED = f"{RPC}/internal.py:202 _run_function"
ENDS = (
    f"{RPC}/api.py:280 _all_gather < {RPC}/api.py:98 wrapper < {RPC}/api.py:320 _wait_all_workers"
    f" < {RPC}/api.py:375 shutdown < job.py:26 main"
)


def worker(rank: int, site: str, serves: str = "", **told: object) -> list[ProcessSample]:
    """Two looks at a worker: its main thread, and one that runs what another asked for."""
    return [_look(rank, site, serves, number, **told) for number in (0, 1)]


def _look(rank: int, site: str, serves: str, number: int, **told: object) -> ProcessSample:
    known: dict[str, object] = {"phase": "ready", "worker": f"worker{rank}", "serving": 16, **told}
    sample = sample_of(rank, site, sample=number, **known)
    if not serves:
        return sample
    frames = sample_of(rank, serves).threads[0].frames
    thread = ThreadStack("Dummy-1", 99, frames)
    return type(sample)(**{n: getattr(sample, n) for n in sample.__slots__} | {
        "threads": (*sample.threads, thread)
    })  # fmt: skip


def judged(*samples: list[ProcessSample]) -> Report:
    """The verdict."""
    return diagnose(Case(samples=tuple(s for each in samples for s in each)))


def cause(*samples: list[ProcessSample]) -> Finding:
    """The first finding."""
    first = judged(*samples).findings[0]
    assert first.role == "cause"
    return first


def test_workers_that_wait_for_each_other_with_one_thread_are_a_circle() -> None:
    """Each has one thread for RPCs, and that waits: both lines are told, and no rank is named."""
    asks = {"serving": 1, "asks_in": "rpc_sync"}
    first = worker(
        0, f"{SYNC} < job.py:25 main", f"{SYNC} < job.py:12 back < {SERVED}",
        asks="worker1", asks_for="leaf", **asks,
    )  # fmt: skip
    second = worker(
        1, ENDS, f"{SYNC} < job.py:15 there < {SERVED}", asks="worker0", asks_for="back", **asks
    )
    found = cause(first, second)
    assert (found.code, found.confidence, found.culprits) == ("UH301", "high", ())
    assert "worker0 waits in rpc_sync for worker1 to run leaf" in found.summary
    assert "worker1 waits in rpc_sync for worker0 to run back" in found.summary
    assert {site.line for site in found.sites} == {25, 15}
    assert any("1 thread that serves others, and none is free" in e for e in found.evidence)


def test_a_circle_with_free_threads_is_less_sure() -> None:
    """Threads are free: what is asked for next would be begun, so an answer may be lost."""
    first = worker(0, f"{SYNC} < job.py:25 main", asks="worker1", asks_in="rpc_sync")
    second = worker(1, f"{SYNC} < job.py:25 main", asks="worker0", asks_in="rpc_sync")
    found = cause(first, second)
    assert (found.code, found.confidence, found.culprits) == ("UH301", "medium", ())


def test_a_worker_that_stands_in_what_another_asked_for_is_named_with_its_line() -> None:
    """Its main thread is at the end of RPC: the thread that serves is the one to look at."""
    first = worker(0, f"{SYNC} < job.py:25 main", asks="worker1", asks_in="rpc_sync")
    held = f"/usr/lib/python3.11/threading.py:320 wait < job.py:9 slow < {SERVED}"
    second = worker(1, ENDS, held, asks_in="rpc.shutdown")
    found = cause(first, second)
    assert (found.code, found.culprits, found.victims) == ("UH101", (1,), (0,))
    assert [site.line for site in found.sites if site.role == "culprit"] == [9]
    assert found.summary == (
        "Rank 1 (worker1) does not answer, and rank 0 waits for the answer in RPC."
    )


def test_a_worker_that_computes_its_answer_is_not_blamed() -> None:
    """It works: it may only be slow, and nothing is ended."""
    first = worker(0, f"{SYNC} < job.py:25 main", asks="worker1", asks_in="rpc_sync")
    busy = worker(
        1, ENDS, f"job.py:9 slow < {SERVED}", asks_in="rpc.shutdown", looks=worked(cpu_s=0.9)
    )
    report = judged(first, busy)
    assert (report.findings[0].confidence, report.findings[0].moving) == ("low", (1,))
    assert report.decision is not None
    assert report.decision.moving == (1,)


def test_a_pause_of_a_worker_that_serves_is_a_pause() -> None:
    """It stands in its own code, though its main thread waits: nothing is ended before --grace."""
    told = {"paused_s": 12.0, "grace_s": 60.0}
    first = worker(0, f"{SYNC} < job.py:25 main", asks="worker1", asks_in="rpc_sync", **told)
    second = worker(1, ENDS, f"job.py:9 slow < {SERVED}", asks_in="rpc.shutdown", **told)
    decision = judged(first, second).decision
    assert decision is not None
    assert decision.pausing == (1,)


def test_who_has_not_come_to_the_end_of_rpc_is_named() -> None:
    """Two wait in shutdown, the third stands in its own program."""
    late = worker(2, "/usr/lib/python3.11/threading.py:320 wait < job.py:31 main")
    found = cause(
        worker(0, ENDS, asks_in="rpc.shutdown"), worker(1, ENDS, asks_in="rpc.shutdown"), late
    )
    assert (found.code, found.culprits, found.victims) == ("UH101", (2,), (0, 1))
    assert found.summary.startswith("Rank 2 (worker2) has not reached rpc.shutdown")


def test_a_worker_that_gathers_calls_waits_for_who_has_not_called() -> None:
    """Its function returns a future of all: no thread of it runs anything, and one rank is late."""
    asks = {"asks": "worker0", "asks_in": "rpc_sync"}
    sends = [worker(rank, f"{SYNC} < job.py:25 main", **asks) for rank in (1, 2)]
    late = worker(3, "/usr/lib/python3.11/threading.py:320 wait < job.py:31 main")
    found = cause(worker(0, ENDS, asks_in="rpc.shutdown"), *sends, late)
    assert (found.code, found.culprits, found.victims) == ("UH101", (3,), (1, 2))
    assert found.summary.startswith("Rank 3 (worker3) is in its own program")


@pytest.mark.parametrize(("cpu_s", "moving"), [(0.9, (1,)), (0.0, ())])
def test_what_a_worker_runs_need_be_no_python(cpu_s: float, moving: tuple[int, ...]) -> None:
    """TorchScript and built-in functions show no frame: a worker that answers so is not blamed."""
    first = worker(0, f"{SYNC} < job.py:25 main", asks="worker1", asks_in="rpc_sync")
    found = cause(first, worker(1, ENDS, asks_in="rpc.shutdown", looks=worked(cpu_s=cpu_s)))
    assert (found.culprits, found.confidence, found.moving) == ((1,), "low", moving)


def test_workers_that_only_serve_wait_at_the_end_for_a_program_without_work() -> None:
    """As parameter servers do from their start on: nothing is ended for that."""
    ends = [worker(rank, ENDS, asks_in="rpc.shutdown") for rank in (0, 1)]
    waits = "/usr/lib/python3.11/queue.py:171 get < job.py:31 main"
    loads = "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py:9 __next__"
    reasons = []
    for site in (waits, f"{loads} < job.py:31 main"):
        decision = judged(*ends, worker(2, site)).decision
        assert decision is not None
        reasons.append(decision.reason)
    assert reasons == ["idle", "away"]


@pytest.mark.parametrize("moves", [0, 1])
def test_workers_that_move_are_in_no_circle(moves: int) -> None:
    """Calls that nest look like a circle in each moment: they end, and others begin."""
    first = worker(0, f"{SYNC} < job.py:25 main", asks="worker1", asks_in="rpc_sync")
    second = worker(1, f"{SYNC} < job.py:25 main", asks="worker0", asks_in="rpc_sync")
    again = _look(
        moves, f"{SYNC} < job.py:27 main", "", 1, asks=f"worker{1 - moves}", asks_in="rpc_sync"
    )
    samples = [first, second]
    samples[moves] = [samples[moves][0], again]
    assert not judged(*samples).causes


def test_all_that_end_rpc_wait_for_no_rank() -> None:
    """Nothing tells who holds them: no rank is named."""
    both = [worker(rank, ENDS, asks_in="rpc.shutdown") for rank in (0, 1)]
    assert not any(f.culprits for f in judged(*both).findings)
