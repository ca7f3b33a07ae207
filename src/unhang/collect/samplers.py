"""The programs that look at a stack from outside: py-spy, pystack, gdb. One class of value each.

A sampler is a command line and the reader of what it prints; which ones are tried, and in what
order, depends on the process (a stopped one must not be stopped again) and on whether native frames
are wanted. Nothing is installed or imported: they are programs.

py-spy is asked not to pause the process first. Pausing means SIGSTOP by ptrace, which can end a
blocking system call early (EINTR, see signal(7)) and so destroy the hang that is looked at.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from unhang.collect.processes import Process
from unhang.model import ProcessSample
from unhang.stacks.formats import gdb, pyspy, pystacks

_MAX_OUTPUT = 64 << 20
_DENIED = re.compile(r"permission denied|not permitted|EPERM", re.IGNORECASE)
_GONE = re.compile(
    r"no such (file|process)|process executable name|does not exist|ESRCH", re.IGNORECASE
)
_NOT_PYTHON = re.compile(
    r"find python version|determine python version|not a python", re.IGNORECASE
)


class Sampler(NamedTuple):
    """A program that prints the stacks of a process.

    Attributes:
        tool: Its name.
        program: Path of the program.
        arguments: What comes before the process id.
        after: What comes after it.
        parse: Reader of what it prints.
    """

    tool: str
    program: str
    arguments: tuple[str, ...]
    parse: Callable[[str], list[ProcessSample]]
    after: tuple[str, ...] = ()

    def command(self, pid: int) -> list[str]:
        """The command line for one process."""
        return [self.program, *self.arguments, str(pid), *self.after]


class SampleTry(NamedTuple):
    """What came of one try.

    Attributes:
        sample: The stacks, or None.
        problem: "denied", "gone", "not-python", "timeout", "absent" or "failed"; "" with a sample.
        text: The sampler's own words about the problem, one line.
    """

    sample: ProcessSample | None
    problem: str = ""
    text: str = ""


@cache
def find_program(name: str) -> str:
    """Path of a program next to this interpreter (a virtual environment) or in PATH; "" if none."""
    beside = Path(sys.executable).parent / name
    if beside.is_file() and os.access(beside, os.X_OK):
        return str(beside)
    return shutil.which(name) or ""


def samplers_for(process: Process, *, native: bool) -> Iterator[Sampler]:
    """The samplers to try on a process, best first.

    A process that is stopped, or inside an uninterruptible call, would not answer a request to
    stop: only samplers that read its memory from aside are tried there.
    """
    held = process.state in ("T", "t", "D")
    if py_spy := find_program("py-spy"):
        quiet = Sampler(
            "py-spy", py_spy, ("dump", "--json", "--nonblocking", "--pid"), pyspy.parse_json
        )
        loud = ("dump", "--json", *(["--native"] if native else []), "--pid")
        if not (native and not held):
            yield quiet
        if not held:
            yield Sampler("py-spy", py_spy, loud, pyspy.parse_json)
        if native and not held:
            yield quiet
    if pystack := find_program("pystack"):
        how = ("--no-block",) if held else ("--native",) if native else ()
        yield Sampler("pystack", pystack, ("remote", *how), pystacks.parse)
    if native and not held and (program := find_program("gdb")):
        yield Sampler(
            "gdb", program, ("-batch", "-nx", "-p"), gdb.parse, ("-ex", "thread apply all bt")
        )


def run_sampler(sampler: Sampler, pid: int, timeout_s: float) -> SampleTry:
    """Look once at a process; never raises for what the process or the sampler does."""
    try:
        child = subprocess.Popen(  # noqa: S603 - a program found in PATH, an integer as argument
            sampler.command(pid),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "NO_COLOR": "1", "RUST_BACKTRACE": "0", "DEBUGINFOD_URLS": ""},
        )
    except OSError as error:
        return SampleTry(None, "absent", f"{sampler.tool} cannot be started: {error.strerror}")
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end(child)
        return SampleTry(None, "timeout", f"{sampler.tool} did not answer within {timeout_s:g} s")
    return _answer(sampler, out[:_MAX_OUTPUT], err, child.returncode)


def _end(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


def _answer(sampler: Sampler, out: bytes, err: bytes, code: int) -> SampleTry:
    text = out.decode("utf-8", "replace")
    try:
        samples = sampler.parse(text) if text.strip() else []
    except ValueError as error:
        return SampleTry(None, "failed", f"{sampler.tool} gave no readable answer: {error}")
    sample = next((s for s in samples if s.threads), None)
    if sample is not None:
        return SampleTry(sample)
    complaint = f"{text}\n{err.decode('utf-8', 'replace')}"
    return SampleTry(None, _problem(complaint), _first_line(sampler.tool, complaint, code))


def _problem(complaint: str) -> str:
    for problem, pattern in (("denied", _DENIED), ("not-python", _NOT_PYTHON), ("gone", _GONE)):
        if pattern.search(complaint):
            return problem
    return "failed"


def _first_line(tool: str, complaint: str, code: int) -> str:
    lines = (line.strip(" 💀\t") for line in complaint.splitlines())
    first = next((line for line in lines if line and "WARNING" not in line), f"exit code {code}")
    return f"{tool}: {first.removeprefix('Error: ')}"[:300]
