"""Asking a cluster's own tool a question, and reading lists of hosts."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from unhang.errors import InputError, ToolError, UsageError

_ASK_S = 30.0
_HOST = re.compile(r"(?:[\w.-]+@)?[A-Za-z0-9_\[][\w.:%\]-]{0,253}")
_RANGE = re.compile(r"\[([\d,-]+)\](?=[^\[]*$)")
_MOST_HOSTS = 100_000


def require(program: str, hint: str) -> str:
    """Path of a program.

    Raises:
        ToolError: It is not installed here.
    """
    found = shutil.which(program)
    if found is None:
        raise ToolError(f"{program} is not installed here", hint)
    return found


def ask_tool(command: Sequence[str], hint: str) -> str:
    """Standard output of a cluster's tool.

    Raises:
        ToolError: It is absent, fails or does not answer; with its own words.
    """
    require(command[0], hint)
    try:
        done = subprocess.run(  # noqa: S603 - a program and words of ours
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{command[0]} did not answer within {_ASK_S:g} s", hint) from error
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise ToolError(f"{command[0]}: {words[-1] if words else done.returncode}", hint)
    return done.stdout


def check_host(name: str) -> str:
    """A host's name that cannot be mistaken for an option.

    Raises:
        UsageError: It is none.
    """
    if not _HOST.fullmatch(name):
        raise UsageError(f"{name[:100]!r} is not a host", "Give names as in: --hosts node01,node02")
    return name


def hosts_of(text: str) -> list[str]:
    """Hosts of "node01,node02", "node[01-04,7]" or "user@node01", each once.

    Raises:
        UsageError: It is no such list.
    """
    found: list[str] = []
    for word in re.split(r",(?![^\[]*\])", text):
        found += _expanded(word.strip())
        if len(found) > _MOST_HOSTS:
            raise UsageError("too many hosts", f"{_MOST_HOSTS:,} are allowed.")
    if not found:
        raise UsageError("no host named", "For example: --hosts node01,node02")
    return list(dict.fromkeys(check_host(host) for host in found))


def _expanded(word: str) -> list[str]:
    """The hosts of "node[01-03,7]" (zeros are kept); a plain name as it is."""
    found = _RANGE.search(word)
    if not found or ":" in word:
        return [word]
    numbers: list[str] = []
    for part in found[1].split(","):
        first, dash, last = part.partition("-")
        if not dash:
            numbers.append(first)
        elif first and last and int(last) - int(first) in range(_MOST_HOSTS):
            numbers += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
        else:
            raise UsageError(f"{word[:100]!r} is not a range of hosts", "For example: node[01-16]")
    return [word[: found.start()] + number + word[found.end() :] for number in numbers]


def read_host_file(path: Path) -> list[str]:
    """Hosts of a file as MPI and DeepSpeed have them: "node01 slots=8", "node02:8", "# …".

    Raises:
        InputError: It cannot be read.
        UsageError: It names no host.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        hint = "Name a file with one host a line, as mpirun --hostfile has it."
        raise InputError(f"{path} cannot be read: {error.strerror}", hint) from error
    words = [line.partition("#")[0].split() for line in lines]
    names = [re.sub(r":\d+$", "", row[0]) for row in words if row]
    if not names:
        raise UsageError(f"{path} names no host", "One host a line, as mpirun --hostfile has it.")
    return list(dict.fromkeys(check_host(name) for name in names))
