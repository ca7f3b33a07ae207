"""`unhang` alone: what lies in this directory and runs on this node, each with the command for it.

It looks and judges nothing: cases by their saved reports, files by how they begin, ranks by the
marks of our recorder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from unhang.casedir.reports import is_case
from unhang.cli.shared.case_paths import CASES
from unhang.incoming import value_in
from unhang.regular import open_regular
from unhang.wording import count_of, printable, shell_word

if TYPE_CHECKING:
    from unhang.run.watching.now import JobNow

_MOST_FILES: Final = 512
_HEAD: Final = 4_096
_MOST_REPORT: Final = 16 << 20
_LONG_S: Final = 60.0
"""A job that is quiet for less than a minute may be in a long step."""


class OnHand(NamedTuple):
    """Something that is here, and the command that helps with it."""

    what: str
    command: str


def what_is_here() -> list[OnHand]:
    """All that is here, the most urgent first."""
    here = Path()
    whole = [OnHand("this directory is a case", "unhang diagnose .")] if is_case(here) else []
    return [*_jobs(), *whole, *_cases(CASES), *_files(here)]


def _jobs() -> Iterator[OnHand]:
    """Jobs with ranks of ours, those that stand still first."""
    from unhang.run.watching.now import Looker

    with suppress(OSError):
        jobs = [job for job in Looker().look() if any(rank.alive for rank in job.ranks)]
        for job in sorted(jobs, key=lambda job: -_quiet_s(job)):
            yield _of_job(job, alone=len(jobs) == 1)


def _quiet_s(job: JobNow) -> float:
    """For how long no rank has given a sign; 0 where nothing tells."""
    known = [rank.quiet_s for rank in job.ranks if rank.alive and rank.quiet_s is not None]
    return min(known, default=0.0)


def _of_job(job: JobNow, *, alone: bool) -> OnHand:
    ranks = count_of(sum(rank.alive for rank in job.ranks), "rank")
    name = f"job {printable(job.job, 60)}" if job.job else "a job without a name"
    choose = "" if alone or not job.job else f" --job {shell_word(job.job)}"
    quiet = _quiet_s(job)
    if quiet < _LONG_S:
        return OnHand(f"{name} runs here, {ranks}", f"unhang top{choose}")
    still = count_of(int(quiet // 60), "minute")
    return OnHand(
        f"{name} has made no progress for {still}, {ranks} here", f"unhang stacks{choose}"
    )


def _cases(root: Path) -> Iterator[OnHand]:
    """The newest case, by the report in it, and how many there are."""
    found = sorted(
        (path for path in (root.iterdir() if root.is_dir() else ()) if path.is_dir()),
        key=lambda path: (path.stat().st_mtime_ns, path.name),
    )
    if not found:
        return
    newest = found[-1]
    age_s = max(time.time() - newest.stat().st_mtime, 0.0)
    age = f"{age_s / 3600:,.0f} hours" if age_s >= 2 * 3600 else f"{age_s / 60:,.0f} minutes"
    where = printable(str(newest))
    yield OnHand(f"{where}, {age} old: {_verdict(newest)}", f"unhang diagnose {shell_word(where)}")
    if len(found) > 1:
        yield OnHand(f"{count_of(len(found), 'case')} under {root}", "unhang history")


def _verdict(case: Path) -> str:
    with suppress(KeyError, TypeError):
        report = value_in(case / "report.json", _MOST_REPORT)
        return f"{printable(report['status']).upper()}  {printable(report['summary'], 160)}"
    return "not judged yet"


def _files(folder: Path) -> Iterator[OnHand]:
    """Dumps, core files and logs in a directory."""
    from unhang.ingest.discover.sniff import FileKind, kind_of

    counts = {"dump": 0, "core file": 0, "log": 0}
    last = dict.fromkeys(counts, "")
    with suppress(OSError):
        for path in islice(sorted(folder.iterdir()), _MOST_FILES):
            with suppress(OSError), open_regular(path) as file:
                head = file.read(_HEAD)
                is_log = path.suffix in (".log", ".out", ".err") and head
                kind = (
                    "dump" if kind_of(head) is FileKind.PICKLE
                    else "core file" if head.startswith(b"\x7fELF") and "core" in path.name
                    else "log" if is_log
                    else ""
                )  # fmt: skip
                if kind:
                    counts[kind] += 1
                    last[kind] = shell_word(str(path))
    commands = {"dump": "unhang diagnose .", "core file": f"unhang core {last['core file']}"}
    commands["log"] = f"unhang logs {last['log'] if counts['log'] == 1 else '.'}"
    for kind, count in counts.items():
        if count:
            yield OnHand(f"{count_of(count, kind)} here", commands[kind])
