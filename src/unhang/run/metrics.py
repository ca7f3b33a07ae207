"""Running ranks and the verdict in the text format of Prometheus: for a scrape, or as a file.

The file is for the textfile collector of a node exporter, which reads it whenever it is scraped
itself: so it is replaced whole, and its last state stays when the job has ended. The label that
names a job of ours is `job_id`, because Prometheus puts its own `job` on what it scrapes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.errors import OutputError
from unhang.run.child.speak import say
from unhang.wording import printable

if TYPE_CHECKING:
    from unhang.run.incident.verdict import Verdict
    from unhang.run.watching.now import JobNow

_EVERY_S = 10.0
_LOOK_S = 0.5
"""A verdict is written so soon after it has come."""

Sample = tuple[dict[str, str], float]


def family(name: str, meaning: str, samples: Iterable[Sample]) -> Iterator[str]:
    """One gauge with its samples, by label."""
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        told = ",".join(f'{key}="{_label(text)}"' for key, text in labels.items())
        yield f"{name}{{{told}}} {value:.15g}" if told else f"{name} {value:.15g}"


def _label(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')


def live_metrics(jobs: Sequence[JobNow]) -> Iterator[str]:
    """What runs on this node now: its ranks, and how far each group has come."""
    ranks = [({"job_id": job.job, "rank": str(r.rank)}, r) for job in jobs for r in job.ranks]
    yield from family(
        "unhang_rank_alive",
        "Whether the process of a rank is alive.",
        ((labels, float(rank.alive)) for labels, rank in ranks),
    )
    yield from family(
        "unhang_rank_finished_calls",
        "Grows with every call that a rank finishes.",
        ((labels, float(rank.finished)) for labels, rank in ranks),
    )
    yield from family(
        "unhang_rank_quiet_seconds",
        "Seconds since the last sign of life of a rank's program.",
        ((labels, rank.quiet_s) for labels, rank in ranks if rank.quiet_s is not None),
    )
    groups = [
        ({"job_id": job.job, "group": each.name, "description": each.description}, each)
        for job in jobs
        for each in job.groups
    ]
    yield from family(
        "unhang_group_finished_collectives",
        "Collectives of a group that all members on this node have finished.",
        ((labels, float(group.finished)) for labels, group in groups),
    )
    yield from family(
        "unhang_group_ranks_behind",
        "Members of a group on this node that other members wait for.",
        ((labels, float(len(group.behind))) for labels, group in groups),
    )


def _verdict_metrics(job: str, verdict: Verdict | None, *, running: bool) -> Iterator[str]:
    yield from family(
        "unhang_job_running", "1 while the command runs.", [({"job_id": job}, float(running))]
    )
    told = []
    if verdict is not None:
        labels = {"status": verdict.status or "insufficient", "action": verdict.action or "none"}
        labels |= {"confidence": verdict.confidence, "culprit_host": verdict.host}
        told = [({"job_id": job, **labels}, 1.0)]
    yield from family(
        "unhang_verdict",
        "The last verdict about the job: status, confidence, the advised action, and the host.",
        told,
    )


class Meter:
    """Writes a file every few seconds, and at once when there is a verdict."""

    def __init__(self, path: str, job: str, verdict: Callable[[], Verdict | None]) -> None:
        """Write the file for the first time.

        Raises:
            OutputError: It cannot be written.
        """
        self._path, self._job, self._verdict = Path(path).absolute(), job, verdict
        self._over, self._failed = threading.Event(), False
        self._thread = threading.Thread(target=self._guarded, name="unhang-metrics", daemon=True)
        try:
            self._replace(_verdict_metrics(job, None, running=True))
        except OSError as error:
            raise OutputError(
                f"{path} cannot be written: {error.strerror}", "Name another file with --metrics."
            ) from error

    def __enter__(self) -> None:
        try:
            self._thread.start()
        except RuntimeError as error:
            say(f"no metrics: {error}")

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _guarded(self) -> None:
        try:
            self._measure()
        except Exception as error:  # noqa: BLE001 - the command must not notice
            say(f"no more metrics: {type(error).__name__}: {error}")

    def _measure(self) -> None:
        from unhang.run.watching.now import Looker

        looker, written_s, told = Looker(self._job), -_EVERY_S, None
        while not self._over.wait(_LOOK_S):
            verdict = self._verdict()
            if verdict is not told or time.monotonic() - written_s >= _EVERY_S:
                written_s, told = time.monotonic(), verdict
                self._write(live_metrics(looker.look()), running=True)
        self._write(live_metrics(looker.look()), running=False)

    def _write(self, lines: Iterable[str], *, running: bool) -> None:
        try:
            self._replace([*_verdict_metrics(self._job, self._verdict(), running=running), *lines])
        except OSError as error:
            if not self._failed:
                say(f"the metrics were not written: {error.strerror}")
            self._failed = True

    def _replace(self, lines: Iterable[str]) -> None:
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        try:
            part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            part.replace(self._path)
        finally:
            part.unlink(missing_ok=True)
