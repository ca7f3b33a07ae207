"""What to do now, from facts: each action, and that no node is left out on a guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from unhang.analysis import diagnose
from unhang.analysis.words.decisions import WHY, sentence
from unhang.case import Case
from unhang.catalogue import all_kinds
from unhang.kinds import Remedy
from unhang.model import LogEvent
from unhang.report import Decision, Finding, SavedReport, Subject
from unhang.testing import FakeJob, sample_of, worked

SITE = "train.py:30 step"
XID = "NVRM: Xid (PCI:0000:3b:00): {xid}, pid=4711"


def decided(case: Case) -> Decision:
    """What is advised."""
    decision = diagnose(case).decision
    assert decision is not None
    assert decision.text == sentence(decision.action, decision.reason, decision.subjects)
    return decision


IN_LOOP = {"line_looks": 9, "lines": 3}
NOTHING: Mapping[str, float] = {}
COMPUTES = {"cpu_s": 0.9}
READS = {"cpu_s": 0.9, "moved": 1 << 30}
STORES = {"moved": 1 << 17, "stored": 1 << 16}
PRINTS = {"woken": 1, "said": 60}
HELPED = {"helped_s": 0.04}
WAKES = {"woken": 1}


def waited_for(culprit: int = 2, samples: Sequence[object] = ()) -> Case:
    """Four ranks, one of which never calls the last all_reduce."""
    job = FakeJob(4)
    job.call(range(4), site=SITE)
    job.call([r for r in range(4) if r != culprit], site=SITE, finished=False)
    return job.case(samples=samples)


def at_work(step: Mapping[str, float] = NOTHING, *, steps: int = 1, **more: object) -> Case:
    """The rank that others wait for, whose stack was looked at twice, after so many like steps."""
    held = {name: str(more.get(name, "")) for name in ("state", "wait_channel")}
    seen = {"looks": worked(steps, **held, **step), **more}  # type: ignore[arg-type]
    return waited_for(2, [sample_of(2, "train.py:70 load", sample=n, **seen) for n in (0, 1)])


def healthy() -> Case:
    """All calls are finished."""
    job = FakeJob(2)
    job.call(range(2), site=SITE)
    job.call(range(2), site=SITE)
    return job.case()


def crossed() -> Case:
    """Two ranks enter two groups in crossed order."""
    job = FakeJob(2)
    groups = [job.group(range(2), name) for name in ("a", "b")]
    for rank in (0, 1):
        job.call([rank], group=groups[rank], site=SITE, finished=False)
        job.call([rank], group=groups[1 - rank], site=SITE, finished=False)
    return job.case()


def mismatched() -> Case:
    """One of four calls with another shape."""
    job = FakeJob(4)
    job.call(range(4), site=SITE, sizes={2: ((7,),)}, finished=False)
    return job.case()


@pytest.mark.parametrize(
    ("case", "action", "reason", "ranks"),
    [
        (healthy(), "wait", "nothing-wrong", []),
        (at_work(COMPUTES), "wait", "moves", [2]),
        (at_work(COMPUTES, **IN_LOOP), "look-first", "spins", [2]),
        (at_work(READS, **IN_LOOP), "wait", "moves", [2]),
        (at_work(STORES, **IN_LOOP), "wait", "moves", [2]),
        (at_work(COMPUTES, activity="saving", **IN_LOOP), "wait", "moves", [2]),
        (at_work(COMPUTES, line_looks=9, lines=4), "wait", "moves", [2]),
        (at_work(COMPUTES, line_looks=5, lines=1), "wait", "moves", [2]),
        (at_work(**IN_LOOP), "look-first", "away", [2]),
        (at_work(), "look-first", "away", [2]),
        (at_work(PRINTS, steps=9, **IN_LOOP), "look-first", "spins", [2]),
        (at_work(HELPED, steps=9, wait_channel="hrtimer_nanosleep"), "wait", "moves", [2]),
        (at_work(HELPED, steps=9), "look-first", "away", [2]),
        (at_work(WAKES, steps=9, wait_channel="anon_pipe_read"), "wait", "moves", [2]),
        (at_work(WAKES, steps=9, wait_channel="unix_stream_read_generic"), "wait", "moves", [2]),
        (at_work(WAKES, steps=9, wait_channel="futex_wait_queue"), "look-first", "away", [2]),
        (at_work(WAKES, steps=9, wait_channel="hrtimer_nanosleep"), "look-first", "away", [2]),
        (at_work(wakes_s=31.0, **IN_LOOP), "wait", "moves", [2]),
        (at_work(wakes_s=100_000.0), "look-first", "away", [2]),
        (at_work(steps=9, wakes_s=4.0), "wait", "moves", [2]),
        (at_work(wakes_s=4.0), "look-first", "away", [2]),
        (at_work(state="T"), "look-first", "stopped", [2]),
        (at_work(paused_s=12.0), "look-first", "pauses", [2]),
        (at_work(paused_s=12.0, state="T"), "look-first", "stopped", [2]),
        (at_work(paused_s=12.0, wakes_s=100_000.0), "look-first", "away", [2]),
        (at_work(COMPUTES, paused_s=12.0), "wait", "moves", [2]),
        (waited_for(), "look-first", "away", [2]),
        (crossed(), "fix-code", "deadlock", []),
        (FakeJob(2).case(), "look-first", "not-enough-evidence", []),
    ],
)
def test_facts_decide(case: Case, action: str, reason: str, ranks: list[int]) -> None:
    """The kind of the first cause, and what is known of its ranks."""
    decision = decided(case)
    assert (decision.action, decision.reason) == (action, reason)
    assert [subject.rank for subject in decision.subjects] == ranks


def said(code: str, rank: int, text: str, host: str, **fields: str) -> LogEvent:
    """A line of the log of a rank."""
    return LogEvent(code, "cause", rank, text, "kernel.log:1", host=host, fields=fields)


@pytest.mark.parametrize(
    ("xid", "host", "action"),
    [
        ("79", "node00", "restart-without"),
        ("31", "node00", "look-first"),
        ("79", "another", "look-first"),
    ],
)
def test_hardware_alone_costs_a_node_its_place(xid: str, host: str, action: str) -> None:
    """A GPU that fell off the bus does; a fault that the program may have made does not.

    Neither does a line of a host on which the rank is not.
    """
    event = said("UH769", 2, XID.format(xid=xid), host, xid=xid, pci="0000:3b:00")
    decision = decided(replace(waited_for(), log_events=(event,)))
    assert decision.action == action
    hosts = [subject.id for subject in decision.subjects if subject.kind == "host"]
    assert hosts == (["node00"] if action == "restart-without" else [])


def test_a_check_of_the_node_supports_leaving_it_out() -> None:
    """The dumps point at a rank, and the doctor says that the memory of its GPU is broken."""
    job = FakeJob(16)
    job.call(range(16))
    job.call([rank for rank in range(16) if rank != 3], finished=False)
    case = job.case()
    host = next(dump.host for dump in case.dumps if dump.rank == 3)
    assert decided(case).action == "look-first"
    about = Subject("process", f"rank 3 on {host}", host=host, rank=3)
    bad = Finding("", "UH842", "cause", "high", "ECC errors.", subjects=(about,))
    now_ns = int(case.calls.created_ns.max())
    report = SavedReport("doctor", "d.json", now_ns, "problem", "It is.", (bad,))
    assert decided(replace(case, reports=(report,))).action == "restart-without"


def test_every_reason_has_words_and_every_kind_a_remedy() -> None:
    """Nothing that may be decided is left without a sentence."""
    assert all(why and not why.endswith(".") for why in WHY.values())
    assert {kind.helps for kind in all_kinds().values()} == set(Remedy)
