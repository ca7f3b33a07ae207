"""`unhang run` goes unnoticed: output, input, signals, exit codes and job control pass through."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

UNHANG = [sys.executable, "-m", "unhang", "run"]
PATIENCE_S = 600


def run(*words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run a command under `unhang run` to its end."""
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*UNHANG, "--", *words], capture_output=True, timeout=PATIENCE_S, check=False, **options
    )


def script(text: str) -> list[str]:
    """A Python program as words of a command."""
    return [sys.executable, "-c", text]


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[Path]:
    """A FIFO through which victims say that they are ready."""
    path = tmp_path / "ready"
    os.mkfifo(path)
    return path


def victim(ready: Path, body: str) -> list[str]:
    """A Python program that says when it is ready and then sleeps."""
    return script(
        f"import os, signal, sys, time\n{body}\n"
        f"open({str(ready)!r}, 'w').write(str(os.getpid()))\n"
        "while True: time.sleep(60)"
    )


def test_output_input_and_exit_code_pass_through() -> None:
    """What the command reads, prints and returns is what its user sees."""
    echo = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.stderr.write('E'); exit(7)"
    done = run(*script(echo), input=b"hello\n")
    assert (done.stdout, done.stderr, done.returncode) == (b"HELLO\n", b"E", 7)


def test_a_megabyte_arrives_whole_and_in_order() -> None:
    """Both streams into one pipe keep their order, and nothing is lost at the end."""
    text = (
        "import os\nfor i in range(20000): os.write(1 + i % 2, b'%06d:' % i + b'x' * 60 + b'\\n')"
    )
    done = subprocess.run(
        [*UNHANG, "--", *script(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE_S,
        check=True,
    )
    numbers = [int(line[:6]) for line in done.stdout.splitlines()]
    assert numbers == list(range(20000))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, 137), (signal.SIGTERM, 143), (signal.SIGABRT, 134)]
)
def test_a_signal_that_ends_the_command_is_its_exit_code(number: int, code: int) -> None:
    """A command that dies of signal n returns 128 + n, as in a shell."""
    assert run(*script(f"import os; os.kill(os.getpid(), {number})")).returncode == code


def test_arguments_are_not_ours() -> None:
    """Options behind the command belong to it, even ours."""
    done = run(*script("import sys; print(sys.argv[1:])"), "-v", "--case", "--", "x")
    assert done.stdout.strip() == b"['-v', '--case', '--', 'x']"
    assert done.stderr == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_sent_to_the_wrapper_reaches_the_command_once(ready: Path, number: int) -> None:
    """It is passed on, and the command decides what to do with it."""
    body = f"signal.signal({number}, lambda n, f: (os.write(1, b'got'), sys.exit(5)))"
    with subprocess.Popen([*UNHANG, "--", *victim(ready, body)], stdout=subprocess.PIPE) as process:
        ready.read_text()
        process.send_signal(number)
        assert process.communicate(timeout=PATIENCE_S)[0] == b"got"
        assert process.returncode == 5


def test_a_signal_to_the_whole_group_is_not_passed_on_again(ready: Path) -> None:
    """`timeout` and many schedulers signal the group: the command got it already."""
    count = (
        "got = []\n"
        "signal.signal(signal.SIGTERM, lambda n, f: got.append(n))\n"
        "signal.signal(signal.SIGIO, lambda n, f: (print(len(got)), sys.exit(0)))"
    )
    command = [*UNHANG, "--", *victim(ready, count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        pid = int(ready.read_text())
        os.killpg(process.pid, signal.SIGTERM)
        # Taken in order of their numbers: before this one, a second SIGTERM would be there.
        os.kill(process.pid, signal.SIGIO)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert (out.strip(), process.returncode) == (b"1", 0), pid


def test_under_timeout_the_command_gets_one_signal(ready: Path) -> None:
    """timeout(1) signals its child and then its group; torchrun would take two for a crash."""
    count = (
        "got = []\n"
        "signal.signal(signal.SIGTERM, lambda n, f: got.append(n))\n"
        "signal.signal(signal.SIGIO, lambda n, f: (print(len(got)), sys.exit(0)))"
    )
    command = ["timeout", "600", *UNHANG, "--", *victim(ready, count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        wrapper = parent_of(int(ready.read_text()))
        process.send_signal(signal.SIGTERM)
        os.kill(wrapper, signal.SIGIO)
        assert process.communicate(timeout=PATIENCE_S)[0].strip() == b"1"


def test_ctrl_c_reaches_the_command_once(ready: Path, tmp_path: Path) -> None:
    """A terminal's Ctrl-C goes to the whole foreground group; the wrapper adds nothing."""
    body = "signal.signal(signal.SIGINT, lambda n, f: (os.write(1, b'int '), None))"
    end = "signal.signal(signal.SIGTERM, lambda n, f: sys.exit(9))"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, [*UNHANG, "--", *victim(ready, f"{body}\n{end}")])  # noqa: S606 - the point
    ready.read_text()
    os.write(terminal, b"\x03")
    shown = b""
    while b"int" not in shown:
        shown += os.read(terminal, 1024)
    os.kill(pid, signal.SIGTERM)
    try:
        while data := os.read(terminal, 1024):
            shown += data
    except OSError:  # EIO: the terminal's last user is gone
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert shown.count(b"int ") == 1


def test_ctrl_z_stops_both_and_fg_continues(ready: Path) -> None:
    """Job control works: the wrapper stops with its command, so that the shell gets its prompt."""
    command = [*UNHANG, "--", *victim(ready, "")]
    # A group of its own in our session, as a shell's job: orphaned groups ignore Ctrl-Z.
    process = subprocess.Popen(command, preexec_fn=os.setpgrp)  # noqa: PLW1509 - no threads here
    try:
        child = int(ready.read_text())
        os.killpg(process.pid, signal.SIGTSTP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        while state_of(child) != "T":  # It stops when it is scheduled next.
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGCONT)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 143
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def parent_of(pid: int) -> int:
    """The process that started a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def state_of(pid: int) -> str:
    """The kernel's letter for a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_terminal_stays_a_terminal(tmp_path: Path) -> None:
    """The command sees the terminal that its user has, also where its output is kept."""
    for option in ([], ["--logs", "always"]):
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(tmp_path)
            text = "import os; print(os.isatty(0), os.isatty(1), os.get_terminal_size().columns)"
            os.execv(sys.executable, [*UNHANG, *option, "--", *script(text)])  # noqa: S606 - same
        shown = b""
        try:
            while data := os.read(terminal, 1024):
                shown += data
        except OSError:  # EIO, as above
            pass
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert shown.startswith(b"True True ")
        assert shown.endswith(b"\r\n")


def test_a_daemon_keeps_its_output_and_the_wrapper_returns(tmp_path: Path) -> None:
    """A command that leaves a daemon behind ends at once; what the daemon prints still arrives."""
    go = tmp_path / "go"
    os.mkfifo(go)
    text = (
        "import os, sys\n"
        "if os.fork(): print('parent', flush=True); os._exit(3)\n"
        "os.setsid()\n"
        f"open({str(go)!r}).read()\n"
        "print('daemon', flush=True)"
    )
    with subprocess.Popen([*UNHANG, "--", *script(text)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.wait(PATIENCE_S) == 3
        go.write_text("go")
        assert process.stdout.read() == b"parent\ndaemon\n"


def test_a_reader_that_goes_away_ends_the_command_as_without_us() -> None:
    """`unhang run -- yes | head -1`: the command gets SIGPIPE, not an endless pipe."""
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m unhang run -- yes | head -1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout == b"y\n141\n"


def test_descriptors_of_the_shell_are_inherited(tmp_path: Path) -> None:
    """`unhang run -- cmd 3>file` works."""
    target = tmp_path / "three"
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m unhang run -- sh -c 'echo three >&3' 3>{target}"],
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert (done.stdout, target.read_text()) == (b"", "three\n")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["no-such-launcher", "x"], 127, b"command not found: no-such-launcher"),
        (["/etc/passwd"], 126, b"cannot run /etc/passwd"),
        ([], 2, b"no command to run"),
    ],
)
def test_a_command_that_cannot_start_is_said_in_a_sentence(
    words: list[str], code: int, sentence: bytes
) -> None:
    """Exit codes are a shell's; there is a hint and no traceback."""
    done = run(*words)
    assert done.returncode == code
    assert sentence in done.stderr
    assert b"hint: " in done.stderr
    assert b"Traceback" not in done.stderr


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """A healthy command leaves no directory, neither here nor among the runtime files."""
    runtime = tmp_path / "runtime"
    work = tmp_path / "work"
    work.mkdir()
    env = {**os.environ, "UNHANG_RUNTIME_DIR": str(runtime)}
    assert run("true", cwd=work, env=env).returncode == 0
    assert list(work.iterdir()) == []
    assert list(runtime.rglob("*")) == []


def test_dry_run_prints_and_does_nothing(tmp_path: Path) -> None:
    """--dry-run shows the environment and what is the user's own; the command does not run."""
    env = {**os.environ, "TORCH_NCCL_TRACE_BUFFER_SIZE": "77", "UNHANG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        [*UNHANG, "--dry-run", "--", "touch", str(tmp_path / "ran")],
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
        env=env,
    )
    assert b"yours: TORCH_NCCL_TRACE_BUFFER_SIZE=77" in done.stderr
    assert b"set:   UNHANG_JOB=" in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert done.stdout == b""


def test_nothing_heavy_is_imported_before_the_command_runs() -> None:
    """Numpy and rich stay out of a wrapper that has nothing to judge."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "unhang", "run", "--", "true"],
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    modules = {line.rpartition(b"|")[2].strip() for line in done.stderr.splitlines()}
    assert b"unhang.run.child.supervisor" in modules
    assert not modules & {b"numpy", b"rich", b"duckdb", b"torch", b"dataclasses"}


def test_a_case_directory_is_checked_before_the_command_starts(tmp_path: Path) -> None:
    """Not empty, not writable, no directory: a sentence, exit code 2, and nothing ran."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    for place, sentence in (
        (tmp_path / "full", b"is not empty"),
        (tmp_path / "full" / "mine", b"is not a directory"),
        (Path("/proc/case"), b"cannot write the case"),
    ):
        done = subprocess.run(
            [*UNHANG, "--case", str(place), "--", "touch", str(tmp_path / "ran")],
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 2
        assert sentence in done.stderr
        assert b"hint: " in done.stderr
    assert not (tmp_path / "ran").exists()


def test_two_runs_cannot_have_one_case_directory(ready: Path, tmp_path: Path) -> None:
    """The second is refused while the first runs; unused, the directory goes away again."""
    case = tmp_path / "case"
    first = [*UNHANG, "--case", str(case), "--job", "one", "--", *victim(ready, "")]
    with subprocess.Popen(first) as process:
        ready.read_text()
        done = subprocess.run(
            [*UNHANG, "--case", str(case), "--job", "two", "--", "true"],
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 143
    assert done.returncode == 2
    assert b"belongs to another run" in done.stderr
    assert not case.exists()
