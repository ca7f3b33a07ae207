"""Which files ranks print into by themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from unhang.run.watching.outputs import OwnFiles

WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What is closed at the end."""
    with ExitStack() as opened:
        yield opened


def rank(stack: ExitStack, out: Path, mode: str = "wb", err: Path | None = None) -> int:
    """The pid of a process that prints there."""
    stdout = stack.enter_context(out.open(mode))
    stderr = stack.enter_context(err.open(mode)) if err is not None else stdout
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT], stdin=subprocess.PIPE, stdout=stdout, stderr=stderr
    )
    stack.callback(process.wait)
    stack.callback(process.communicate, b"")
    return process.pid


def test_files_of_single_ranks_are_found(stack: ExitStack, tmp_path: Path) -> None:
    """Both streams in one file or each in its own; a file for several ranks tells none."""
    first, out, err, both = (tmp_path / name for name in ("0.log", "1.out", "1.err", "all.log"))
    outputs = OwnFiles()
    outputs.note([(0, rank(stack, first)), (1, rank(stack, out, err=err))])
    assert [(own.rank, own.path, own.start) for own in outputs.own()] == [
        (0, str(first), 0), (1, str(out), 0), (1, str(err), 0),
    ]  # fmt: skip
    outputs.note([(2, rank(stack, both, "ab")), (3, rank(stack, both, "ab"))])
    assert {own.rank for own in outputs.own()} == {0, 1}


def test_what_a_file_held_before_is_not_the_rank_s(stack: ExitStack, tmp_path: Path) -> None:
    """Where the rank's output is put behind it."""
    log = tmp_path / "0.log"
    log.write_text("Traceback of yesterday\n")
    outputs = OwnFiles()
    pid = rank(stack, log, "ab")
    outputs.note([(0, pid), (0, 999_999_999)])
    (own,) = outputs.own()
    assert own.start >= len("Traceback of yesterday\n")
    assert b"yesterday" not in log.read_bytes()[own.start :]


def test_files_outlive_their_ranks(tmp_path: Path) -> None:
    """A rank that has ended is not looked at again."""
    log, outputs = tmp_path / "0.log", OwnFiles()
    with ExitStack() as stack:
        pid = rank(stack, log)
        outputs.note([(0, pid)])
    outputs.note([(0, pid)])
    assert [own.path for own in outputs.own()] == [str(log)]
    log.rename(tmp_path / "0.log.1")
    log.write_text("of somebody else")
    assert outputs.own() == []


def test_a_script_that_turns_its_output_is_looked_at_again(tmp_path: Path) -> None:
    """It prints into a pipe at first, and then into a file."""
    log, outputs = tmp_path / "0.log", OwnFiles()
    script = f'echo begins; read line; exec >"{log}"; (echo turned >&2); read line'
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        outputs.note([(0, process.pid)])
        assert outputs.own() == []
        process.stdin.write(b"go on\n")
        process.stdin.flush()
        process.stderr.readline()
        outputs.note([(0, process.pid)])
        assert [own.path for own in outputs.own()] == [str(log)]
        process.communicate(b"end\n")
