"""The ring of last calls, as the wrapped methods write it: compiled and in Python alike."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

from stand_ins import Group, Tensor, Work

from unhang.record.calls.recorder import Recorder
from unhang.record.contact.beatlayout import Word
from unhang.record.contact.latest import RECORD_WORDS, RECORDS, RING_START, Flag, Item


def records(recorder: Recorder) -> list[list[int]]:
    """The ring of last calls: number, sequence, exchanges, peer, tag, flags, elements; ended."""
    words, found = recorder.beat.words, []
    items = (Item.NUMBER, Item.GROUP, Item.SEQ, Item.P2P_SEQ, Item.PEER, Item.TAG, Item.FLAGS,
             Item.INPUTS, Item.OUTPUTS)  # fmt: skip
    for number in range(1, words[Word.CALLS] + 1):
        at = RING_START // 8 + number % RECORDS * RECORD_WORDS
        ended = int(words[at + Item.ENDED_NS] >= words[at + Item.BEGUN_NS] > 0)
        found.append([*(words[at + item] for item in items), ended])
    return found


def test_the_ring_of_last_calls_says_what_each_was_given(recorder: Recorder) -> None:
    """Before the call is made: it may never come back. Both ways say the same."""
    group = Group()
    for _ in range(3):
        group.next = Work()
        group.allreduce([Tensor()]).wait()
        group.broadcast([Tensor((7,))], SimpleNamespace(rootRank=1))
        group.next = Work()
        group.send([Tensor((4,))], 3, 9).wait()
    assert recorder.state.failures.texts() == ()
    one = int(Flag.AWAITED)
    expected = []
    for step in range(3):
        first, seq = 4 * step, 3 * step
        expected += [
            [first + 1, 1, seq + 1, step, -1, -1, one, 6, 6, 1],
            [first + 2, 1, seq + 2, step, 1, -1, 0, 7, 7, 0],
            [first + 3, 1, seq + 2, step, -1, -1, 0, 7, 7, 0],  # which the stand-in is made of
            [first + 4, 1, -1, step + 1, 3, 9, one | Flag.EXCHANGE, 4, 4, 1],
        ]
    assert records(recorder) == expected


def test_sends_that_torch_records_are_in_the_ring_of_last_calls(recorder: Recorder) -> None:
    """NCCL's own entries have them: they get none of ours, and both ways say the same."""
    group = Group("nccl")
    for _ in range(3):
        group.next = Work()
        group.send([Tensor((4,))], 3, 9).wait()
    assert recorder.state.failures.texts() == ()
    same = [1, -1, 1, 3, 9, Flag.AWAITED | Flag.EXCHANGE, 4, 4, 1]
    assert records(recorder) == [[number, *same] for number in (1, 2, 3)]


def test_what_fails_is_told_in_the_ring_of_last_calls(recorder: Recorder) -> None:
    """A call that torch refuses, and one whose wait raises."""
    group, flags = Group(), []
    for _ in range(3):
        group.next, group.refuses = Work(RuntimeError("no")), None
        with contextlib.suppress(RuntimeError):
            group.allreduce([Tensor()]).wait()
        group.refuses = RuntimeError("no")
        with contextlib.suppress(RuntimeError):
            group.send([Tensor()], 3, 9)
        flags.append([(row[6], row[-1]) for row in records(recorder)[-2:]])
    both = [(Flag.AWAITED | Flag.FAILED, 1), (Flag.EXCHANGE | Flag.FAILED, 1)]
    assert flags == [both] * 3


def test_the_ring_of_last_calls_keeps_the_newest(recorder: Recorder) -> None:
    """And finds each again by its Work, in whatever order they are waited for."""
    group, works = Group(), []
    for number in range(RECORDS + 3):
        group.next = Work()
        works.append(group.send([Tensor()], 3, number))
    for work in works:
        work.wait()
    kept = records(recorder)[3:]
    assert [(row[0], row[5], row[-1]) for row in kept] == [
        (number + 1, number, 1) for number in range(3, RECORDS + 3)
    ]


def test_a_group_whose_count_is_as_expected_is_asked_less_often(recorder: Recorder) -> None:
    """And again for every call once C++ has made others in between."""
    group, asked = Group(), []
    ask = Group._get_sequence_number_for_group

    def counted(self: Group) -> int:
        asked.append(self.calls + 1)
        return ask(self)

    Group._get_sequence_number_for_group = counted  # type: ignore[method-assign]
    for step in range(40):
        group.next = Work()
        group.calls += 5 * (step == 30)
        if step == 20:
            group.send([Tensor()], 3, 9).wait()
        else:
            group.allreduce([Tensor()]).wait()
    Group._get_sequence_number_for_group = ask  # type: ignore[method-assign]
    assert asked == [1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 26, *range(39, 46)]
    told = [(row[2], bool(row[6] & Flag.ASSUMED)) for row in records(recorder)]
    assert [seq for seq, _ in told[:20]] == list(range(1, 21))
    assert [seq for seq, assumed in told if not assumed and seq > 0] == asked
    assert told[-1] == (45, False)
