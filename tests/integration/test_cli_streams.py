"""Every command with its output full, closed or unread: a sentence or a quiet end, no traceback."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from unhang.cli.main import COMMANDS

EXAMPLE = Path(__file__).parents[2] / "examples" / "healthy" / "dumps"

WORDS = {
    "diagnose": f"{EXAMPLE}",
    "entries": f"{EXAMPLE}",
    "query": f"{EXAMPLE} 'SELECT 1'",
    "explain": "UH101",
    "run": "--dry-run -- true",
    "dump": "--list",
    "stacks": "saved.txt",
    "collect": "--redact nowhere --case case",
    "reduce": f"{EXAMPLE} -o -",
    "doctor": "gpu",  # env's warnings depend on what else runs
    "logs": "job.log",
    "paste": "job.log",
    "rehearse": "--ranks 2 -- nowhere",
    "fix": "--ranks 2 -- nowhere",
    "reproduce": f"{EXAMPLE} -o repro.py",
    "core": "job.log",
    "trace": "--show job.log",
    "demo": "--replay",
    "numerics": "check.py:build --on cpu --on cpu",
    "attach": "1",
    "completion": "bash",
    "serve": "nowhere",
    "top": "--once --every 0.1 nowhere",
    "history": f"{EXAMPLE}",
    "mcp": "< /dev/null",
}
"""Each command with arguments that let it end by itself; it is its output that matters here."""

SILENT = {
    "run", "dump", "collect", "core", "trace", "attach", "numerics", "stacks", "serve", "mcp",
    "rehearse", "reproduce", "fix", "top",
}  # fmt: skip
"""Those that write nothing to stdout with these arguments: what they do is on stderr, or fails."""


def furnished(place: Path) -> Path:
    """A working directory with what the arguments name."""
    (place / "job.log").write_text("[rank0]: ValueError: no labels\n")
    (place / "saved.txt").write_text("nothing\n")
    return place


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory of one test."""
    return furnished(tmp_path)


Usual = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Usual:
    """What a command says and how it ends where its output can be written: each is run once."""

    @cache
    def said(name: str) -> subprocess.CompletedProcess[str]:
        return unhang(furnished(tmp_path_factory.mktemp(name)), f"{name} {WORDS[name]}", "")

    return said


def unhang(
    place: Path, words: str, streams: str, *, unbuffered: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command line with its streams as a shell would set them."""
    line = f"set -o pipefail; {sys.executable} -m unhang {words} {streams}"
    env = {**os.environ, "UNHANG_RUNTIME_DIR": str(place / "runtime")}
    env["PYTHONUNBUFFERED"] = "1" if unbuffered else ""
    return subprocess.run(
        ["bash", "-c", line],
        cwd=place,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=env,
    )


def test_every_command_is_here() -> None:
    """Also the one that somebody will add."""
    assert set(WORDS) == {entry.name for entry in COMMANDS}


@pytest.mark.parametrize("name", WORDS)
def test_output_that_cannot_be_written_is_said(place: Path, name: str, usual: Usual) -> None:
    """Full or closed, with and without a buffer between: exit code 2, or the command's own."""
    words = f"{name} {WORDS[name]}"
    for streams, unbuffered in ((">/dev/full", True), (">&-", False)):
        done = unhang(place, words, streams, unbuffered=unbuffered)
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        if name in SILENT:
            assert (usual(name).stdout, done.returncode) == ("", usual(name).returncode)
        else:
            assert done.returncode == 2
            assert "unhang: the output cannot be written: " in done.stderr
            assert "hint: " in done.stderr


@pytest.mark.parametrize("name", WORDS)
def test_what_cannot_be_said_changes_nothing(place: Path, name: str, usual: Usual) -> None:
    """Without stderr the same goes to stdout and the exit code is the same; nothing goes astray."""
    words = f"{name} {WORDS[name]}"
    done = unhang(place, words, "2>&-")
    assert (done.returncode, len(done.stdout)) == (usual(name).returncode, len(usual(name).stdout))
    nothing = unhang(place, words, ">&- 2>&- <&-")
    assert nothing.returncode == (usual(name).returncode if name in SILENT else 2)


@pytest.mark.parametrize("name", sorted(set(WORDS) - SILENT))
def test_a_reader_that_has_gone_is_met_quietly(place: Path, name: str) -> None:
    """Not a word on stderr, and the exit code of SIGPIPE."""
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "unhang", name, *shlex.split(WORDS[name])]
    done = subprocess.run(
        words, cwd=place, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert done.returncode == 128 + signal.SIGPIPE
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("words", ["--version", "--help", "diagnose --help", ""])
def test_help_is_output_too(place: Path, words: str) -> None:
    """Help that nobody got is not delivered, though argparse thinks so."""
    for unbuffered in (False, True):
        assert unhang(place, words, ">/dev/full", unbuffered=unbuffered).returncode == 2
    assert unhang(place, words, ">&-").returncode == 2


def test_a_command_gets_the_closed_streams_of_its_user(place: Path) -> None:
    """What `unhang run` holds open for itself is closed in the command, as without it."""
    look = 'import os; os.write(9, repr(sorted(os.listdir("/proc/self/fd"))).encode())'
    command = f"{sys.executable} -c '{look}'"
    seen = []
    for words in (command, f"{sys.executable} -m unhang run -- {command}"):
        subprocess.run(
            ["bash", "-c", f"{words} 9>seen >&- 2>&- <&-"],
            cwd=place,
            check=True,
            env={**os.environ, "UNHANG_RUNTIME_DIR": str(place / "runtime")},
        )
        seen.append((place / "seen").read_text())
    assert seen[0] == seen[1]
