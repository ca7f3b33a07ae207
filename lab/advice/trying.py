"""Does what is advised run? Every command that any report of the corpus advises, as it is printed.

A case is made, judged, and each command of its `next` is run on it, in this process: exit code 0
and something shown, but no second verdict, or it has failed. Commands that look at what runs now
(`stacks --pid`, `doctor`) find nothing of a job that is over: of these the parser must take the
words.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from lab.simulate.corpus import CaseSpec
from lab.simulate.writing import simulate
from unhang.cli.main import build_parser, main
from unhang.report import Status

_NAMES: Final = re.compile(r"(?<==)\S+|(?<=--hosts )\S+|(?<=--group )\S+|[0-9a-f]{16,}|\d+")


@dataclass(frozen=True, slots=True)
class Tried:
    """One command.

    Attributes:
        shape: The command without numbers, names and its case.
        failure: Why it did not do what it should; "" if it did.
    """

    case: str
    command: str
    shape: str
    failure: str


def shape_of(command: str, folder: Path) -> str:
    """What is left of a command where numbers, names and the case are taken out."""
    return _NAMES.sub("N", command.replace(str(folder), "CASE"))


def advised(folder: Path) -> list[str]:
    """The commands that the verdict about a folder advises."""
    _, said, _ = _run(["diagnose", str(folder), "--format", "json"])
    return [step["command"] for step in json.loads(said)["next"]] if said else []


def try_spec(spec: CaseSpec) -> list[Tried]:
    """Make a case of the corpus, judge it, and run what is advised."""
    with tempfile.TemporaryDirectory(prefix="unhang-lab-") as folder:
        simulate(spec, Path(folder) / "job")
        return list(try_folder(spec.name, Path(folder) / "job" / "dumps"))


def try_archive(path: Path) -> list[Tried]:
    """The same for a case that is packed."""
    with tempfile.TemporaryDirectory(prefix="unhang-lab-") as folder:
        with tarfile.open(path) as packed:
            packed.extractall(folder, filter="data")
        return list(try_folder(f"{path.parent.name}/{path.name}", Path(folder)))


def try_folder(name: str, folder: Path) -> Iterator[Tried]:
    """Run what is advised about a folder."""
    for command in advised(folder):
        yield Tried(name, command, shape_of(command, folder), _failure(command))


def _failure(command: str) -> str:
    program, *words = shlex.split(command)
    if program != "unhang":
        return "it is not ours"
    if _looks_at_what_runs(words):
        return _refusal(words)
    code, said, complaint = _run(words)
    if code or not said.strip():
        return f"exit code {code}: {complaint.strip() or 'nothing was shown'}"
    if said.split(maxsplit=1)[0].lower() in get_args(Status):
        return "it gives a verdict of its own"
    return ""


def _looks_at_what_runs(words: Sequence[str]) -> bool:
    return words[0] in ("doctor", "collect") or (
        words[0] == "stacks" and not Path(words[-1]).exists()
    )


def _refusal(words: Sequence[str]) -> str:
    """Why the parser does not take the words of a command; "" if it does."""
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            build_parser(only=words[0]).parse_args(words)
    except SystemExit:
        return complaint.getvalue().strip()
    return ""


def _run(words: Sequence[str]) -> tuple[int, str, str]:
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as refused:
            code = int(refused.code or 0)
    out.seek(0)
    return code, out.read(), err.getvalue()
