"""Get the stacks out of a core: pystack, and gdb where pystack cannot.

Each program is bounded in time and in output. A core that neither can read still gives its signal
and its rank.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unhang.cores.elfcore import CoreFacts, is_core, read_facts
from unhang.errors import InputError
from unhang.model import Note, ProcessSample
from unhang.stacks.reading import parse_stacks

TIMEOUT_S = 120.0
MAX_FILES = 4_096


@dataclass(frozen=True, slots=True)
class CoreReading:
    """One core: its own facts, its stacks (maybe none), and what went wrong reading them."""

    path: str
    facts: CoreFacts
    sample: ProcessSample
    notes: tuple[Note, ...] = ()


def find_cores(path: Path, without: Collection[Path] = ()) -> list[Path]:
    """The core itself, or all cores below a directory, but for some files.

    Raises:
        InputError: If the path does not exist, is no core, or holds none.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist", "Give core files or a directory of them.")
    if path.is_dir():
        files = [p for p in sorted(path.rglob("*"))[:MAX_FILES] if p not in without]
        found = [p for p in files if p.is_file() and is_core(p)]
        if not found:
            raise InputError(
                f"{path} holds no core file", "unhang doctor env says how to get cores."
            )
        return found
    if not is_core(path):
        raise InputError(f"{path} is not a core file", "Give the core, not the program or a log.")
    return [path]


def read_core(
    path: Path, executable: str | None = None, timeout_s: float = TIMEOUT_S
) -> CoreReading:
    """Read one core.

    Args:
        path: The core file.
        executable: The program that made it, where the core does not tell or it was moved.
        timeout_s: Limit for each program that reads it.

    Raises:
        InputError: If it is no core at all.
    """
    facts = read_facts(path)
    program = executable or facts.executable
    notes: list[Note] = []
    if program and not Path(program).exists():
        notes.append(
            Note(
                "warning",
                str(path),
                f"its program {program} does not exist here: give it with --exe",
            )
        )
        program = ""
    sample = ProcessSample(rank=facts.rank, host="", pid=facts.pid, command=facts.arguments)
    for command in _commands(path, program):
        text, error = _output(command, timeout_s)
        found = parse_stacks(text, str(path)).samples if text else ()
        if found and found[0].threads:
            tool = found[0].tool
            sample = replace(sample, threads=found[0].threads, tool=tool)
            break
        notes.append(Note("info", str(path), f"{command[0]} gave no stack: {error or 'no frames'}"))
    else:
        notes.append(Note("error", str(path), "unhang could not read a stack from this core"))
        sample = replace(sample, error="unhang could not read a stack")
    return CoreReading(str(path), facts, sample, tuple(notes))


def _commands(path: Path, program: str) -> list[list[str]]:
    """What to try, best first. gdb loads no script, and asks no server for symbols."""
    commands = []
    pystack = _beside_python("pystack")
    if pystack:
        commands.append([pystack, "core", "--no-color", "--native-all", str(path)]
                        + ([program] if program else []))  # fmt: skip
    gdb = shutil.which("gdb")
    if gdb:
        quiet = ["-batch", "-nx", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off"]
        commands.append([gdb, *quiet, "-ex", "thread apply all bt 100", "--core", str(path)]
                        + ([program] if program else []))  # fmt: skip
    return commands


def _beside_python(name: str) -> str | None:
    """A program installed with us: next to the interpreter, else on PATH."""
    own = Path(sys.executable).with_name(name)
    return str(own) if own.exists() else shutil.which(name)


def _output(command: Sequence[str], timeout_s: float) -> tuple[bytes, str]:
    try:
        done = subprocess.run(  # noqa: S603 - a list of words, no shell
            command, capture_output=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return b"", f"no answer in {timeout_s:.0f} s"
    except OSError as error:
        return b"", str(error)
    last = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return done.stdout, last[-1] if last else ""
