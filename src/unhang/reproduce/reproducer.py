"""A reproducer from a case: the verdict that it has to keep, the programs, and the script."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from unhang._version import __version__
from unhang.analysis import diagnose
from unhang.case import Case
from unhang.errors import NoEvidenceError
from unhang.report import Finding, Report
from unhang.reproduce.playing import Judgement, judgement_of, judgement_of_played
from unhang.reproduce.schedule import Programs, of_few_elements, of_one_size, programs_of, ways_of
from unhang.reproduce.scripting import ranks_of_job, script_of
from unhang.reproduce.shrinking import shrunk

_HINT: Final = "unhang diagnose shows what it is; a hang outside of calls has no reproducer."


@dataclass(frozen=True, slots=True)
class Reproducer:
    """The smallest programs that get the verdict of a case.

    Attributes:
        wanted: That verdict.
        summary: In the words of the case's report.
        calls, ranks: How many the case had.
    """

    programs: Programs
    wanted: Judgement
    summary: str
    calls: int
    ranks: int


def reproducer_of(case: Case) -> Reproducer:
    """Find it.

    Raises:
        NoEvidenceError: The verdict of the case is not one that calls show, or the calls that it
            holds do not lead to it when they are played.
    """
    report = diagnose(case)
    whole = programs_of(case)
    wanted = judgement_of(report)
    if wanted is None:
        raise NoEvidenceError(f"there is nothing to reproduce: {report.summary}", _HINT)
    ways = (way for way in ways_of(whole) if judgement_of_played(way) == wanted)
    whole = next(ways, Programs((), {}, ()))
    if not whole.names:
        raise NoEvidenceError(
            f"the calls alone do not reproduce this verdict: {report.summary}",
            "Calls before the dumps' windows, waits or values decide it: rehearse the program.",
        )
    small = shrunk(whole, lambda some: judgement_of_played(some) == wanted, _spare(report, whole))
    if all(move.frame for made in small.moves.values() for move in made):  # lines tell calls apart
        lighter = (of_one_size(small), of_few_elements(small))
        small = next((each for each in lighter if judgement_of_played(each) == wanted), small)
    return Reproducer(small, wanted, report.summary, whole.size, len(whole.names))


def _spare(report: Report, programs: Programs) -> list[int]:
    """Ranks that may go: all but the culprits."""
    first: Finding = report.causes[0]
    return [rank for rank in programs.names if rank not in first.culprits]


def text_of(found: Reproducer, how: str, name: str) -> str:
    """The script with its header.

    Args:
        found: What it is to do.
        how: As it was tried: "gloo", "error" or "rehearsal"; "" for not at all.
        name: Its file's name.

    Raises:
        InputError: A call cannot be written.
    """
    programs = found.programs
    command = f"torchrun --nproc-per-node {len(programs.names)} {name}"
    shown = {
        "gloo": f"Hangs: {command}",
        "error": f"Gloo ends it by an error where NCCL hangs, with the same verdict: {command}",
        "rehearsal": f"Gloo does not hang here as NCCL does: unhang rehearse -- {command}",
        "": f"Not tried. It should hang: {command}",
    }[how]
    header = (
        f"{found.wanted.code} {found.wanted.slug}: {found.summary}",
        f"Reproducer by unhang {__version__}{_torch()}: {_count(found)}.",
        ranks_of_job(programs),
        shown,
    )
    return script_of(programs, [line for line in header if line])


def _count(found: Reproducer) -> str:
    programs = found.programs
    return (
        f"{programs.size} of {found.calls:,} calls, {len(programs.names)} of {found.ranks:,} ranks"
    )


def _torch() -> str:
    try:
        return f", torch {version('torch')}"
    except PackageNotFoundError:
        return ""
