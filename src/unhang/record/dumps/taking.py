"""Incidents: when this process writes its dumps, under which name, and how often at most.

All triggers end here. The dump without stacks is on disk before the one with stacks is begun,
because resolving stacks needs the GIL and a second of CPU, and neither may be there.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from unhang.rankenv import attempt_of
from unhang.record.calls.recorder import Recorder
from unhang.record.contact.runtime_dir import safe_name
from unhang.record.dumps import dumpfile
from unhang.record.dumps.dumpfile import DumpDraft

END: Final = "end"
"""The incident of a process that comes to its end; it is written whatever the limit."""

REASONS: Final = {
    "api": "the program called unhang.dump()",
    "asked": "a request over the socket ('unhang dump')",
    "exception": "an uncaught exception ends the process",
    "exit-pending": "the process exits while calls are pending",
    "hang": "'unhang run' saw no progress",
    "slow": "'unhang run' saw a rank keep the others waiting, in a job that moves",
    "peer-failed": "'unhang run' saw another rank fail",
    "pipe": "a write to the trigger pipe",
    "signal": "the signal of UNHANG_SIGNAL came",
    "timeout": "a call reached its timeout",
}
"""Every value of `reason`, and what it means."""

LOCK_WAIT_S: Final = 10.0
_one_at_a_time = threading.Lock()


@dataclass(slots=True, eq=False, repr=False)
class TakenDumps:
    """What one dump of this process came to.

    Attributes:
        name: Name of the incident directory, without what was added to keep older files.
        files: What was written; empty where nothing could be.
        dumps: The same, in memory, for the stage with stacks.
        failures: What went wrong in this process so far.
    """

    name: str
    files: list[Path] = field(default_factory=list)
    dumps: list[DumpDraft] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add_stacks(self, recorder: Recorder) -> None:
        """The second stage: write the same files again with the frames of their entries."""
        for dump in self.dumps:
            try:
                if dumpfile.add_frames(dump):
                    dumpfile.rewrite(dump)
            except (OSError, RuntimeError, ValueError) as error:  # noqa: PERF203 - one or two rounds
                recorder.state.failures.add("stacks not added", error)
        self.failures = list(recorder.state.failures.texts())


def take(
    recorder: Recorder,
    reason: str,
    *,
    incident: str = "",
    directory: Path | None = None,
) -> TakenDumps:
    """Write this process's dumps, without torch's stacks; `TakenDumps.add_stacks` comes next.

    Args:
        recorder: Ours.
        reason: A key of `REASONS`.
        incident: Name shared by all ranks, or "" for one of this process's own.
        directory: The incident directory itself, instead of one under UNHANG_DIR.
    """
    state = recorder.state
    if not _one_at_a_time.acquire(timeout=LOCK_WAIT_S):
        state.failures.add(f"no dump for {reason!r}: another one is still being written")
        return TakenDumps("", failures=list(state.failures.texts()))
    try:
        number = state.incidents.get("all", 0)
        if number >= state.settings.keep and incident != END:
            state.failures.add(f"no dump for {reason!r}: {number} incidents are kept already")
            return TakenDumps("", failures=list(state.failures.texts()))
        state.incidents["all"] = number + 1
        return _take(recorder, reason, incident or _own_name(recorder, reason), directory)
    finally:
        _one_at_a_time.release()


def _own_name(recorder: Recorder, reason: str) -> str:
    """The n-th incident of this kind in this process: "timeout-1", "api-2"."""
    incidents = recorder.state.incidents
    incidents[reason] = incidents.get(reason, 0) + 1
    return f"{reason}-{incidents[reason]}"


def _take(recorder: Recorder, reason: str, incident: str, directory: Path | None) -> TakenDumps:
    state = recorder.state
    attempt = attempt_of(os.environ)
    name = f"{state.job_id}-a{attempt}-{safe_name(incident)}"
    dumps = dumpfile.collect(recorder, stacks=False)
    for dump in dumps:
        dump.content["unhang"]["reason"] = reason
    files: list[Path] = []
    if directory is not None:
        files = dumpfile.write(dumps, [directory.parent], directory.name, recorder)
    if not files:
        files = dumpfile.write(dumps, places(recorder), name, recorder)
    return TakenDumps(name, files, dumps, list(state.failures.texts()))


def places(recorder: Recorder) -> list[Path]:
    """Where incident directories may be made, best first."""
    state = recorder.state
    found = [state.cases]
    if state.directory is not None:
        found.append(state.directory / "cases")
    return found
