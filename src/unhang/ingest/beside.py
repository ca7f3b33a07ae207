"""The evidence next to the dumps: stacks, logs, traces, cores, reports, the manifest of a case.

Each has a reader of its own elsewhere; this only hands them their files, and reads of the manifest
what the dumps cannot say: how many ranks were expected, and how slow one was seen to be.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.casedir.contents import Contents, read_contents
from unhang.errors import InputError, UnhangError
from unhang.ingest.discover.sources import Inputs, show_path
from unhang.model import Fact, LastCall, LogEvent, Note, ProcessSample, SlowRank
from unhang.ras import MOST_BYTES, RasStatus, parse
from unhang.regular import open_regular, reason
from unhang.report import SavedReport
from unhang.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from unhang.ingest.columns.dumpfiles import DumpFile
    from unhang.logs.files import LogSource


@dataclass(frozen=True, slots=True)
class Beside:
    """What to read next to the dumps, as the user named it.

    Attributes:
        logs: Files, directories, globs, or "-".
        traces: Directories that `unhang trace` wrote.
        cores: Core files, or directories of them.
        reports: JSON reports of other commands.
        ras: Files with what NCCL's RAS printed; "-" for standard input.
        case_logs: Whether to read the logs that lie in case directories.
        baseline: Whether to compare them with an earlier case of the same job that ended well.
    """

    logs: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    cores: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    ras: tuple[str, ...] = ()
    case_logs: bool = True
    baseline: bool = True

    @property
    def named(self) -> bool:
        """Whether there is anything to read, also without dumps."""
        return bool(self.logs or self.traces or self.cores or self.reports or self.ras)


@dataclass(slots=True)
class Extras:
    """What else a case holds next to its dumps."""

    samples: tuple[ProcessSample, ...] = ()
    log_events: tuple[LogEvent, ...] = ()
    log_facts: tuple[Fact, ...] = ()
    logs_got_on: bool = False
    logs_left_open: bool = False
    last_calls: tuple[LastCall, ...] = ()
    reports: tuple[SavedReport, ...] = ()
    ras: tuple[RasStatus, ...] = ()
    slow: SlowRank | None = None
    incident: str = ""
    looked_at: frozenset[int] | None = None
    manifests: tuple[Contents, ...] = ()
    notes: list[Note] = field(default_factory=list)

    @property
    def tell_something(self) -> bool:
        """Whether there is anything to judge without dumps."""
        told = self.samples or self.log_events or self.last_calls or self.reports
        return bool(told or self.ras)


def read_beside(inputs: Inputs, beside: Beside) -> Extras:
    """Read stacks, logs, traces, cores and reports: those of case directories, and what was named.

    Raises:
        InputError: Something that was named is not there, or is something else.
    """
    extras = Extras()
    for folder in inputs.stacks:
        from unhang.stacks.reading import read_stacks

        reading = read_stacks(folder, inputs.outside)
        extras.samples += reading.samples
        extras.notes += reading.notes
    sources = _log_sources(inputs, beside, extras)
    if sources:
        of_one_case = inputs.logs if beside.baseline and len(inputs.logs) == 1 else ()
        _read_logs(sources, extras, *(folder.parent for folder in of_one_case))
    for read, folders, named in (
        (_read_traces, inputs.traces, beside.traces),
        (_read_ras, inputs.ras, beside.ras),
        (_read_cores, inputs.cores, beside.cores),
    ):
        for folder in folders:
            with _noted(extras, folder):
                read([folder], extras, inputs.outside)
        read([*map(Path, named)], extras, ())
    if inputs.reports or beside.reports:
        from unhang.ingest.savedreports import read_reports

        extras.reports = read_reports(inputs.reports, map(Path, beside.reports), extras.notes)
    extras.samples = tuple(sorted(extras.samples, key=lambda sample: sample.time_ns))
    return extras


@contextmanager
def _noted(extras: Extras, path: Path, *, only: bool = True) -> Iterator[None]:
    """What cannot be read in a case is a note, and all else is judged.

    Args:
        extras: Whose notes it goes to.
        path: What is read.
        only: False where the user named it, and means it.
    """
    try:
        yield
    except (UnhangError, OSError, ValueError) as error:
        if not only:
            raise
        extras.notes.append(Note("warning", show_path(str(path)), f"not read: {reason(error)}"))


def _log_sources(inputs: Inputs, beside: Beside, extras: Extras) -> list[LogSource]:
    if not inputs.logs and not beside.logs:
        return []
    from unhang.logs.files import find_logs, named_logs

    found = named_logs(beside.logs) if beside.logs else []
    of_cases: list[LogSource] = []
    for folder in inputs.logs:
        with _noted(extras, folder):
            of_cases += (replace(source, kept=True) for source in find_logs(folder, inputs.outside))
    if of_cases and not beside.case_logs:
        text = f"{count_of(len(of_cases), 'log')} of the case skipped (--no-logs)"
        extras.notes.append(Note("info", "logs", text))
        return found
    known = {source.path for source in found}
    return [*found, *(source for source in of_cases if source.path not in known)]


def _read_logs(sources: list[LogSource], extras: Extras, case: Path | None = None) -> None:
    from unhang.logs.scan import scan_logs

    scan = scan_logs(sources)
    if case is not None:
        from unhang.logs.since import add_new_since

        add_new_since(scan, [source for source in sources if source.kept], case)
    extras.log_events += tuple(scan.events)
    extras.log_facts += tuple(scan.facts)
    extras.logs_got_on = extras.logs_got_on or scan.got_on
    extras.logs_left_open = scan.left_open or not scan.ended_well
    extras.notes += scan.notes
    what = f"read {count_of(len(sources), 'log')} ({scan.bytes_read / 1e6:,.1f} MB)"
    text = f"{what}: {count_of(len(scan.events), 'known message')}"
    extras.notes.append(Note("info", "logs", text))


def _read_traces(folders: list[Path], extras: Extras, outside: Collection[Path]) -> None:
    for folder in folders:
        from unhang.trace.reading import last_calls, read_traces

        traces, notes = read_traces(folder, outside)
        extras.last_calls += last_calls(traces)
        extras.notes += notes
    extras.last_calls = tuple(sorted(extras.last_calls, key=lambda call: call.time_ns))


def _read_ras(paths: list[Path], extras: Extras, outside: Collection[Path]) -> None:
    """Read what RAS printed: a file, every file of a folder, or "-" for standard input."""
    for named in paths:
        files = sorted(named.iterdir()) if named.is_dir() else [named]
        for path in (file for file in files if file not in outside):
            with _noted(extras, path, only=named.is_dir()):
                told = _ras_of(path, waits=not named.is_dir())
                extras.ras = (*extras.ras, told)
                if told.repaired:
                    text = "added commas that NCCL 2.28.9 omits before missing ranks"
                    extras.notes.append(Note("info", show_path(str(path)), text))


def _ras_of(path: Path, *, waits: bool) -> RasStatus:
    """What RAS told.

    Args:
        path: A file, or "-".
        waits: Whether a FIFO is read, too: the user names one, as in --ras <(ncclras).

    Raises:
        InputError: It cannot be read, or is something else.
    """
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(MOST_BYTES)
        else:
            with path.open("rb") if waits else open_regular(path) as file:
                data = file.read(MOST_BYTES)
        return parse(data.decode("utf-8", "replace"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {reason(error)}") from error
    except ValueError as error:
        hint = "Give what `ncclras` printed, as text or JSON."
        raise InputError(f"{path} is not of NCCL's RAS: {error}", hint) from error


def _read_cores(paths: list[Path], extras: Extras, outside: Collection[Path]) -> None:
    if not paths:
        return
    from unhang.cores import find_cores, read_core, sample_of

    found = ((core, named.is_dir()) for named in paths for core in find_cores(named, outside))
    for path, inside in found:
        with _noted(extras, path, only=inside):
            reading = read_core(path)
            extras.notes += reading.notes
            sample, why_not = sample_of(reading)
            if sample is None:
                extras.notes.append(Note("info", str(path), why_not))
            else:
                extras.samples += (sample,)


def attempt_of(files: Iterable[DumpFile]) -> str:
    """The attempt that our recorder's dumps say they are of; "" where none says."""
    attempts = {
        item.decoded.origin.attempt for item in files if item.decoded and item.decoded.origin
    }
    return attempts.pop() if len(attempts) == 1 else ""


def of_attempt(extras: Extras, attempt: str) -> tuple[LogEvent, ...]:
    """Log events without those of other attempts; of the newest one where the dumps do not tell.

    Logs whose path names no attempt are kept, but for what only another attempt's ranks have said.
    """
    told: dict[str, set[tuple[str, int, str]]] = {}
    for event in extras.log_events:
        if "attempt" in event.fields:
            told.setdefault(event.fields["attempt"], set()).add(_words_of(event))
    keep = attempt or max(told, key=int, default="")
    others = set().union(*(words for number, words in told.items() if number != keep))
    if not others:
        return extras.log_events
    others -= told.get(keep, set())
    kept = tuple(
        event
        for event in extras.log_events
        if event.fields.get("attempt", keep) == keep and _words_of(event) not in others
    )
    left = len(extras.log_events) - len(kept)
    text = f"{count_of(left, 'message')} of other attempts than attempt {keep} skipped"
    extras.notes.append(Note("info", "logs", text))
    return kept


def _words_of(event: LogEvent) -> tuple[str, int, str]:
    return event.code, event.rank, event.text


def read_manifests(paths: list[Path], notes: list[Note]) -> dict[str, Contents | None]:
    """What the manifests of case directories say, by their names; None where one cannot be read."""
    found: dict[str, Contents | None] = {}
    for path in paths:
        shown = show_path(str(path))
        found[shown] = None
        try:
            found[shown] = read_contents(path)
        except (OSError, ValueError, RecursionError) as error:
            reason = f"the manifest cannot be read ({type(error).__name__})"
            notes.append(Note("warning", shown, reason))
    return found


def expected_ranks(manifests: Mapping[str, Contents | None]) -> tuple[int, str]:
    """World size as the first manifest has it that tells one, and whose word it is; 0 for none."""
    told = ((each.world_size, name) for name, each in manifests.items() if each is not None)
    return next(((size, name) for size, name in told if size), (0, ""))


def ranks_looked_at(manifests: Mapping[str, Contents | None]) -> frozenset[int] | None:
    """The ranks that nodes reported, found or not; None where a manifest does not tell."""
    found: set[int] = set()
    for each in manifests.values():
        if each is None or each.looked_at is None:
            return None
        found.update(rank for first, last in each.looked_at for rank in range(first, last + 1))
    return frozenset(found) if manifests else None
