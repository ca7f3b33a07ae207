"""Write one simulated job with its truth into a directory: the lab's door for people.

Large jobs are bounded by what can be written honestly: above 16,384 ranks only active entries are
written, and no call is ever made on the group of all ranks above 8,192 ranks, because its list of
members (about 1 MB of text at 131,072 ranks) would stand in every rank's file. torch creates
communicators at the first call, so such a job is a possible one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lab.recorder.recording import Recording
from lab.recorder.writer import write_dumps
from lab.simulate.corpus import CaseSpec, MadeCase, make
from lab.simulate.paused import paused_collector
from lab.truth import TRUTH_FILE, to_json
from unhang.errors import OutputError, UsageError

DUMPS = "dumps"
_ACTIVE_ONLY_ABOVE = 16_384


@dataclass(frozen=True, slots=True)
class Simulated:
    """What was written."""

    case: MadeCase
    folder: Path
    bytes_written: int


def simulate(spec: CaseSpec, folder: Path, **changes: object) -> Simulated:
    """Make a case and write it: `dumps/` as torch would, `truth.json` beside it.

    Args:
        spec: The case; see `corpus`.
        folder: Must not exist, or be empty.
        changes: Fields of `Recording` that differ from the case's condition.

    Raises:
        UsageError: The fault does not fit the layout, or the job is too large for full dumps.
        OutputError: The directory is in use or cannot be written.
    """
    case = make(spec)
    recording = replace(case.recording, **changes)  # type: ignore[arg-type] # fields of Recording, from the command line
    _check_size(spec, recording)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise OutputError(f"{folder} is not empty.", "Name a new directory.")
        with paused_collector():
            size = write_dumps(case.outcome, recording, case.seed, folder / DUMPS)
        text = to_json(
            case.truth,
            case=spec.name,
            layout=spec.layout,
            ranks=spec.ranks,
            condition=spec.condition,
            seed=spec.seed,
        )
        (folder / TRUTH_FILE).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"Cannot write {folder}: {error.strerror}") from error
    return Simulated(replace(case, recording=recording), folder, size)


def _check_size(spec: CaseSpec, recording: Recording) -> None:
    if spec.ranks > _ACTIVE_ONLY_ABOVE and not recording.active_only:
        raise UsageError(
            f"Above {_ACTIVE_ONLY_ABOVE} ranks only active entries can be simulated.",
            "Add --active-only",
        )
