"""What a user types to start a job, as a script, its words and a number of ranks."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from unhang.errors import UsageError

MOST_RANKS: Final = 64
"""Every rank is a process with torch in it, of some 25 MB. Of more, some stand for all."""
MOST_FOLDED: Final = 16_384
"""Each rank that runs keeps lists of all of them."""

_LAUNCHERS: Final = ("torch.distributed.run", "torch.distributed.launch")
_FLAGS: Final = frozenset(
    {"--standalone", "--no-python", "--no_python", "--run-path", "--run_path", "-m", "--module"}
    | {"--use-env", "--use_env", "--virtual-local-rank"}
)
_HINT: Final = "For example: -- torchrun --nproc-per-node 4 train.py"
"""What any command that rehearses a job is given."""


@dataclass(frozen=True, slots=True)
class RehearsedJob:
    """A job to be rehearsed.

    Attributes:
        python: The interpreter that runs the ranks.
        script: A file, or with `is_module` a module.
        words: What follows it.
        ranks: How many; 0 where the command does not tell: the script may start its ranks itself.
        nodes: On how many nodes.
        running: Which of the ranks run, where some stand for all; empty for all.
    """

    python: str
    script: str
    words: tuple[str, ...] = ()
    is_module: bool = False
    ranks: int = 0
    nodes: int = 1
    running: tuple[int, ...] = ()


def job_of(command: Sequence[str], ranks: int | None, nodes: int | None) -> RehearsedJob:
    """Read a command line.

    Args:
        command: As the user types it.
        ranks: What --ranks says, which stands above what the command says.
        nodes: What --nodes says.

    Raises:
        UsageError: It starts no job that could be rehearsed.
    """
    job = _read(command)
    count = ranks or job.ranks
    large = count > MOST_RANKS and count % _AUTO == 0 and job.nodes == 1
    nodes = nodes or (count // _AUTO if large else job.nodes)
    job = replace(job, ranks=count, nodes=nodes)
    if not 0 <= job.ranks <= MOST_FOLDED:
        raise UsageError(
            f"{job.ranks:,} ranks are too many to rehearse",
            f"--ranks takes 2 to {MOST_FOLDED:,}; most faults show with 4 or 8.",
        )
    if job.ranks % nodes:
        raise UsageError(f"{job.ranks} ranks do not share out to {nodes} nodes")
    if not job.is_module and not Path(job.script).is_file():
        raise UsageError(f"there is no script {job.script}", _HINT)
    return job


def _read(command: Sequence[str]) -> RehearsedJob:
    words = list(command)
    if not words:
        raise UsageError("there is no command to rehearse", _HINT)
    name = Path(words[0]).name
    if name == "torchrun":
        return _launched(_beside(words[0]), words[1:])
    if not name.startswith("python"):
        raise UsageError(
            f"{name} is no launcher that can be rehearsed",
            "Rehearsed are torchrun, python -m torch.distributed.run, and python with a script.",
        )
    python = shutil.which(words[0]) or words[0]
    return _plain(python, words[1:])


def _plain(python: str, words: list[str]) -> RehearsedJob:
    """`python [options] script words`."""
    while words and words[0].startswith("-") and words[0] not in ("-m", "-c"):
        words = words[2:] if words[0] in ("-X", "-W") else words[1:]
    if not words or words[0] == "-c":
        raise UsageError("there is no script to rehearse", _HINT)
    if words[0] != "-m":
        return RehearsedJob(python, words[0], tuple(words[1:]))
    if len(words) < 2:  # noqa: PLR2004 - -m and a module
        raise UsageError("-m needs a module", _HINT)
    if words[1] in _LAUNCHERS:
        return _launched(python, words[2:])
    return RehearsedJob(python, words[1], tuple(words[2:]), is_module=True)


def _launched(python: str, words: list[str]) -> RehearsedJob:
    """The words of torchrun."""
    options: dict[str, str] = {}
    is_module = False
    while words and words[0].startswith("-"):
        name, equals, value = words.pop(0).partition("=")
        is_module |= name in ("-m", "--module")
        if name in _FLAGS:
            continue
        if not equals:
            value = words.pop(0) if words else ""
        options[name.replace("_", "-")] = value
    if not words:
        raise UsageError("torchrun is given no script", _HINT)
    per_node = _number("--nproc-per-node", options, _AUTO)
    nodes = _number("--nnodes", options, 1)
    return RehearsedJob(python, words[0], tuple(words[1:]), is_module, per_node * nodes, nodes)


_AUTO: Final = 8
"""Ranks of a node where torchrun counts its GPUs: there are none here."""


def _number(option: str, options: Mapping[str, str], default: int) -> int:
    """A number, 1 where there is none, or the larger end of a range of nodes; words: a default."""
    last = options.get(option, "1").rpartition(":")[2]
    if last.isdecimal() and not int(last):
        raise UsageError(f"{option} 0 starts no rank", _HINT)
    return int(last) if last.isdecimal() else default


def _beside(torchrun: str) -> str:
    """The interpreter to which a torchrun belongs."""
    found = shutil.which(torchrun)
    if found is None:
        return sys.executable
    first = Path(found).read_bytes()[:256].split(b"\n")[0].decode("utf-8", "replace")
    named = first.removeprefix("#!").split() if first.startswith("#!") else []
    if named and Path(named[0]).name == "env":
        named = [shutil.which(named[-1]) or ""]
    # A wrapper in shell tells of no interpreter; one may lie next to it.
    for python in (*named[:1], str(Path(found).with_name("python"))):
        if Path(python).name.startswith("python") and os.access(python, os.X_OK):
            return python
    return sys.executable
