"""The ring, its entries, and the Works that are followed until their calls end."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.record.calls.follow import MOST_HELD, Followed
from unhang.record.calls.ring import Channel, Ring, RingEntry


class Thing:
    """Anything that a weak reference can point to."""


class Work:
    """A stand-in for torch's Work."""

    def __init__(self, *, over: bool = False) -> None:
        self.over = over

    def is_completed(self) -> bool:
        """Whether the call has ended."""
        return self.over


class Future:
    """A stand-in for torch's Future."""

    def __init__(self) -> None:
        self.over = False

    def done(self) -> bool:
        """Whether it has its value."""
        return self.over


GROUP = Thing()


def a_channel(**changes: object) -> Channel:
    """A group of one rank."""
    values = {
        "ref": weakref.ref(GROUP), "name": "0", "description": "default_pg", "backend": "late",
        "by_device": {"cpu": "late"}, "rank": 0, "timeout_ms": 1000, "pg_id": 0,
    }  # fmt: skip
    return Channel(**{**values, **changes})


def an_entry(channel: Channel | None = None, name: str = "late:all_reduce") -> RingEntry:
    """A collective that was just called."""
    return RingEntry(channel or a_channel(), name, ((), ()), (), 1, 5)


@given(st.integers(1, 20), st.integers(0, 60))
def test_a_ring_keeps_the_youngest(size: int, count: int) -> None:
    """Numbers go on, old entries make room, and what was dropped is known."""
    ring = Ring(size)
    for _ in range(count):
        ring.append(an_entry())
    kept = [entry.number for entry in ring.entries()]
    assert kept == list(range(max(0, count - size), count))
    assert (ring.total, ring.dropped) == (count, max(0, count - size))


def test_an_entry_s_life() -> None:
    """Scheduled, started, completed; the first end counts."""
    entry = an_entry()
    entry.seq = 3
    assert entry.as_torch()["state"] == "scheduled"
    entry.enqueued(10)
    assert (entry.as_torch()["state"], entry.channel.last_enqueued) == ("started", 3)
    entry.completed(30)
    entry.failed(ValueError("late"), 40)
    row = entry.as_torch()
    assert (row["state"], row["retired"], row["time_discovered_completed_ns"]) == (
        "completed", True, 30,
    )  # fmt: skip
    assert (entry.channel.last_completed, entry.pending) == (3, False)


def test_a_failed_call_is_not_retired() -> None:
    """Torch's readers know three states: it stays started, with the error beside it."""
    entry = an_entry()
    entry.enqueued(10)
    entry.failed(RuntimeError("Connection closed by peer"), 20)
    row = entry.as_torch()
    assert (row["state"], row["retired"], row["error"]) == (
        "started", False, "RuntimeError: Connection closed by peer",
    )  # fmt: skip
    assert row["time_discovered_completed_ns"] is None


def test_sizes_are_numbers_and_dtypes_have_torch_s_names() -> None:
    """A symbolic dimension is -1; an unknown dtype keeps its own name."""
    facts = (((2, Thing()), "torch.bfloat16"), ((), "torch.float4_new"))
    entry = RingEntry(a_channel(), "late:all_gather", (facts, ()), (), 1, 5)
    row = entry.as_torch()
    assert row["input_sizes"] == [[2, -1], []]
    assert row["input_dtypes"] == ["BFloat16", "float4_new"]


@pytest.mark.parametrize("hold", [True, False])
def test_a_wait_ends_a_call_on_the_host(hold: bool) -> None:  # noqa: FBT001 - a parameter
    """Even where the Work itself never says that it is over."""
    followed, entry, work = Followed(), an_entry(), Work()
    followed.add(entry, work, hold=hold)
    assert entry.state == "started"
    followed.waited(entry, work, 20)
    assert (entry.state, followed.by_id) == ("completed", {})


def test_a_wait_on_a_device_ends_nothing_by_itself() -> None:
    """The stream waits, not the host: torch must be asked."""
    followed, entry, work = Followed(), an_entry(), Work()
    entry.on_host = False
    followed.add(entry, work, hold=True)
    followed.waited(entry, work, 20)
    assert entry.pending
    work.over = True
    followed.ask_all()
    assert entry.state == "completed"


def test_a_send_nobody_waits_for_keeps_nothing_alive() -> None:
    """Its Work goes; the entry is abandoned, and blocks nobody."""
    followed, entry, work = Followed(), an_entry(), Work()
    followed.add(entry, work, hold=False)
    del work
    gc.collect()
    assert (entry.abandoned, entry.pending, followed.by_id) == (True, False, {})
    assert entry.as_torch()["abandoned"] is True


def test_a_future_tells_where_the_work_is_gone() -> None:
    """DDP takes the future and drops the Work."""
    followed, entry, work, future = Followed(), an_entry(), Work(), Future()
    followed.add(entry, work, hold=False)
    followed.took_future(work, future)
    del work
    gc.collect()
    followed.ask_all()
    assert entry.pending
    future.over = True
    followed.ask_all()
    assert entry.state == "completed"


def test_held_works_are_bounded_and_let_go_when_over() -> None:
    """The oldest go first: when they have ended, or when there are too many."""
    followed = Followed()
    works = [Work() for _ in range(MOST_HELD + 10)]
    entries = [an_entry() for _ in works]
    for entry, work in zip(entries, works, strict=True):
        followed.add(entry, work, hold=True)
    assert [entry.abandoned for entry in entries] == [True] * 10 + [False] * MOST_HELD
    for work in works:
        work.over = True
    for _ in range(MOST_HELD):
        followed.add(an_entry(), Work(over=True), hold=True)
    assert all(entry.state == "completed" for entry in entries[10:])
    assert len(followed.by_id) <= 2


def test_a_group_has_one_number_a_coalesced_region() -> None:
    """Collectives and sends have their own."""
    channel = a_channel()
    assert (channel.begins("p2p"), channel.begins("p2p")) == (True, True)
    channel.coalescing = set()
    assert [channel.begins(space) for space in ("p2p", "p2p", "collective", "collective")] == [
        True, False, True, False,
    ]  # fmt: skip
