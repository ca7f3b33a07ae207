"""Reading call traces and strace's output: open calls, silence, hostile files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.errors import InputError
from unhang.trace.agent import Chooser
from unhang.trace.reading import judge_traces, read_traces
from unhang.trace.syscalls import judge_syscalls, parse_strace

S = 10**9


def trace_file(folder: Path, rank: int, events: str, *, pid: int = 0, parent: int = 1) -> None:
    """Write a trace: "+f@3" enters f at second 3, "-f@4" leaves it."""
    pid = pid or 100 + rank
    lines = [f"# unhang trace 1 rank={rank} pid={pid} ppid={parent} turn=0"]
    depth = 0
    for event in events.split():
        name, second = event[1:].split("@")
        depth -= event[0] == "-"
        lines.append(f"{int(second) * S} 7 {event[0]}{depth} /home/user/train.py:5 {name}")
        depth += event[0] == "+"
    data = "\n".join(lines).encode() + b"\n"
    (folder / f"calls-{rank}-{pid}.0").write_bytes(data.ljust(4096, b"\0"))


def test_the_rank_that_fell_silent(tmp_path: Path) -> None:
    """Its last open call is named; ranks that go on and its helper are not."""
    trace_file(tmp_path, 0, "+main@1 +step@2 -step@3 +step@90")
    trace_file(tmp_path, 1, "+main@1 +load@2 +read@3")
    trace_file(tmp_path, 1, "+worker@1", pid=900, parent=101)
    traces, notes = read_traces(tmp_path)
    report = judge_traces(traces, notes)
    assert [f.victims for f in report.findings] == [(1,)]
    assert report.findings[0].sites[0].function == "read"
    assert report.findings[0].sites[0].age_s == 87.0
    assert [f.function for f in report.stacks["p101"]] == ["read", "load", "main"]


def test_nobody_is_silent(tmp_path: Path) -> None:
    """Ranks that made their last calls together give no finding."""
    for rank in range(2):
        trace_file(tmp_path, rank, "+main@1 +step@9")
    assert judge_traces(*read_traces(tmp_path)).status == "healthy"


def test_no_trace_is_an_error(tmp_path: Path) -> None:
    """A missing directory, an empty one, and one with foreign files."""
    (tmp_path / "calls-0-5.0").write_bytes(b"\x00\xff nonsense")
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError):
            read_traces(folder)


@given(st.binary(max_size=300))
def test_any_bytes_behind_the_header(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever a torn file holds, reading does not fail."""
    folder = tmp_path_factory.mktemp("trace")
    header = b"# unhang trace 1 rank=0 pid=5 ppid=1 turn=0\n"
    (folder / "calls-0-5.0").write_bytes(header + data)
    judge_traces(*read_traces(folder))


def test_packages_are_chosen_by_name() -> None:
    """Without a choice installed packages are left out; names include and exclude."""
    code = compile("def f(): pass", "/home/user/train.py", "exec")
    library = compile("x = 1", Chooser("", "").library[0] + "/json/decoder.py", "exec")
    assert Chooser("", "").wants(code, "train")
    assert not Chooser("", "").wants(library, "json.decoder")
    assert Chooser("json", "").wants(library, "json.decoder")
    assert not Chooser("json", "json.decoder").wants(library, "json.decoder")
    assert not Chooser("train2", "").wants(code, "train")


WAITING = "read(3</home/user/fifo>,  <detached ...>\n"
SPINNING = "".join("[pid    42] sched_yield() = 0\n" for _ in range(3000))


def test_a_wait_names_call_and_file() -> None:
    """The unfinished call and what it is about."""
    traces = parse_strace(WAITING, 41)
    finding = judge_syscalls(traces, 2.0).findings[0]
    assert (finding.code, finding.subjects[1].id) == ("UH604", "/home/user/fifo")


def test_a_spin_is_told_from_work() -> None:
    """Thousands of calls a second spin; some do not."""
    assert judge_syscalls(parse_strace(SPINNING, 41), 1.0).findings[0].code == "UH605"
    assert judge_syscalls(parse_strace(SPINNING, 41), 10.0).findings == ()


def test_a_resumed_call_is_finished() -> None:
    """An unfinished call that is resumed later is no wait."""
    text = '[pid 5] read(3<a>,  <unfinished ...>\n[pid 5] <... read resumed>"x", 1) = 1\n'
    assert judge_syscalls(parse_strace(text, 5), 1.0).findings == ()


def test_output_without_calls_is_an_error() -> None:
    """No system call at all gives no verdict."""
    with pytest.raises(InputError):
        parse_strace("strace: Process 5 attached\n", 5)
