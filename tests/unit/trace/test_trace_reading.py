"""Reading call traces and strace's output: open calls, silence, hostile files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.cli.main import main
from unhang.errors import InputError
from unhang.trace.agent import Chooser
from unhang.trace.reading import last_calls, read_traces
from unhang.trace.strace_lines import StraceReader
from unhang.trace.syscall_judging import judge_syscalls
from unhang.trace.syscalls import Observed, SyscallTrace

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
    report = diagnose(Case(last_calls=last_calls(traces), notes=tuple(notes)))
    assert [f.victims for f in report.findings] == [(1,)]
    assert report.findings[0].sites[0].function == "read"
    assert report.findings[0].sites[0].age_s == 87.0
    assert [f.function for f in report.stacks["p101"]] == ["read", "load", "main"]


def test_nobody_is_silent(tmp_path: Path) -> None:
    """Ranks that made their last calls together give no finding: they all ended, or all hang."""
    for rank in range(2):
        trace_file(tmp_path, rank, "+main@1 +step@9 -step@10 -main@10")
    report = diagnose(Case(last_calls=last_calls(read_traces(tmp_path)[0])))
    assert (report.status, report.findings) == ("healthy", ())
    for rank in range(2):
        trace_file(tmp_path, rank, "+main@1 +step@9")
    report = diagnose(Case(last_calls=last_calls(read_traces(tmp_path)[0])))
    assert (report.status, report.findings) == ("insufficient", ())
    assert "calls are open" in report.summary


def test_a_process_that_was_not_seen_to_do_anything() -> None:
    """It made no system call and used no time, as one that a debugger holds: that is no health."""
    held = SyscallTrace(7)
    report = judge_syscalls(Observed((held,), 2.0))
    assert (report.status, report.findings) == ("insufficient", ())
    assert "is unknown" in report.summary
    held.counts["getpid"] = 3
    assert judge_syscalls(Observed((held,), 2.0)).status == "healthy"


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
    diagnose(Case(last_calls=last_calls(read_traces(folder)[0])))


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
SPINNING = "".join("[pid    42] sched_yield() = 0 <0.000004>\n" for _ in range(3000))
POLLING = "".join(
    "epoll_wait(7<anon_inode:[eventpoll]>, [], 64, 500) = 0 <0.499000>\n" for _ in range(4)
)


def traces_of(text: str, pid: int) -> tuple[SyscallTrace, ...]:
    """What strace printed about a process of one thread."""
    reader = StraceReader(pid)
    reader.read(text.splitlines())
    return tuple(reader.traces.values())


def codes_of(text: str, seconds: float, awake_s: float = -1.0) -> list[str]:
    """The codes of the findings about what strace printed."""
    traces = traces_of(text, 41) or (SyscallTrace(41),)
    for trace in traces:
        trace.awake_s = awake_s
    return [finding.code for finding in judge_syscalls(Observed(traces, seconds)).findings]


def test_a_wait_names_call_and_file() -> None:
    """The unfinished call and what it is about."""
    finding = judge_syscalls(Observed(traces_of(WAITING, 41), 2.0)).findings[0]
    assert (finding.code, finding.subjects[1].id) == ("UH604", "/home/user/fifo")


def test_a_loop_with_a_time_out_waits_too() -> None:
    """It comes out of its call and goes in again; others that use little of the time do not."""
    finding = judge_syscalls(Observed(traces_of(POLLING, 41), 2.0)).findings[0]
    assert (finding.code, finding.confidence) == ("UH604", "medium")
    assert "in epoll_wait on anon_inode:[eventpoll], in 4 calls" in finding.summary
    assert codes_of(POLLING, 10.0) == []


def test_a_spin_is_told_from_work() -> None:
    """Thousands of calls a second spin; some do not."""
    assert codes_of(SPINNING, 1.0) == ["UH605"]
    assert codes_of(SPINNING, 10.0) == []


def test_a_thread_that_burns_its_core_without_calls() -> None:
    """No system call and much CPU time: it computes or spins; with little it does neither."""
    assert codes_of("", 2.0, awake_s=1.9) == ["UH606"]
    assert codes_of("", 2.0, awake_s=0.2) == []


def test_a_resumed_call_is_finished() -> None:
    """An unfinished call that is resumed later is no wait, and its file is remembered."""
    text = '[pid 5] read(3<a>,  <unfinished ...>\n[pid 5] <... read resumed>"x", 1) = 1 <1.5>\n'
    (trace,) = traces_of(text, 5)
    assert (trace.waiting, dict(trace.spent)) == ("", {("read", "a"): 1.5})
    assert codes_of(text, 10.0) == []


@given(st.text(max_size=200))
def test_any_output_of_strace_is_read(text: str) -> None:
    """Whatever it prints."""
    judge_syscalls(Observed(traces_of(text, 5), 1.0))


def test_traces_without_a_call_are_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that called nothing before it ended tells nothing of a job."""
    trace_file(tmp_path, 0, "")
    assert main(["trace", "--show", str(tmp_path)]) == 3
    assert "hold no call" in capsys.readouterr().err
