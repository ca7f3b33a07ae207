from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unhang.collect import permission, samplers, sampling
from unhang.collect.permission import refusal
from unhang.collect.processes import Process, read_process, wakes_in_s
from unhang.collect.ranks import Target
from unhang.collect.samplers import Sampler, run_sampler, samplers_for
from unhang.collect.sampling import sample_once, sample_processes
from unhang.stacks.formats import pyspy

STACK = """Thread 7 (idle): "MainThread"
    load (data.py:31)
    <module> (train.py:3)
"""
OF_A_LOADER = """Thread 7 (idle): "MainThread"
    _worker_loop (torch/utils/data/_utils/worker.py:30)
"""


def program(folder: Path, script: str) -> str:
    """A shell script that plays a sampler."""
    path = folder / "sampler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def says(folder: Path, script: str) -> Sampler:
    """A sampler of py-spy's format that runs a script."""
    return Sampler("py-spy", program(folder, script), (), pyspy.parse_text)


def me(rank: int = 3) -> Target:
    """This very process as a rank."""
    process = read_process(os.getpid())
    assert process is not None
    return Target(process, rank=rank, role="rank")


def use(monkeypatch: pytest.MonkeyPatch, *chosen: Sampler) -> None:
    """Let the sampling use these samplers."""
    monkeypatch.setattr(sampling, "samplers_for", lambda *_, **__: iter(chosen))


@pytest.mark.parametrize(
    ("script", "problem", "text"),
    [
        ("echo 'Error: Permission Denied: Try sudo' >&2; exit 1", "denied",
         "py-spy: Permission Denied: Try sudo"),
        ("echo 'Error: Failed to find python version from target process' >&2; exit 1",
         "not-python", "py-spy: Failed to find python version from target process"),
        ("echo 'Error: No such process (os error 3)' >&2; exit 1", "gone",
         "py-spy: No such process (os error 3)"),
        ("exit 9", "failed", "py-spy: exit code 9"),
        ("sleep 60", "timeout", "py-spy did not answer within 0.2 s"),
    ],
)  # fmt: skip
def test_a_samplers_failure_has_a_name(
    tmp_path: Path, script: str, problem: str, text: str
) -> None:
    """Its own words are kept, its kind is told, and a sampler that hangs is ended."""
    answer = run_sampler(says(tmp_path, script), 7, 0.2 if problem == "timeout" else 60)
    assert (answer.sample, answer.problem, answer.text) == (None, problem, text)


def test_a_sampler_that_is_absent_is_said_so() -> None:
    """No exception where the program is not there."""
    answer = run_sampler(Sampler("py-spy", "/no/such/program", (), pyspy.parse_text), 7, 1)
    assert answer.problem == "absent"


def test_the_first_sampler_with_a_stack_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing one is followed by the next."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    good = says(tmp_path / "b", f"cat <<'E'\n{STACK}E")
    use(monkeypatch, says(tmp_path / "a", "exit 1"), good)
    sample, why = sample_once(me())
    assert why is None
    assert [frame.function for frame in sample.threads[0].frames] == ["load", "<module>"]
    assert (sample.rank, sample.role, sample.error) == (3, "rank", "")
    assert sample.state in "RS"


def test_looks_are_numbered_and_spaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks at one process are samples 0 and 1, with the interval between them."""
    use(monkeypatch, says(tmp_path, f"cat <<'E'\n{STACK}E"))
    pauses: list[float] = []
    monkeypatch.setattr(
        sampling, "samplers_for", lambda *_, **__: [says(tmp_path, f"cat <<'E'\n{STACK}E")]
    )
    looks = sample_processes([me()], looks=3, interval_s=7.0, sleep=pauses.append)
    assert [sample.sample for sample in looks.samples] == [0, 1, 2]
    assert pauses == [7.0, 7.0]
    assert looks.notes == ()


def test_a_stack_corrects_the_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An orphaned data-loader worker carries its rank's variables, and is no rank."""
    use(monkeypatch, says(tmp_path, f"cat <<'E'\n{OF_A_LOADER}E"))
    sample, _ = sample_once(me())
    assert (sample.rank, sample.parent_rank, sample.role) == (-1, 3, "data-loader")


def test_refusals_of_one_kind_are_one_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight processes that may not be traced give one note with one way out."""
    denied = says(tmp_path, "echo 'Error: Permission denied' >&2; exit 1")
    monkeypatch.setattr(sampling, "samplers_for", lambda *_, **__: [denied])
    looks = sample_processes([me(rank) for rank in range(3)])
    assert all(sample.error.startswith("no permission") for sample in looks.samples)
    assert len(looks.notes) == 1


def test_without_any_sampler_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """No py-spy, no pystack: one sentence and the command."""
    use(monkeypatch)
    looks = sample_processes([me()])
    assert "pip install 'unhang[stacks]'" in looks.notes[0].text


def test_whoever_has_ended_is_not_looked_at() -> None:
    """A process id may be somebody else's by now: the start time tells."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = read_process(child.pid)
    assert process is not None
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    sample, _ = sample_once(Target(process, rank=0, role="rank"))
    assert (sample.state, sample.threads) == ("Z", ())
    child.wait()
    sample, _ = sample_once(Target(process, rank=0, role="rank"))
    assert sample.error == "it ended before unhang could sample it"


def test_a_stopped_process_is_not_stopped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only samplers that read from aside are tried on it; native frames need a pause."""
    monkeypatch.setattr(samplers, "find_program", lambda name: f"/bin/{name}")
    stopped = [s.arguments for s in samplers_for(Process(7, state="T"), native=True)]
    assert stopped == [("dump", "--json", "--nonblocking", "--pid"), ("remote", "--no-block")]
    usual = [s.tool for s in samplers_for(Process(7, state="S"), native=False)]
    assert usual == ["py-spy", "py-spy", "pystack"]
    native = [s.command(7) for s in samplers_for(Process(7, state="S"), native=True)]
    assert native[0] == ["/bin/py-spy", "dump", "--json", "--native", "--pid", "7"]
    assert native[-1] == ["/bin/gdb", "-batch", "-nx", "-p", "7", "-ex", "thread apply all bt"]


def capabilities(proc: Path, value: int) -> Path:
    """A /proc whose reader has these capabilities."""
    (proc / "self").mkdir()
    (proc / "self" / "status").write_text(f"CapEff:\t{value:016x}\n")
    return proc


@pytest.mark.parametrize(
    ("process", "uid", "scope", "word", "hint"),
    [
        (Process(7, uid=0), 1000, 0, "belongs to user root (0)", "sudo unhang stacks --pid 7"),
        (Process(7, uid=54321), 1000, 0, "belongs to user 54321", "sudo"),
        (Process(7, uid=1000), 1000, 1, "only their own children", "ptrace_scope=0"),
        (Process(7, uid=0), 0, 0, "lacks the capability SYS_PTRACE", "--cap-add SYS_PTRACE"),
        (Process(7, uid=1000), 1000, 3, "forbids tracing altogether", "reboot"),
        (Process(7, uid=1000, tracer=99), 1000, 0, "already traced by process 99", "kill 99"),
        (Process(7, uid=1000), 1000, 0, "does not let this user", "sudo"),
    ],
)
def test_every_refusal_has_a_way_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    process: Process,
    uid: int,
    scope: int,
    word: str,
    hint: str,
) -> None:
    """Another user, Yama, a container, a debugger: each with the command that solves it."""
    monkeypatch.setattr(permission, "_yama", lambda: scope)
    monkeypatch.setattr(permission, "_in_container", lambda _: False)
    why = refusal(process, uid, capabilities(tmp_path, 0))
    assert word in why.reason
    assert hint in why.hint


@pytest.mark.skipif(sys.version_info < (3, 11), reason="earlier Pythons do not tell until when")
def test_who_sleeps_tells_until_when() -> None:
    """Of whoever does not sleep, or has ended, nothing is known."""
    code = "import time; print(flush=True); time.sleep(1_000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            while (left := wakes_in_s(child.pid)) < 0:
                time.sleep(0.01)
        finally:
            child.kill()
    assert 0 < left <= 1_000
    assert wakes_in_s(child.pid) == wakes_in_s(os.getpid()) == -1.0
