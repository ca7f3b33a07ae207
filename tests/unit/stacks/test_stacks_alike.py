"""Files that differ in the numbers of processes and threads alone are taken apart once."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from unhang.model import Frame, ProcessSample
from unhang.stacks import alike, reading
from unhang.stacks.alike import Alike
from unhang.stacks.once import each_once
from unhang.stacks.reading import parse_stacks, read_stacks

TEXT = """Process {pid}: python train.py
Python v3.12.3 (/usr/bin/python3.12)

Thread {pid} (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    step (train.py:88)
Thread {first} (idle): "Thread-1"
    get (queue.py:171)
Thread {second} (active): "Thread-2"
    load (data.py:31)
"""
FAULT = """Thread 0x{tid:016x} (most recent call first):
  File "/app/data.py", line 31 in load

Current thread 0x00007f0000000001 (most recent call first):
  File "/app/train.py", line 88 in step
"""


def texts_of(shape: str) -> dict[str, str]:
    """Files of four ranks; the order of the numbers of their threads is not always the same."""
    numbers = [(100, 101, 102), (4711, 9000, 9001), (7, 12, 9), (8, 5, 6)]
    return {
        f"rank_{rank}.txt": shape.format(pid=pid, first=first, second=second, tid=pid << 12)
        for rank, (pid, first, second) in enumerate(numbers)
    }


def each_by_itself(folder: Path) -> list[ProcessSample]:
    """What comes of the files where none is compared with another."""
    found = [
        sample
        for path in sorted(folder.iterdir())
        for sample in parse_stacks(path.read_bytes(), path.name).samples
    ]
    return sorted(found, key=lambda sample: (sample.rank, sample.pid))


@pytest.mark.parametrize(
    "shape",
    [
        TEXT,
        FAULT,
        TEXT.replace("train.py\n", "train.py --local-rank {pid}\n"),
        TEXT.replace("Process {pid}: python train.py\n", ""),
        TEXT + TEXT.replace("{pid}", "{first}"),
        TEXT.replace("Process", "[rank3]: Process"),
        "==== rank 3 ====\n" + TEXT,
        "no stack at all of {pid}\n",
    ],
)
def test_a_folder_gives_what_each_of_its_files_gives(tmp_path: Path, shape: str) -> None:
    """Numbers, order of threads, ranks that a text tells: all as without a comparison."""
    for name, text in texts_of(shape).items():
        (tmp_path / name).write_text(text)
    assert sorted(
        read_stacks(tmp_path).samples, key=lambda sample: (sample.rank, sample.pid)
    ) == each_by_itself(tmp_path)


def test_a_text_like_one_before_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of ranks cost one parse for each different text, and each has its own numbers."""
    parsed: list[str] = []

    def parse(text: str, rank: int) -> tuple[ProcessSample, ...]:
        parsed.append(text)
        return tuple(replace(s, rank=rank) for s in parse_stacks(text.encode(), "x").samples)

    known = Alike(parse)
    for rank in range(50):
        text = TEXT.format(pid=100 + rank, first=900 + rank, second=1900 + rank)
        (sample,) = known.samples(text, rank) or ()
        assert (sample.rank, sample.pid) == (rank, 100 + rank)
        assert [thread.tid for thread in sample.threads] == [100 + rank, 900 + rank, 1900 + rank]
    assert len(parsed) == 1
    monkeypatch.setattr(alike, "_MOST", 1)
    assert known.samples(TEXT.replace("88", "91").format(pid=1, first=2, second=3), 7) is None


def test_commands_that_differ_in_numbers_are_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each keeps its own; a title of a worker tells its rank, and is read as it is."""
    below = '\n\nThread {0} (active): "MainThread"\n    step (train.py:8)\n'
    commands = [f"python train.py --local_rank={n}" for n in range(3)]
    commands += [f"VLLM::Worker_TP{n}" for n in (0, 2)]
    for number, command in enumerate(commands):
        text = f"Process {100 + number}: {command}{below.format(100 + number)}"
        (tmp_path / f"{'abcde'[number]}.txt").write_text(text)
    parsed: list[str] = []
    parse = reading._parse

    def counted(data: bytes, source: str, rank: int, *, quiet: bool) -> reading.Reading:
        parsed.append(source)
        return parse(data, source, rank, quiet=quiet)

    monkeypatch.setattr(reading, "_parse", counted)
    samples = read_stacks(tmp_path).samples
    assert len(parsed) == 3
    told = {s.pid: (s.command, s.rank) for s in samples}
    for number in range(3):
        assert told[100 + number] == (f"python train.py --local_rank={number}", -1)
    assert [told[pid][1] for pid in (103, 104)] == [0, 2]


def test_what_more_is_said_of_is_read_by_itself(tmp_path: Path) -> None:
    """A file that is cut keeps its note, and its name in it."""
    long = TEXT.format(pid=1, first=2, second=3).replace("python", "p" * 3_000)
    for rank in range(2):
        (tmp_path / f"rank_{rank}.txt").write_text(long)
    notes = read_stacks(tmp_path).notes
    assert sorted(Path(note.source).name for note in notes) == ["rank_0.txt", "rank_1.txt"]


def test_a_file_larger_than_its_head_is_read_whole(tmp_path: Path) -> None:
    """Most files are read in one go; of others nothing is lost at the seam."""
    path = tmp_path / "rank_0.txt"
    for size in (reading._HEAD_BYTES - 1, reading._HEAD_BYTES, 3 * reading._HEAD_BYTES + 5):
        path.write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
        assert reading._bytes_of(path) == (path.read_bytes(), False)


def test_an_answer_is_kept_with_the_stack_it_is_of() -> None:
    """By identity: an equal stack that is another object is asked for anew, and answered alike."""
    asked: list[int] = []

    def depth(frames: tuple[Frame, ...]) -> int:
        asked.append(1)
        return len(frames)

    once = each_once(depth)
    stacks = [(Frame("step", "train.py", n),) for n in (88, 88)]
    assert [once(stacks[0]), once(stacks[0]), once(stacks[1])] == [1, 1, 1]
    assert len(asked) == 2


def test_stand_ins_meet_no_number_of_a_text() -> None:
    """None that a process or thread can have, in either form."""
    for told in ("999999999", f"0x{(1 << 64) - 1:016x}"):
        stand_in = alike._stand_in(told, 3)
        assert re.fullmatch(r"\d{10}|0x[0-9a-f]{16}", stand_in)
