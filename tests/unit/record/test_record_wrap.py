"""The wrapped methods, on stand-ins for torch's classes: what is recorded, what passes through."""

from __future__ import annotations

import contextlib
import gc
import math
import random
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from stand_ins import Group, Tensor, Work

from unhang.record.calls import groups, quick, wrap
from unhang.record.calls.recorder import Recorder, is_timeout
from unhang.record.calls.ring import RingEntry
from unhang.record.contact.beatlayout import CALL_SLOTS, Word


def is_quick(entry: RingEntry) -> bool:
    """Whether an entry went the quick way."""
    library = quick.found()
    return library is not None and entry.number in {each.number for each in library.entries()}


def counts(recorder: Recorder, *words: Word) -> tuple[int, ...]:
    """Words of the heartbeat."""
    return tuple(recorder.beat.words[word] for word in words)


def entries(recorder: Recorder) -> list[RingEntry]:
    """What was recorded."""
    return recorder.state.ring.entries()


def test_a_send_is_recorded_from_call_to_wait(recorder: Recorder) -> None:
    """Name, peers, numbers, tag; the result is torch's own object."""
    group = Group()
    group.calls = 4
    work = group.send([Tensor()], 3, 11)
    (entry,) = entries(recorder)
    assert (entry.name, entry.op_id, entry.p2p_seq, entry.tag, entry.state) == (
        "gloo:send 2->3", -1, 1, 11, "started",
    )  # fmt: skip
    assert work is group.next
    assert work.wait(timeout=5) == "waited 5"
    assert (entry.state, entry.wait_ns >= entry.started_ns) == ("completed", True)
    assert entry.as_torch()["frames"][0]["name"] == "test_a_send_is_recorded_from_call_to_wait"  # type: ignore[index]


@pytest.mark.parametrize("recorder", ["compiled"], indirect=True)
def test_the_quick_way_says_what_the_long_way_says(recorder: Recorder) -> None:
    """From the second call of a place on; only numbers and times differ."""
    group = Group()
    for peer in (0, 0, 1, 1, 0):
        group.send([Tensor()], peer, 11).wait()
    rows = [entry.as_torch() for entry in entries(recorder)]
    taken = [is_quick(entry) for entry in entries(recorder)]
    assert taken == [False, True, False, True, True]
    assert [(row["record_id"], row["p2p_seq_id"], row["op_id"]) for row in rows] == [
        (number, number + 1, -1) for number in range(5)
    ]
    same = [
        {key: value for key, value in row.items() if not key.endswith(("_ns", "_id", "_ms"))}
        for row in rows
    ]
    assert same[0] == same[1] == same[4]
    assert same[2] == same[3] == {**same[0], "profiling_name": "gloo:send 2->1"}
    times = [(entry.created_ns, entry.started_ns, entry.wait_ns) for entry in entries(recorder)]
    assert sorted(sum(times, ())) == list(sum(times, ()))
    assert counts(recorder, Word.CALLS, Word.ENQUEUED, Word.WAITS, Word.WAITED) == (5, 5, 5, 5)
    assert not recorder.followed.by_id


@pytest.mark.parametrize("recorder", ["compiled"], indirect=True)
def test_what_is_unusual_goes_the_long_way(recorder: Recorder) -> None:
    """Lists, names of arguments, other types, a coalesced group: all are recorded as before.

    New shapes are not unusual, nor are those that the recorder has seen and forgotten.
    """
    group = Group()
    groups.channel_of(group)

    taken = []
    for number in range(12):
        tensors = {4: [Tensor(), Tensor()], 5: [Tensor((9, 9))]}.get(number, [Tensor()])
        if number == 9:
            recorder.tensors.clear()
        peer = True if number == 3 else 0
        group.send(tensors, peer, number).wait()
        taken.append(is_quick(entries(recorder)[-1]))
        sizes = [list(tensor.shape) for tensor in tensors]
        assert entries(recorder)[-1].as_torch()["input_sizes"] == sizes
        assert counts(recorder, Word.NUMEL) == (math.prod(sizes[0]),)
    long = {number for number, is_quick in enumerate(taken) if not is_quick}
    assert long - {7} == {0, 3, 4}, "Python 3.11 specialises the loop at 7, which moves offsets"
    group.send([Tensor()], dst=0, tag=1).wait()
    assert not is_quick(entries(recorder)[-1])
    assert entries(recorder)[-1].tag == 1
    assert len(entries(recorder)) == 10, "the ring is full"
    assert entries(recorder)[-1].number == recorder.ring.total - 1
    assert counts(recorder, Word.CALLS, Word.ENQUEUED, Word.WAITS, Word.WAITED) == (13,) * 4


@pytest.mark.parametrize("recorder", ["compiled"], indirect=True)
def test_a_quick_send_that_raises_is_recorded_as_before(recorder: Recorder) -> None:
    """The call itself, and the wait for it; the very exception goes on."""
    group, error = Group(), RuntimeError("Connection reset by peer")
    works = [Work(), Work(), Work(error), Work()]
    caught = []
    for group.next in works:
        try:
            group.send([Tensor()], 0, 0).wait()
        except RuntimeError as raised:  # noqa: PERF203 - one place, four calls
            caught.append(raised)
    assert caught == [error]
    failed = [(call["op"], call["own_record_id"]) for call in recorder.state.failed_calls]
    assert failed == [("gloo:send 2->0", 2)]
    kept = [(entry.state, entry.error) for entry in entries(recorder)[2:]]
    assert kept == [("failed", f"RuntimeError: {error}"), ("completed", "")]
    assert counts(recorder, Word.CALLS, Word.ENQUEUED, Word.FAILED) == (4, 4, 1)


@pytest.mark.parametrize("recorder", ["compiled"], indirect=True)
def test_a_quick_send_that_torch_refuses_is_recorded_as_failed(recorder: Recorder) -> None:
    """What raises is torch's own method, not the wait."""
    group, refused = Group(), ValueError("no such peer")
    answers: list[object] = []
    for group.refuses in (None, None, refused, None):
        if group.refuses is None and answers[2:]:
            group.next = None  # type: ignore[assignment]
        try:
            answers.append(group.send([Tensor()], 0, 0))
        except ValueError as error:
            answers.append(error)
    assert answers[2:] == [refused, None]
    assert [entry.state for entry in entries(recorder)[1:]] == ["started", "failed", "completed"]
    assert counts(recorder, Word.CALLS, Word.ENQUEUED, Word.FAILED) == (4, 4, 1)


@pytest.mark.parametrize("recorder", ["compiled"], indirect=True)
def test_nothing_is_kept_alive_by_the_quick_way(recorder: Recorder) -> None:
    """Neither Works nor groups nor tensors, however many calls there are."""
    group = Group()
    gone: list[str] = []
    weakref.finalize(group, gone.append, "group")
    held = recorder, group, recorder.beat, recorder.ring, recorder.followed.by_id, Tensor
    before: list[int] = []
    for number in range(1000):
        tensor, group.next = Tensor(), Work()
        weakref.finalize(tensor, gone.append, "tensor")
        weakref.finalize(group.next, gone.append, "work")
        group.send([tensor], 0, 0).wait()
        group.allreduce([tensor]).wait()
        if number in (100, 999):
            before.append(sum(map(sys.getrefcount, held)))
    assert before[0] == before[1]
    assert is_quick(entries(recorder)[-1])
    del group, tensor, held
    gc.collect()
    assert (gone.count("tensor"), gone.count("work"), gone.count("group")) == (1000, 1000, 1)


def test_the_same_place_below_another_caller_has_its_own_stack(recorder: Recorder) -> None:
    """What was captured for a place counts only while every frame is the same."""
    group = Group()

    def send() -> None:
        group.send([Tensor()], 0, 0).wait()

    def warm_up() -> None:
        send()

    for call in (send, send, warm_up, send):
        call()
    frames = [entry.as_torch()["frames"] for entry in entries(recorder)]
    names = [[frame["name"] for frame in stack[:2]] for stack in frames]  # type: ignore[index]
    assert [name[1] == "warm_up" for name in names] == [False, False, True, False]


def test_any_source_is_a_question_mark(recorder: Recorder) -> None:
    """As torch will write it."""
    Group().recv_anysource([Tensor()], 0)
    assert [entry.name for entry in entries(recorder)] == ["gloo:recv 2<-?"]


def test_collectives_that_torch_records_get_a_heartbeat_only(recorder: Recorder) -> None:
    """On Gloo and NCCL torch's ring has them."""
    Group().allreduce([Tensor()]).wait()
    Group("nccl").send([Tensor()], 0, 0)
    assert entries(recorder) == []
    assert counts(recorder, Word.CALLS, Word.WAITS) == (2, 1)


def test_sends_that_torch_records_go_the_quick_way_too(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second call of a place on, and the heartbeat says the same of them."""
    is_compiled = hasattr(Group.allreduce, "__objclass__")
    group, long, words = Group("nccl"), [], recorder.beat.words
    enter = wrap._enter

    def seen(*args: object) -> tuple[object, int]:
        long.append(args[2])
        return enter(*args)  # type: ignore[arg-type,return-value]

    monkeypatch.setattr(wrap, "_enter", seen)
    told = []
    for size in (1, 1, 1):
        group.send([Tensor((size,))], 1, 11).wait()
        told.append((words[Word.SITE], words[Word.NUMEL], recorder.beat.latest.at))
    assert len({site for site, _, _ in told}) == 1
    assert len(long) == (1 if is_compiled else 3)
    assert entries(recorder) == []
    assert counts(recorder, Word.CALLS, Word.ENQUEUED, Word.WAITS, Word.WAITED) == (3, 3, 3, 3)


def test_a_collective_from_the_usual_place_says_the_same(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short way is taken again and again, and never for another place, group or depth."""
    is_compiled = hasattr(Group.allreduce, "__objclass__")
    long = []
    enter = wrap._enter

    def seen(*args: object) -> tuple[object, int]:
        found = enter(*args)  # type: ignore[arg-type]
        long.append(found[1])
        return found

    monkeypatch.setattr(wrap, "_enter", seen)
    one, other, words = Group(), Group(), recorder.beat.words
    other.group_name = "8"

    def told(group: Group, size: int) -> tuple[int, int, int]:
        group.allreduce([Tensor((size,))]).wait()
        return words[Word.SITE], words[Word.NUMEL], words[Word.CALLS]

    rows = [told(one, 1), told(one, 2), told(one, 3), told(other, 4), told(other, 5)]
    rows.append(told(one, 6))
    assert [row[1:] for row in rows] == [(n, n) for n in range(1, 7)]
    sites = [row[0] for row in rows]
    assert sites[0] == sites[1] == sites[2] == sites[5]
    assert sites[3] == sites[4] != sites[0]
    assert long == ([sites[0], sites[3], sites[0]] if is_compiled else sites)
    assert counts(recorder, Word.CALLS, Word.ENQUEUED, Word.WAITS, Word.WAITED) == (6, 6, 6, 6)


def test_the_root_of_a_broadcast_is_kept(recorder: Recorder) -> None:
    """With the number of its call; options that tell none are no reason to fail."""
    group = Group()
    group.allreduce([Tensor()])
    group.broadcast([Tensor()], SimpleNamespace(rootRank=3))
    kept = recorder.beat.words[Word.ROOT]
    assert (kept >> 32, kept >> 16 & 0xFFFF) == (2, 3)
    group.broadcast([Tensor()], None)
    assert recorder.beat.words[Word.ROOT] == kept


def test_a_place_whose_number_was_given_away_is_not_told(recorder: Recorder) -> None:
    """The heartbeat has a limited number of places, and takes the oldest for a new one."""
    group = Group()

    def call() -> int:
        group.allreduce([Tensor()])
        return recorder.beat.words[Word.SITE]

    numbers = {call() for _ in range(3)}
    for number in range(CALL_SLOTS):
        recorder.beat.new_slot((number, 0, "send", ""), call.__code__)
    assert {call(), call()} & numbers == set()
    assert recorder.beat.places[0] == CALL_SLOTS + 2


def test_collectives_that_torch_does_not_record_get_an_entry(recorder: Recorder) -> None:
    """Of a group that was there before we were."""
    group = Group("mpi")
    group.allreduce([Tensor(), Tensor((1,))]).wait()
    (entry,) = entries(recorder)
    row = entry.as_torch()
    assert (row["profiling_name"], row["collective_seq_id"], row["state"]) == (
        "mpi:all_reduce", 1, "completed",
    )  # fmt: skip
    assert row["input_sizes"] == row["output_sizes"] == [[2, 3], [1]]


def test_a_failed_wait_names_the_call_and_raises_as_before(recorder: Recorder) -> None:
    """The very exception, and a note of what failed."""
    group, error = Group(), RuntimeError("Connection reset by peer")
    group.next = Work(error)
    with pytest.raises(RuntimeError) as caught:
        group.send([Tensor()], 0, 0).wait()
    assert caught.value is error
    group.next = Work(error)
    with pytest.raises(RuntimeError):
        group.allreduce([Tensor()]).wait()
    with pytest.raises(RuntimeError):
        Work(error).wait()
    failed = [(call["op"], call["own_record_id"]) for call in recorder.state.failed_calls]
    assert failed == [("gloo:send 2->0", 0), ("all_reduce", -1), ("", -1)]
    assert entries(recorder)[0].error == "RuntimeError: Connection reset by peer"
    ended = counts(recorder, Word.WAITS, Word.WAITED, Word.FAILED)
    assert ended == (3, 3, 3), "none of them is progress"


def test_a_failed_barrier_is_recorded(recorder: Recorder) -> None:
    """monitored_barrier returns nothing and blocks: its entry ends with it."""
    group = Group()
    group.monitored_barrier()
    with pytest.raises(RuntimeError, match="failed to pass"):
        group.monitored_barrier("bad")
    assert [(e.name, e.state) for e in entries(recorder)] == [
        ("gloo:monitored_barrier", "completed"), ("gloo:monitored_barrier", "failed"),
    ]  # fmt: skip


def test_a_timeout_is_a_reason_to_dump(recorder: Recorder) -> None:
    """Once a failed call; an interrupt by the user is no failure."""
    dumped: list[str] = []
    recorder.on_timeout = lambda: dumped.append("dump")
    for error in (RuntimeError("Timed out waiting 1000ms"), ValueError("odd"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            Work(error).wait()
    assert dumped == ["dump"]
    assert len(recorder.state.failed_calls) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Timed out waiting 1000ms for recv operation", True),
        ("Watchdog caught collective operation timeout", True),
        ("connect() time-out", True),
        ("Connection closed by peer", False),
    ],
)
def test_time_outs_are_told_by_their_words(text: str, expected: bool) -> None:  # noqa: FBT001 - a parameter
    """Torch has no exception type for them."""
    assert is_timeout(RuntimeError(text)) is expected


def test_an_error_of_ours_leaves_the_call_alone(recorder: Recorder) -> None:
    """Arguments that we cannot read: torch gets them, and we note it."""
    group = Group()
    assert group.send("no tensors", 0, 0) is group.next  # type: ignore[arg-type]
    assert entries(recorder) == []
    assert any("recording send" in text for text in recorder.state.failures.texts())


def test_detached_methods_pass_everything_through(recorder: Recorder) -> None:
    """As in a forked child."""
    wrap.detach()
    group = Group()
    assert group.send([Tensor()], 0, 0).wait() == "waited 0"
    assert (entries(recorder), *counts(recorder, Word.CALLS)) == ([], 0)


def test_wrapping_twice_wraps_once(recorder: Recorder) -> None:
    """Armed by the hook and by code."""
    wrap.install(Group, Work)
    Group().send([Tensor()], 0, 0)
    assert len(entries(recorder)) == 1


def test_wrapped_methods_keep_their_names(recorder: Recorder) -> None:
    """pybind11 tells by the code's name that a virtual method is called from its override.

    Methods that are no Python are no override for it.
    """
    del recorder
    assert Group.send.__name__ == "send"
    code = getattr(Group.send, "__code__", None)
    assert code is None or code.co_name == "send"
    assert Group.send.__qualname__ in ("Group.send", "send")
    assert Work.wait.__doc__ == "Wait for the call."


def test_a_dead_group_s_address_may_be_a_new_group_s(recorder: Recorder) -> None:
    """Channels are told apart by weak references, and keep no group alive."""
    for number in range(20):
        group = Group()
        group.group_name = str(number)
        group.send([Tensor()], 0, 0)
        del group
    names = [entry.channel.name for entry in entries(recorder)]
    assert names == [str(number) for number in range(10, 20)]


class Odd:
    """Part of a circle, so that the garbage collector finds it, and runs this."""

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns, and garbage is collected, all the time."""
    before = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-5)
    gc.set_threshold(5, 2, 2)
    yield
    sys.setswitchinterval(before[0])
    gc.set_threshold(*before[1])


@pytest.mark.usefixtures("restless")
def test_many_threads_at_once_lose_nothing(recorder: Recorder) -> None:
    """Calls that fail, Works that go, groups that come and go, somebody who looks meanwhile."""

    def body(number: int) -> None:
        choose, works = random.Random(number), list[Work]()  # noqa: S311 - a test
        group = Group()
        for call in range(1500):
            circle: list[object] = [Odd()]
            circle.append(circle)
            if not call % 300:
                group = Group()
                group.group_name = f"{number}.{call}"
            group.next = Work(ValueError() if choose.random() < 0.05 else None)
            group.refuses = ValueError() if choose.random() < 0.05 else None
            tensors, peer = [Tensor((choose.randrange(3), 2))], choose.randrange(3)
            with contextlib.suppress(ValueError):
                work = group.send(tensors, peer, 0) if call % 2 else group.allreduce(tensors)
                if choose.random() < 0.7:
                    work.wait()
                works = [*works[-20:], work]
            if not call % 50:
                recorder.ring.entries()
                recorder.followed.ask_all()
            if not call % 400:
                recorder.beat.new_slot((number, call, "x", ""), body.__code__)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    calls, enqueued, waits, waited = counts(
        recorder, Word.CALLS, Word.ENQUEUED, Word.WAITS, Word.WAITED
    )
    assert (calls, waits) == (enqueued, waited)
    assert calls == 6000
    assert recorder.ring.total == 3000
    assert [entry.number for entry in entries(recorder)] == list(range(2990, 3000))
    assert not recorder.pending()
    assert recorder.state.failures.texts() == ()
