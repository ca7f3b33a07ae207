"""`unhang trace` on real programs: last calls of a killed rank, strace on a waiting one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from guide_page import on_the_page
from valid_reports import report_in

VICTIM = """\
import os, sys, time

def read_storage(path):
    fd = os.open(path, os.O_RDWR)
    print("ready", flush=True)
    return os.read(fd, 1)

def step(number):
    return number + 1

def train(path):
    for number in range(3):
        step(number)
    return read_storage(path)

train(sys.argv[1])
"""


HUNG = Path(__file__).parents[2] / "examples" / "never-joined"


def unhang(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of unhang."""
    command = [sys.executable, "-m", "unhang", *words]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.fixture
def victim(tmp_path: Path) -> list[str]:
    """A program that ends up waiting in read."""
    (tmp_path / "train.py").write_text(VICTIM)
    os.mkfifo(tmp_path / "storage")
    return [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "storage")]


def test_the_last_calls_of_a_killed_program(victim: list[str], tmp_path: Path) -> None:
    """SIGKILL loses nothing: the open calls are in the file."""
    trace = [sys.executable, "-m", "unhang", "trace", "--dir", str(tmp_path / "t"), "--", *victim]
    with subprocess.Popen(trace, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "RANK": "3"}) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        assert process.wait(timeout=600) == 128 + signal.SIGKILL
    report = report_in(unhang("trace", "--show", str(tmp_path / "t"), "--format", "json").stdout)
    stack = [frame["function"] for frame in next(iter(report["stacks"].values()))]
    assert stack[:2] == ["read_storage", "train"]
    assert report["ranks"][0]["rank"] == 3
    assert "step" not in stack
    on_the_page(
        "trace.Trace(ignoredirs=", unhang("trace", "--show", str(tmp_path / "t"), "-v").stdout
    )


def test_a_trace_shows_what_the_culprit_did(victim: list[str], tmp_path: Path) -> None:
    """Dumps name rank 2; its trace, told to `diagnose`, shows the calls that it is in."""
    trace = [sys.executable, "-m", "unhang", "trace", "--dir", str(tmp_path / "t"), "--", *victim]
    with subprocess.Popen(trace, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "RANK": "2"}) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
    done = unhang("diagnose", str(HUNG), "--trace", str(tmp_path / "t"), "--format", "json")
    first = report_in(done.stdout)["findings"][0]
    assert (first["code"], first["culprits"]) == ("UH101", [2])
    assert "innermost first: read_storage, train" in first["evidence"][0]
    alone = unhang("diagnose", "--trace", str(tmp_path / "t"), "--format", "json", cwd=tmp_path)
    assert report_in(alone.stdout)["ranks"][0]["detail"].startswith("entered read_storage")


def test_exit_code_and_output_are_the_childs(tmp_path: Path) -> None:
    """A wrapper: what the child prints and returns is what comes out."""
    done = unhang("trace", "--dir", str(tmp_path / "t"), "--", sys.executable, "-c",
                  "import sys; print('hello'); sys.exit(7)")  # fmt: skip
    assert (done.returncode, done.stdout) == (7, "hello\n")


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_strace_says_what_it_waits_in(victim: list[str], tmp_path: Path) -> None:
    """The system call and the file behind its descriptor."""
    with subprocess.Popen(victim, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        done = unhang("trace", "--syscalls", str(process.pid), "--seconds", "1", "--format", "json")
        process.kill()
    finding = report_in(done.stdout)["findings"][0]
    assert finding["code"] == "UH604"
    assert [s["id"] for s in finding["subjects"] if s["kind"] == "file"] == [
        str(tmp_path / "storage")
    ]


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_case_remembers_what_strace_saw(victim: list[str], tmp_path: Path) -> None:
    """`--case` makes a case and saves the verdict; `diagnose` tells it, and blames nobody."""
    case = tmp_path / "case"
    with subprocess.Popen(victim, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        done = unhang("trace", "--syscalls", str(process.pid), "--seconds", "1",
                      "--case", str(case))  # fmt: skip
        process.kill()
    (saved,) = (case / "reports").iterdir()
    assert f"the report is in {saved}" in done.stderr
    waits = f"waited in read on {tmp_path / 'storage'} all 1 s."
    report = report_in(unhang("diagnose", str(case), "--format", "json").stdout)
    assert report["status"] == "insufficient"
    assert [(f["code"], f["role"]) for f in report["findings"]] == [("UH604", "observation")]
    assert report["findings"][0]["summary"].startswith("By trace at ")
    assert report["findings"][0]["summary"].endswith(waits)
    beside = unhang("diagnose", str(HUNG), "--report", str(saved), "--format", "json")
    findings = report_in(beside.stdout)["findings"]
    assert [(f["code"], f["culprits"]) for f in findings] == [("UH101", [2]), ("UH604", [])]


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_strace_says_that_it_spins() -> None:
    """A rank that goes round in Python makes no system call, and never sleeps."""
    program = "print('ready', flush=True)\nwhile True: pass"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        busy = unhang("trace", "--syscalls", str(process.pid), "--seconds", "2", "--format", "json")
        process.kill()
    report = report_in(busy.stdout)
    assert [f["code"] for f in report["findings"]] == ["UH606"]
    assert busy.returncode == 3


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_command_under_strace(tmp_path: Path) -> None:
    """From its start: output and exit code are the command's, children are followed."""
    program = (
        "import os, time; os.fork() or os._exit(0); print('hello', flush=True); "
        "time.sleep(3); os._exit(7)"
    )
    done = unhang("trace", "--syscalls", "-o", str(tmp_path / "r.json"), "--",
                  sys.executable, "-c", program)  # fmt: skip
    assert (done.returncode, done.stdout) == (7, "hello\n")
    assert report_in((tmp_path / "r.json").read_text())["status"] in ("insufficient", "healthy")


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_start_up_is_healthy_and_its_trace_is_kept(tmp_path: Path) -> None:
    """Thousands of calls a second, each another; `-o` keeps them, and they can be read again."""
    raw = tmp_path / "strace.txt"
    done = unhang("trace", "--syscalls", "-o", str(raw), "--", sys.executable, "-c",
                  "import json, argparse, logging")  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.count("HEALTHY") == 1
    assert "execve(" in raw.read_text()
    assert raw.stat().st_mode & 0o777 == 0o600
    assert unhang("trace", "--syscalls", str(raw)).stdout.startswith("HEALTHY")


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_children_are_attached_too(tmp_path: Path) -> None:
    """What a launcher started before is what hangs."""
    os.mkfifo(tmp_path / "storage")
    child = f"print('ready', flush=True); open({str(tmp_path / 'storage')!r})"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        raw = tmp_path / "raw.txt"
        done = unhang("trace", "--syscalls", str(process.pid), "--seconds", "1", "-o", str(raw))
        with open(tmp_path / "storage", "w"):  # noqa: PTH123 - lets it go on
            pass
    assert "waited in wait4" in done.stdout
    assert str(tmp_path / "storage") in raw.read_text()


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_strace_files_of_a_guide(tmp_path: Path) -> None:
    """`strace -y -e trace=openat,write -o FILE` and `-ff`, as guides have them."""
    raw = tmp_path / "strace.txt"
    program = "f = open('/dev/full', 'w'); f.write('x' * 100000)"
    words = ["strace", "-y", "-e", "trace=openat,write", "-o", str(raw), sys.executable, "-c"]
    subprocess.run([*words, program], stderr=subprocess.DEVNULL, check=False)
    done = unhang("trace", "--syscalls", str(raw))
    assert done.returncode == 3
    assert "ENOSPC" in done.stdout
    assert "/dev/full" in done.stdout
    words = ["strace", "-ff", "-tt", "-o", str(tmp_path / "log"), "sh", "-c", "true & wait"]
    subprocess.run(words, check=True)
    assert unhang("trace", "--syscalls", str(tmp_path / "log")).stdout.startswith("HEALTHY")
    each = sorted(str(path) for path in tmp_path.glob("log.*"))
    assert len(each) > 1
    assert unhang("trace", "--syscalls", *each).stdout.startswith("HEALTHY"), "as a shell's log.*"


def test_a_line_of_strace_that_was_pasted() -> None:
    """Through a pipe, or by hand, as the guide shows it."""
    line = 'write(3</dev/full>, "xxxx"..., 100000) = -1 ENOSPC (No space left on device)\n'
    done = subprocess.run(
        [sys.executable, "-m", "unhang", "trace", "--syscalls", "-"], input=line, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "write on /dev/full: ENOSPC" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--syscalls", "me"], 2),
        (["--syscalls"], 2),
        (["--syscalls", "/no/such", "/nor/that"], 2),
        (["--syscalls", "1", "--seconds", "0"], 2),
        ([], 2),
        (["--show", "/no/such"], 3),
        (["--syscalls", "999999999"], 2),
        (["--size", "1", "--", "true"], 2),
        (["--dir", "/proc/none", "--", "true"], 2),
    ],
)
def test_bad_input(words: list[str], code: int) -> None:
    """One sentence, a hint, the right exit code."""
    done = unhang("trace", *words)
    assert done.returncode == code
    assert done.stderr.startswith("unhang: ")
    assert "Traceback" not in done.stderr


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    """The sentence names it."""
    done = unhang("trace", "--dir", str(tmp_path / "t"), "--", "no-such-program")
    assert done.returncode == 3
    assert "no-such-program" in done.stderr
