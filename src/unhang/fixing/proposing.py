"""Which lines to change, tried by rehearsals: the first change that leaves no fault is proposed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

from unhang.fixing.patterns.exchanging import exchanged
from unhang.fixing.patterns.hoisting import hoisted
from unhang.fixing.patterns.reordering import reordered
from unhang.fixing.patterns.script import Patch, Script
from unhang.fixing.patterns.unevenness import joined
from unhang.model import Frame
from unhang.rehearse.commandline import RehearsedJob
from unhang.rehearse.rehearsal import rehearsed
from unhang.rehearse.wishes import RehearsalWishes
from unhang.report import Report, Site
from unhang.stacks.ownership import is_library
from unhang.wording import printable

_MOST_TRIES: Final = 4
"""Rehearsals of patched scripts: each takes as long as the first one."""
_NONE: Final = "no pattern with a mechanical change fits its lines"


@dataclass(frozen=True, slots=True)
class Proposal:
    """What came of looking for a fix.

    Attributes:
        report: The verdict on the script as it is.
        patch: A change whose rehearsal was clean; None for none.
        proof: What that rehearsal says.
        reasons: Why other changes are not proposed.
    """

    report: Report
    patch: Patch | None = None
    proof: str = ""
    reasons: tuple[str, ...] = ()


def proposed(job: RehearsedJob, wishes: RehearsalWishes, command: Sequence[str]) -> Proposal:
    """Rehearse a job, and look for a change after which all its calls meet.

    Raises:
        InputError: The ranks cannot be started.
    """
    with rehearsed(job, wishes, command) as (_, report, _place):
        pass
    if report.status != "problem":
        return Proposal(report)
    reasons: list[str] = []
    tries = 0
    for each in patches_for(report):
        if isinstance(each, str):
            reasons.append(each)
            continue
        if tries == _MOST_TRIES:
            break
        tries += 1
        patched = replace(wishes, instead={each.path: each.text})
        with rehearsed(job, patched, command) as (_, again, _place):
            pass
        if again.status == "healthy":
            return Proposal(report, each, again.summary, tuple(reasons))
        reasons.append(f"{each.why} A rehearsal of that says: {printable(again.summary)}")
    return Proposal(report, reasons=tuple(dict.fromkeys(reasons)) or (_NONE,))


def patches_for(report: Report) -> Iterator[Patch | str]:
    """Changes around the lines of a verdict, the surest first, and why others are not made."""
    seen = set()
    for file, sites in _files(report).items():
        script = _read(file)
        if isinstance(script, str):
            yield script
            continue
        lines = [site.line for site in sites]
        moved = (hoisted(script, line) for line in lines)
        loops = (joined(script, site.line, _of_others(site, sites)) for site in sites)
        for found in chain(*moved, *loops, reordered(script, lines), exchanged(script, lines)):
            text = found if isinstance(found, str) else found.text
            if text not in seen:
                seen.add(text)
                yield found


def _files(report: Report) -> dict[str, list[Site]]:
    """The user's files of the first cause, with its places; culprits' places stand first."""
    files: dict[str, list[Site]] = {}
    first = next(iter(report.causes), None)
    for site in sorted(first.sites if first else (), key=lambda site: site.role):
        if not is_library(Frame(site.function, site.file, site.line)):
            files.setdefault(site.file, []).append(site)
    return files


def _of_others(site: Site, sites: Sequence[Site]) -> list[int]:
    """The lines of ranks that do not wait at a place."""
    return [each.line for each in sites if not set(each.ranks) & set(site.ranks)]


def _read(file: str) -> Script | str:
    """A file as a script, or why it is none that can be changed."""
    name = printable(Path(file).name)
    try:
        text = Path(file).read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return f"{name} cannot be read"
    if "\r" in text:
        return f"{name} has line ends of another kind than newlines"
    try:
        return Script(file, text)
    except (SyntaxError, ValueError, RecursionError):
        return f"{name} is not Python that this version reads"


def difference(patch: Patch) -> str:
    """A unified diff that `git apply` and `patch -p1` take, in the directory `base_of` it."""
    before = Path(patch.path).read_bytes().decode()
    name = Path(patch.path).relative_to(base_of(patch)).as_posix()
    lines = difflib.unified_diff(_lines(before), _lines(patch.text), f"a/{name}", f"b/{name}")
    return "".join(each if each.endswith("\n") else f"{each}\n{_NO_END}" for each in lines)


def base_of(patch: Patch) -> Path:
    """The working directory, or the script's own where it lies outside of that."""
    path, here = Path(patch.path), Path.cwd()
    return here if path.is_relative_to(here) else path.parent


_NO_END: Final = "\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    *whole, last = text.split("\n")
    return [*(f"{line}\n" for line in whole), *([last] if last else [])]
