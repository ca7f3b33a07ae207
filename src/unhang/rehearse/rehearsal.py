"""A rehearsal from a job to a report: run it, write its end state down, let the analysis judge."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.casedir.manifest import create_case
from unhang.casedir.place import Place, place_in
from unhang.errors import InputError
from unhang.ingest import load
from unhang.model import Note
from unhang.rehearse.commandline import RehearsedJob
from unhang.rehearse.endstate import write_case
from unhang.rehearse.largejobs import folded, with_needed
from unhang.rehearse.matching.referee import Referee, RehearsalEnd
from unhang.rehearse.schedules import changes_since, keep_schedule, schedule_of
from unhang.rehearse.server import rehearse
from unhang.rehearse.verdict.proof import judged
from unhang.rehearse.wishes import RehearsalWishes
from unhang.report import Report

RANKS: Final = 4
"""Where nothing says how many: two rows and two columns of a mesh."""
_EVERY_S: Final = 5.0
SCHEDULE_NOTES: Final = "schedule"
"""The source of notes about what ranks call since a schedule was kept."""
_SAME: Final = "Every rank makes the same calls as in the kept schedule."


@contextmanager
def rehearsed(
    job: RehearsedJob, wishes: RehearsalWishes, command: Sequence[str]
) -> Iterator[tuple[Case, Report, Place]]:
    """Rehearse a job; the evidence is there as long as this is entered.

    Raises:
        InputError: The ranks cannot be started.
        OutputError: The case cannot be made.
    """
    with tempfile.TemporaryDirectory(prefix="unhang-rehearsal-") as scratch:
        named = wishes.case or Path(scratch) / "case"
        case = create_case(named.parent, "rehearsal", time.time(), named=named)
        outcome = _run(job, case, wishes)
        _check(outcome)
        write_case(outcome, case, command)
        world = None if outcome.referee.running else outcome.referee.world
        loaded = load([str(case)], world_size=world)
        report = judged(diagnose(loaded), outcome, wishes.steps, case / "logs")
        report = _with_schedule(report, outcome.referee, wishes)
        if wishes.case:
            yield loaded, report, place_in(case)
        else:
            yield loaded, _without_paths(report, case), Place()


def _with_schedule(report: Report, referee: Referee, wishes: RehearsalWishes) -> Report:
    """The report with what has changed in the ranks' calls; keep these where they all met."""
    if wishes.since is None and wishes.save is None:
        return report
    now = schedule_of(referee)
    said = [] if wishes.since is None else changes_since(wishes.since, now) or [_SAME]
    if wishes.save and report.status == "healthy":
        keep_schedule(now, wishes.save)
    elif wishes.save:
        said.append(f"{wishes.save} is not written: only a schedule whose calls all meet is kept.")
    notes = (Note("info", SCHEDULE_NOTES, text) for text in said)
    return replace(report, notes=(*report.notes, *notes))


def _without_paths(report: Report, case: Path) -> Report:
    """What is said of files that are gone at the end names them by rank alone."""
    gone = f"{case}{os.sep}"

    def without(lines: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(line.replace(gone, "") for line in lines)

    findings = (
        replace(f, evidence=without(f.evidence), actions=without(f.actions))
        for f in report.findings
    )
    return replace(report, findings=tuple(findings))


def _run(job: RehearsedJob, case: Path, wishes: RehearsalWishes) -> RehearsalEnd:
    """Run it; a script that neither starts ranks nor was started as one gets ranks."""
    job = folded(job)
    outcome = _once(job, case, wishes)
    while outcome.referee.encounters.lacking:
        job = with_needed(job, outcome.referee.encounters.lacking)
        outcome = _again(job, case, wishes)
    if job.ranks or outcome.referee.world > 1:
        return outcome
    return _again(replace(job, ranks=RANKS), case, wishes)


def _again(job: RehearsedJob, case: Path, wishes: RehearsalWishes) -> RehearsalEnd:
    for log in (case / "logs").iterdir():
        log.unlink()
    return _once(job, case, wishes)


def _check(outcome: RehearsalEnd) -> None:
    """A script that makes no group has nothing to match."""
    ranks = outcome.referee.ranks.values()
    if outcome.end == "over" and not any(p.groups or p.code for p in ranks):
        raise InputError(
            "no rank made a process group: there are no calls to match",
            "The script has to call torch.distributed.init_process_group.",
        )


def _once(job: RehearsedJob, case: Path, wishes: RehearsalWishes) -> RehearsalEnd:
    shared = Path("/dev/shm")  # noqa: S108 - memory; the name in it is chosen by mkdtemp
    root = shared if shared.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="unhang-", dir=root))
    try:
        return rehearse(job, folder, case / "logs", wishes, _progress())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")


def _progress() -> Callable[[Referee, float], None]:
    """Say on stderr how far it is, on a terminal."""
    last = 0.0

    def show(referee: Referee, seconds: float) -> None:
        nonlocal last
        if seconds - last < _EVERY_S or not sys.stderr.isatty():
            return
        last = seconds
        ranks = referee.ranks.values()
        waiting = sum(bool(p.waits) for p in ranks)
        text = f"{referee.calls():,} calls, {waiting} of {referee.size} ranks wait, {seconds:.0f} s"
        sys.stderr.write(f"\r\033[Krehearsing: {text}")
        sys.stderr.flush()

    return show
