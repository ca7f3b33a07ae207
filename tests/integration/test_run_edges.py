"""`unhang run` where there is little room, where it is stopped, and what it leaves behind."""

from __future__ import annotations

import json
import os
import pty
import resource
import shlex
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from run_jobs import PATIENCE_S, TORCHRUN, UNHANG, environment, moved_on

FEW_CALLS = Path(__file__).parent / "programs" / "few_calls.py"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A working directory, beside the runtime directory."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def alone(folder: Path) -> dict[str, str]:
    """The environment of a job of one rank."""
    return {
        **environment(folder),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "1",
        "RANK": "0",
        "LOCAL_RANK": "0",
    }


def run(
    work: Path, *words: str, limits: tuple[tuple[int, int], ...] = (), **options: object
) -> subprocess.CompletedProcess[str]:
    """Run a whole command line in the working directory, under limits."""

    def limit() -> None:
        for what, most in limits:
            resource.setrlimit(what, (most, most))

    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        words,
        cwd=work,
        env=alone(work.parent),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        preexec_fn=limit,
        **options,
    )


def left_in(work: Path) -> list[Path]:
    """What lies in the working directory and in the runtime directory."""
    runtime = work.parent / "runtime"
    return [*work.rglob("*"), *(runtime.rglob("*") if runtime.exists() else ())]


def rank(*words: str) -> list[str]:
    """A healthy rank as words of a command."""
    return [sys.executable, str(FEW_CALLS), *(words or ("20",))]


# ------------------------------------------------------------------ little room


@pytest.mark.parametrize("most", [20, 40])
def test_a_job_with_few_descriptors_ends_as_without_us(work: Path, most: int) -> None:
    """The recorder keeps none of them, and what it cannot do is said once."""
    limits = ((resource.RLIMIT_NOFILE, most),)
    assert run(work, *rank(), limits=limits).returncode == 0
    done = run(work, *UNHANG, "--", *rank(), limits=limits)
    assert (done.returncode, done.stdout) == (0, "begun\ndone\n")
    said = f"of {most} file descriptors are in use"
    assert said in done.stderr or "it runs without unhang" in done.stderr
    assert "Traceback" not in done.stderr
    assert left_in(work) == []


def test_a_command_runs_alone_where_there_is_no_room_for_us(work: Path) -> None:
    """Not even a pipe is to be had: the command takes our place, its exit code is its own."""
    limits = ((resource.RLIMIT_NOFILE, 8),)
    done = run(work, *UNHANG, "--", "sh", "-c", "echo $UNHANG_ARM; exit 7", limits=limits)
    assert (done.returncode, done.stdout) == (7, "\n")
    assert "it runs without unhang" in done.stderr
    missing = run(work, *UNHANG, "--", "no-such-launcher", limits=limits)
    assert (missing.returncode, "command not found" in missing.stderr) == (127, True)
    assert left_in(work) == []


@pytest.mark.parametrize("gigabytes", [2, 6])
def test_a_job_with_a_limited_address_space_ends_as_without_us(work: Path, gigabytes: int) -> None:
    """Whether there is room for torch or not is the limit's business, not ours."""
    limits = ((resource.RLIMIT_AS, gigabytes << 30),)
    bare = run(work, *rank(), limits=limits)
    done = run(work, *UNHANG, "--", *rank(), limits=limits)
    assert (done.returncode, done.stdout) == (bare.returncode, bare.stdout)
    assert left_in(work) == []


# ------------------------------------------------------------------ what is left


@pytest.mark.parametrize(("word", "code"), [("no-such-launcher", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_start_leaves_nothing(work: Path, word: str, code: int) -> None:
    """The run's own folder was made before it was known."""
    assert run(work, *UNHANG, "--", word).returncode == code
    assert run(work, *UNHANG, "--blocking", "--case", "case", "--", word).returncode == code
    assert left_in(work) == []


def torchrun(program: Path, *words: str, ranks: int = 2) -> list[str]:
    """A job of torchrun as words of a command."""
    port = ("--master-port", str(free_port()))
    return [str(TORCHRUN), "--nproc-per-node", str(ranks), *port, str(program), *words]


def test_a_healthy_job_leaves_nothing(work: Path) -> None:
    """Torchrun kept a log of each rank meanwhile; lines are marked, and nothing is said."""
    done = run(work, *UNHANG, "--", *torchrun(FEW_CALLS, "20", "0.05"))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines())[-2:] == ["[default0]:done", "[default1]:done"]
    assert "unhang:" not in done.stderr
    assert left_in(work) == []


def test_the_logs_of_ranks_stay_where_somebody_asks_for_them(work: Path) -> None:
    """--rank-logs keeps them whole, and a place that cannot be made is said before the job."""
    done = run(work, *UNHANG, "--rank-logs", "logs", "--", *torchrun(FEW_CALLS, "3"))
    assert done.returncode == 0, done.stderr
    texts = [path.read_text() for path in sorted(work.rglob("stdout.log"))]
    assert texts == ["begun\ndone\n", "done\n"]
    refused = run(work, *UNHANG, "--rank-logs", "/proc/no", "--", "touch", "ran")
    assert (refused.returncode, (work / "ran").exists()) == (2, False)
    assert "cannot keep the ranks' logs" in refused.stderr


def test_the_logs_of_a_failure_without_a_case_stay(work: Path) -> None:
    """Ranks that fail before they are ranks make no case: what they said is kept."""
    (work / "broken.py").write_text("import sys\nprint('here', flush=True)\nsys.exit(5)\n")
    done = run(work, *UNHANG, "--", *torchrun(work / "broken.py"))
    assert done.returncode == 1
    assert "the logs of the ranks are in unhang-logs/" in done.stderr
    kept = {path.read_text() for path in work.rglob("stdout.log")}
    assert kept - {""} == {"here\n"}  # torchrun may end a rank before it has printed
    assert [*(work.parent / "runtime").rglob("*")] == []


@pytest.mark.parametrize("outer", [[], ["--job", "one"]])
def test_runs_may_be_nested(work: Path, outer: list[str]) -> None:
    """The outer one sees the ranks, the inner one leaves its files alone, and nothing is said."""
    inner = [*UNHANG, "--", *torchrun(FEW_CALLS, "20", "0.1")]
    done = run(work, *UNHANG, *outer, "--", *inner)
    assert (done.returncode, "unhang:" in done.stderr) == (0, False), done.stderr
    assert left_in(work) == []


def test_the_inner_run_leaves_the_files_of_the_outer_one(work: Path) -> None:
    """They share the job's directory; the outer one still needs its own folder in it."""
    look = 'ls -d "$UNHANG_DIR" && test -d "$UNHANG_DIR"'
    mark = 'mkdir -m 700 "$UNHANG_RUNTIME_DIR/$UNHANG_JOB/marks"'
    line = f'{mark}; {sys.executable} -m unhang run -- sh -c "exit 3"; test $? = 3 && {look}'
    done = run(work, *UNHANG, "--", "sh", "-c", line)
    assert (done.returncode, done.stderr) == (0, "")
    assert left_in(work) == []


# ------------------------------------------------------------------ stopped


@pytest.mark.parametrize("whole_job", [False, True])
def test_a_stopped_supervisor_raises_no_false_alarm(work: Path, *, whole_job: bool) -> None:
    """For longer than --hang-after it sees nothing, or the job stands still with it (Ctrl-Z)."""
    words = [*UNHANG, "--hang-after", "2", "--", *rank("160", "0.05")]
    env = {**alone(work.parent), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        words,
        cwd=work,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        stop = os.killpg if whole_job else os.kill
        stop(process.pid, signal.SIGSTOP)
        time.sleep(5)
        stop(process.pid, signal.SIGCONT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, "done\n", "")
    assert left_in(work) == []


def test_a_stopped_rank_is_an_alarm_and_the_job_goes_on(work: Path) -> None:
    """The others wait for it, so it counts as stuck; once it goes on, that is said."""
    words = [*UNHANG, "--hang-after", "3", "--", *torchrun(FEW_CALLS, "200", "0.02")]
    with subprocess.Popen(
        words,
        cwd=work,
        env=environment(work.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "begun" in process.stdout.readline()
        marks = (work.parent / "runtime").glob("*/marks/[0-9]*.json")
        pid = next(m["pid"] for m in map(read_json, marks) if m["rank"] == 1)
        os.kill(pid, signal.SIGSTOP)
        said = "".join(iter_until(process.stderr, "the evidence is in"))
        os.kill(pid, signal.SIGCONT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "collecting evidence" in said
    assert moved_on(err), err
    assert out.count("done") == 2


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file."""
    return dict(json.loads(path.read_text()))


def iter_until(lines: Iterable[str], word: str) -> Iterator[str]:
    """The lines up to the one with a word in it."""
    for line in lines:
        yield line
        if word in line:
            return


# ------------------------------------------------------------------ terminals


class Terminal:
    """A command on a terminal of its own, as the job of a shell."""

    def __init__(self, work: Path, *words: str) -> None:
        self.shown = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(work)
            os.execve(words[0], words, environment(work.parent))  # noqa: S606 - the point
        self.before = termios.tcgetattr(self.fd)

    def read_until(self, word: bytes) -> None:
        """Read until a word has come."""
        while word not in self.shown:
            self.shown += os.read(self.fd, 1024)

    def end(self) -> int:
        """Read until nobody has the terminal any more; the exit code."""
        try:
            while data := os.read(self.fd, 1024):
                self.shown += data
        except OSError:  # EIO: its last user is gone
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


KEYS = {"ctrl-c": b"\x03", "ctrl-backslash": b"\x1c"}


@pytest.mark.parametrize("option", [[], ["--logs", "always"]])
@pytest.mark.parametrize(
    ("key", "body", "code"),
    [
        ("ctrl-c", "", 130),
        ("ctrl-c", "signal.signal(2, lambda n, f: sys.exit(7))", 7),
        ("ctrl-backslash", "", 131),
    ],
)
def test_keys_end_a_command_quietly(
    work: Path, option: list[str], key: str, body: str, code: int
) -> None:
    """No word of ours, the command's own exit code, and the terminal as it was."""
    text = (
        "import os, signal, sys, resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        f"signal.signal(2, signal.SIG_DFL)\n{body}\nprint('ready', flush=True)\nsignal.pause()"
    )
    terminal = Terminal(work, *UNHANG, *option, "--", sys.executable, "-c", text)
    terminal.read_until(b"ready")
    os.write(terminal.fd, KEYS[key])
    assert terminal.end() == code
    words = terminal.shown.replace(b"^C", b"").replace(b"^\\", b"")
    assert words.strip() == b"ready"


@pytest.mark.parametrize(
    ("end", "code"), [("0", 0), ("7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
@pytest.mark.parametrize("option", [[], ["--logs", "always"]])
def test_the_terminal_is_as_before(work: Path, option: list[str], end: str, code: int) -> None:
    """Settings and foreground group, whatever way the command ends."""
    ending = f"exit {end}" if end.isdigit() else end
    shell = (
        "import os, subprocess, sys, termios\n"
        "look = lambda: (termios.tcgetattr(0), os.tcgetpgrp(0))\n"
        "before = look()\n"
        f"code = subprocess.run({[*UNHANG, *option, '--', 'sh', '-c', ending]!r}).returncode\n"
        "print(code, look() == before)\n"
    )
    terminal = Terminal(work, sys.executable, "-c", shell)
    assert terminal.end() == 0
    assert terminal.shown.split()[-2:] == [str(code).encode(), b"True"]
    assert (b"SIGKILL ended the command" in terminal.shown) == (code == 137)


@pytest.mark.debian("ip")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network of its own")
@pytest.mark.parametrize(("down_s", "ended"), [(22, False), (300, True)])
def test_a_link_that_comes_back_ends_no_job(work: Path, down_s: int, *, ended: bool) -> None:
    """All ranks stand in one call: the network may only pause, until --grace is over."""
    job = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29500"]
    command = [*UNHANG, "--on-hang", "kill", "--grace", "15" if ended else "60", "--case", "case"]
    program = str(Path(__file__).parent / "programs" / "link_down.py")
    words = [*command, "--", sys.executable, *job, program, str(down_s)]
    inside = f"ip link set lo up; exec {shlex.join(words)}"
    done = run(work, "unshare", "--net", "sh", "-c", inside)
    assert ("ending the job" in done.stderr) == ended, done.stderr
    assert (done.returncode != 0) == ended
    assert done.stdout.count("is done") == (0 if ended else 2)
