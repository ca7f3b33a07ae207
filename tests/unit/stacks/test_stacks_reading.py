from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.activity.looks import ProcessLook
from unhang.cli.main import main
from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.stacks.formats.saved import dump_samples, write_samples
from unhang.stacks.naming import numbered_ranks, rank_in_name
from unhang.stacks.reading import Reading, is_stacks, parse_stacks, read_stacks
from unhang.stacks.tree.prefix_tree import from_stacks
from unhang.stacks.tree.treefile import from_bytes, to_bytes
from unhang.testing import frames_of, sample_of

BLOCK = """\
Thread {tid} (idle): "MainThread"
    {function} (train.py:{line})
    <module> (train.py:90)
"""
WORKER = """\
Process 11: python -c spawn
Python v3.11.7
Parent Process 10: python train.py

Thread 11 (idle): "MainThread"
    _worker_loop (torch/utils/data/_utils/worker.py:30)
"""


def block(function: str = "step", line: int = 88, tid: int = 10) -> str:
    """A py-spy text of one process."""
    return f"Process {tid}: python train.py\n\n" + BLOCK.format(
        function=function, line=line, tid=tid
    )


def sites(reading: Reading) -> dict[int, str]:
    """Innermost function by rank."""
    return {s.rank: s.threads[0].frames[0].function for s in reading.samples}


frames = st.builds(Frame, st.text(max_size=8), st.text(max_size=8), st.integers(0, 9999))
threads = st.builds(
    ThreadStack,
    name=st.text(max_size=8),
    tid=st.integers(-1, 2**40),
    frames=st.lists(frames, max_size=4).map(tuple),
    is_main=st.booleans(),
    holds_gil=st.sampled_from([None, True, False]),
    active=st.sampled_from([None, True, False]),
    native=st.booleans(),
)
counts = st.integers(0, 2**62)
looks = st.builds(
    ProcessLook,
    st.floats(0, 1e6),
    state=st.sampled_from(["", "S", "R"]),
    wait_channel=st.sampled_from(["", "futex_wait_queue"]),
    cpu_s=st.floats(0, 1e6),
    ran_s=st.just(0.5),
    woken=counts,
    moved=counts,
    stored=st.just(0),
    said=st.just(0),
    helped_s=st.just(0.0),
    started=st.just(3),
    traffic=st.integers(-1, 2**62),
    tasks_s=st.just(-1.0),
    disk=st.booleans(),
    disturbed=st.booleans(),
)
processes = st.builds(
    ProcessSample,
    rank=st.integers(-1, 20),
    host=st.text(max_size=8),
    pid=st.integers(-1, 2**22),
    threads=st.lists(threads, max_size=3).map(tuple),
    role=st.sampled_from(["rank", "launcher", "data-loader", "helper", "unknown"]),
    state=st.sampled_from(["", "S", "T", "D"]),
    sample=st.integers(0, 3),
    time_ns=st.integers(0, 2**62),
    cpu_s=st.floats(0, 1e6),
    error=st.text(max_size=8),
    exit_status=st.none() | st.integers(0, 255),
    parent_rank=st.integers(-1, 20),
    looks=st.lists(looks, max_size=3).map(tuple),
    gone=st.booleans(),
    wakes_s=st.floats(-1, 1e6),
    ended_ns=st.integers(0, 2**62),
)


@settings(max_examples=60, deadline=None)
@given(processes)
def test_what_is_saved_is_read_back(sample: ProcessSample) -> None:
    """Writing and reading our own file changes nothing."""
    reading = parse_stacks(dump_samples([sample]).encode(), "stacks.json")
    assert reading == Reading((sample,), ())


def test_saved_stacks_are_shared() -> None:
    """Equal stacks and frames are written once, however many ranks have them."""
    stack = (Frame("step", "train.py", 3), Frame("<module>", "train.py", 9))
    samples = [
        ProcessSample(r, "node01", r, (ThreadStack("MainThread", r, stack),)) for r in range(50)
    ]
    document = json.loads(dump_samples(samples))
    assert (len(document["frames"]), len(document["stacks"])) == (2, 1)


def test_ranks_come_from_labels_of_srun_and_mpirun(tmp_path: Path) -> None:
    """Labelled lines are taken apart by rank, interleaved as they come."""
    lines = [f"{i}: {line}" for line in block().splitlines() for i in (0, 12)]
    (tmp_path / "srun.txt").write_text("\n".join(lines))
    assert sites(read_stacks(tmp_path / "srun.txt")) == {0: "step", 12: "step"}
    tagged = [f"[1,4]<stdout>: {line}" for line in block("load").splitlines()]
    assert sites(parse_stacks("\n".join(tagged).encode(), "x")) == {4: "load"}


def test_ranks_come_from_the_debug_servers_page_and_file() -> None:
    """Torch's debug server puts a heading before each rank, in HTML and in its periodic files."""
    stack = '  File "/home/user/train.py", line 8 in {}\n'
    dump = "Current thread 0x1 (most recent call first):\n" + stack
    page = "<!doctype html>\n" + "".join(
        f"<h2>Rank {r}: http://node0{r}:77</h2>\n<pre>{dump.format(f)}</pre>"
        for r, f in ((0, "&lt;module&gt;"), (1, "load"))
    )
    reading = parse_stacks(page.encode(), "stacks.html")
    assert sites(reading) == {0: "<module>", 1: "load"}
    assert [s.host for s in reading.samples] == ["node00", "node01"]
    text = "PARTIAL DATA\n" + "".join(
        f"=== Rank {r}: http://[::1]:77 ===\n{dump.format('f')}\n" for r in (0, 1)
    )
    text += "=== Rank 2: http://[::1]:77 ===\nError: 500\n"
    reading = parse_stacks(text.encode(), "stacks_20260101_000000.txt")
    assert [(s.rank, s.error) for s in reading.samples] == [(0, ""), (1, ""), (2, "500")]


def test_a_folder_names_ranks_and_number_looks(tmp_path: Path) -> None:
    """The word "rank" is believed, other files are passed over, two looks are numbered."""
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    (tmp_path / "first" / "rank_3.txt").write_text(block("step"))
    (tmp_path / "second" / "rank_3.txt").write_text(block("load"))
    (tmp_path / "notes.md").write_text("nothing of that kind")
    reading = read_stacks(tmp_path)
    assert [(s.rank, s.sample, s.threads[0].frames[0].function) for s in reading.samples] == [
        (3, 0, "step"),
        (3, 1, "load"),
    ]
    assert reading.notes == ()


def test_numbered_files_are_ranks_and_process_ids_are_not(tmp_path: Path) -> None:
    """0.txt, 1.txt are ranks, with a note; 4711.txt, 4712.txt are not."""
    for number in (0, 1, 4711, 4712):
        folder = tmp_path / ("ranks" if number < 9 else "pids")
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.txt").write_text(block(tid=10 + number))
    reading = read_stacks(tmp_path / "ranks")
    assert sorted(sites(reading)) == [0, 1]
    assert [note.level for note in reading.notes] == ["info"]
    assert {s.role for s in read_stacks(tmp_path / "pids").samples} == {"unknown"}


def test_children_in_a_ranks_file_are_not_the_rank() -> None:
    """py-spy --subprocesses: the first process is the rank, its data loader belongs to it."""
    reading = parse_stacks((block() + WORKER).encode(), "rank_2.txt")
    assert [(s.rank, s.parent_rank, s.role) for s in reading.samples] == [
        (-1, 2, "data-loader"),
        (2, -1, "rank"),
    ]


def test_hostile_files_become_notes(tmp_path: Path) -> None:
    """FIFOs, binaries, deep nesting, cut files: a note each, and the good file is read."""
    os.mkfifo(tmp_path / "rank_0.txt")
    (tmp_path / "rank_1.json").write_text('[{"pid": 1, "frames": ' + "[" * 100_000)
    (tmp_path / "rank_2.json").write_text('{"schema": "unhang.stacks/1", "frames": [["a"')
    (tmp_path / "rank_3.json").write_text('{"schema": "unhang.stacks/9"}')
    (tmp_path / "rank_4.json").write_text(
        '{"schema": "unhang.stacks/1", "frames": [], "stacks": [[7]], "samples": []}'
    )
    (tmp_path / "rank_5.txt").write_bytes(b"\0\1\2")
    (tmp_path / "rank_6.txt").write_text(block())
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    reading = read_stacks(tmp_path)
    assert sites(reading) == {6: "step"}
    *others, binary = reading.notes
    assert (binary.level, binary.source) == ("info", str(tmp_path))
    assert "rank_5.txt" in binary.text
    assert sorted(Path(n.source).name for n in others) == [
        "gone.txt",
        "rank_0.txt",
        "rank_1.json",
        "rank_2.json",
        "rank_3.json",
        "rank_4.json",
    ]
    assert {note.level for note in others} == {"error"}


def test_what_was_named_itself_is_never_passed_over(tmp_path: Path) -> None:
    """A single file without stacks, or none at all, gives a note."""
    (tmp_path / "log.txt").write_text("step 1 loss 0.3\n")
    assert [n.level for n in read_stacks(tmp_path / "log.txt").notes] == ["error"]
    assert [n.level for n in read_stacks(tmp_path / "none").notes] == ["error"]


def test_endless_stacks_are_cut(tmp_path: Path) -> None:
    """Recursion without end keeps the innermost frames and says so."""
    text = 'Thread 1 (idle): "MainThread"\n' + "    f (t.py:1)\n" * 5_000
    (tmp_path / "rank_0.txt").write_text(text)
    reading = read_stacks(tmp_path)
    assert len(reading.samples[0].threads[0].frames) == 1_000
    assert [note.level for note in reading.notes] == ["warning"]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_no_input_raises(data: bytes) -> None:
    """Whatever the bytes, there is a reading."""
    assert isinstance(parse_stacks(data, "x"), Reading)
    assert isinstance(is_stacks(data), bool)


def test_stacks_are_recognised_by_their_head(tmp_path: Path) -> None:
    """What ingest asks: is this file of stacks, whoever wrote it?"""
    write_samples(tmp_path / "s.json", [ProcessSample(0, "node01", 1)])
    assert is_stacks((tmp_path / "s.json").read_bytes())
    assert is_stacks(block().encode())
    assert not is_stacks(b"\x80\x02}q\x00")
    assert not is_stacks(b'{"version": "2.10", "entries": []}')


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank_3.txt", 3),
        ("py-spy-rank12.json", 12),
        ("rank=4/stack.txt", 4),
        ("rank_1/rank_2.txt", 2),
        ("frank3.txt", -1),
        ("4711.txt", -1),
        ("ranks.txt", -1),
    ],
)
def test_names_that_name_ranks(name: str, rank: int) -> None:
    """Only the word "rank" makes a number a rank."""
    assert rank_in_name(name) == rank


def test_numbers_must_be_without_gaps() -> None:
    """0, 1, 2 are ranks; 0, 2 are not."""
    assert numbered_ranks(["a0.txt", "a1.txt", "a2.txt"]) == {"a0.txt": 0, "a1.txt": 1, "a2.txt": 2}
    assert numbered_ranks(["a0.txt", "a2.txt"]) == {}


@pytest.mark.parametrize("number", [10**400, 2**62])
@pytest.mark.parametrize(
    "field", ["rank", "parent_rank", "pid", "sample", "cpu_s", "time_ns", "exit_status", "line"]
)
def test_numbers_that_cannot_be(field: str, number: int, tmp_path: Path) -> None:
    """Ranks, times, lines beyond everything that there is: read, judged, asked in SQL."""
    samples = [
        sample_of(rank, "train.py:17 step", sample=look) for rank in (0, 1) for look in (0, 1)
    ]
    document = json.loads(dump_samples(samples))
    if field == "line":
        document["frames"][0][2] = number
    else:
        document["samples"][0][field] = number
    (tmp_path / "case" / "stacks").mkdir(parents=True)
    (tmp_path / "case" / "manifest.json").write_text("{}")
    path = tmp_path / "case" / "stacks" / "h.json"
    path.write_text(json.dumps(document))
    assert main(["stacks", str(path)]) in (0, 1, 3)
    assert main(["diagnose", str(tmp_path / "case")]) in (0, 1, 3)
    assert main(["query", str(tmp_path / "case"), "SELECT * FROM threads"]) in (0, 3)


def test_a_tree_with_lines_that_are_no_number() -> None:
    """JSON knows infinity."""
    line, _, rest = to_bytes(from_stacks([(0, frames_of("train.py:17 step"))])).partition(b"\n")
    with pytest.raises(ValueError, match="not a tree"):
        from_bytes(line.replace(b"17", b"Infinity") + b"\n" + rest)
