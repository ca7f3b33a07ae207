"""The evidence beside the dumps of a case directory: saved stacks, logs and the manifest.

Stacks and logs have readers of their own; this only hands them their folders, and reads of the
manifest what the dumps cannot say: how many ranks were expected.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.ingest.assemble import Extras
from unhang.ingest.sources import Inputs, show_path
from unhang.ingest.values import as_int
from unhang.model import LogEvent, Note
from unhang.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unhang.ingest.reading import Loaded
    from unhang.logs.sources import LogSource

__all__ = ["Logs", "attempt_of", "expected_ranks", "of_attempt", "read_companions"]

_MAX_MANIFEST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Logs:
    """Which logs to read beside the dumps.

    Attributes:
        named: Files, directories, globs, or "-", as the user named them.
        of_cases: Whether to read those that lie in case directories.
    """

    named: tuple[str, ...] = ()
    of_cases: bool = True


def read_companions(inputs: Inputs, logs: Logs) -> Extras:
    """Read the stacks and logs of case directories, and the logs that were named.

    Raises:
        InputError: A log that was named is not there.
    """
    extras = Extras()
    for folder in inputs.stacks:
        from unhang.stacks import read_stacks

        reading = read_stacks(folder)
        extras.samples += reading.samples
        extras.notes += reading.notes
    sources = _log_sources(inputs, logs, extras.notes)
    if sources:
        _read_logs(sources, extras)
    extras.samples = tuple(sorted(extras.samples, key=lambda sample: sample.time_ns))
    return extras


def _log_sources(inputs: Inputs, logs: Logs, notes: list[Note]) -> list[LogSource]:
    from unhang.logs.sources import find_logs, named_logs

    found = named_logs(logs.named) if logs.named else []
    of_cases = [source for folder in inputs.logs for source in find_logs(folder)]
    if of_cases and not logs.of_cases:
        text = f"{count_of(len(of_cases), 'log')} of the case left out, as asked (--no-logs)"
        notes.append(Note("info", "logs", text))
        return found
    known = {source.path for source in found}
    return [*found, *(source for source in of_cases if source.path not in known)]


def _read_logs(sources: list[LogSource], extras: Extras) -> None:
    from unhang.logs.scan import scan_logs

    scan = scan_logs(sources)
    extras.log_events += tuple(scan.events)
    extras.log_facts += tuple(scan.facts)
    extras.notes += scan.notes
    what = f"read {count_of(len(sources), 'log')} ({scan.bytes_read / 1e6:,.1f} MB)"
    text = f"{what}: {count_of(len(scan.events), 'known message')}"
    extras.notes.append(Note("info", "logs", text))


def attempt_of(files: Iterable[Loaded]) -> str:
    """The attempt that our recorder's dumps say they are of; "" where none says."""
    attempts = {
        item.decoded.origin.attempt for item in files if item.decoded and item.decoded.origin
    }
    return attempts.pop() if len(attempts) == 1 else ""


def of_attempt(extras: Extras, attempt: str) -> tuple[LogEvent, ...]:
    """Log events without those of other attempts; of the newest one where the dumps do not tell.

    Logs whose path names no attempt are kept.
    """
    told = {event.fields["attempt"] for event in extras.log_events if "attempt" in event.fields}
    keep = attempt or max(told, key=int, default="")
    if not told - {keep}:
        return extras.log_events
    kept = tuple(e for e in extras.log_events if e.fields.get("attempt", keep) == keep)
    left = len(extras.log_events) - len(kept)
    text = f"{count_of(left, 'message')} of other attempts than attempt {keep} left out"
    extras.notes.append(Note("info", "logs", text))
    return kept


def expected_ranks(manifests: list[Path], notes: list[Note]) -> int:
    """World size as the manifest of a case directory has it; 0 where none says."""
    for path in manifests:
        try:
            with path.open("rb") as file:
                manifest = json.loads(file.read(_MAX_MANIFEST_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            reason = f"the manifest cannot be read ({type(error).__name__})"
            notes.append(Note("warning", show_path(str(path)), reason))
            continue
        if isinstance(manifest, dict) and (size := as_int(manifest.get("world_size"), 0)) > 0:
            return size
    return 0
