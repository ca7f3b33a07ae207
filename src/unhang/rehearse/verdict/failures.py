"""Ranks whose script raised, where no rank waits for them: the exception and its line are it.

Where a rank waits, the analysis says who failed it. Here nothing is matched any more, and logs
alone would leave open whose line comes first: a rehearsal has heard it from each process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from unhang.analysis.words.decisions import sentence
from unhang.logs.rules.known import UNHANDLED_EXCEPTION
from unhang.model import Frame
from unhang.rehearse.matching.parties import LivingRank
from unhang.rehearse.matching.referee import Referee
from unhang.report import Decision, Finding, RankStatus, Report, Site
from unhang.stacks.ownership import user_frame
from unhang.wording import printable, rank_phrase

__all__ = ["with_failures"]

_WIDTH: Final = 300


def with_failures(report: Report, referee: Referee) -> Report:
    """The report of a rehearsal in which every rank ended, and some by an exception.

    Returns:
        The report as it is where a rank waits, or none raised.
    """
    ranks = referee.ranks
    raised = [process for process in ranks.values() if process.error]
    if not raised or any(process.code is None for process in ranks.values()):
        return report
    alike = _alike(raised)
    findings = tuple(_finding(n, each, len(ranks)) for n, each in enumerate(alike, 1))
    text = sentence("fix-code", "program-failed", ())
    return replace(
        report,
        status="problem",
        summary=findings[0].summary,
        findings=findings,
        ranks=tuple(_as_raised(status, ranks) for status in report.ranks),
        decision=Decision("fix-code", "program-failed", "high", (), text=text),
    )


def _alike(raised: Sequence[LivingRank]) -> list[list[LivingRank]]:
    """Ranks that raised the same at the same line, the earliest first."""
    groups: dict[object, list[LivingRank]] = {}
    for process in sorted(raised, key=lambda each: each.ended_ns):
        key = process.error.partition(":")[0], process.error_frames[:1]
        groups.setdefault(key, []).append(process)
    return list(groups.values())


def _finding(number: int, alike: list[LivingRank], world: int) -> Finding:
    ranks = tuple(sorted(process.rank for process in alike))
    first = alike[0]
    frame = _own(first)
    where = f" at {frame.function} ({Path(frame.file).name}:{frame.line})" if frame else ""
    who = "Every rank" if len(ranks) == world else rank_phrase(ranks).capitalize()
    sites = (Site(ranks, "culprit", frame.file, frame.line, frame.function),) if frame else ()
    return Finding(
        id=f"f{number}",
        code=UNHANDLED_EXCEPTION.code,
        role="cause",
        confidence="high",
        summary=f"{who} raised {printable(first.error, _WIDTH)}{where}.",
        culprits=() if len(ranks) == world else ranks,
        sites=sites,
        evidence=_called_in(first, frame),
    )


def _own(process: LivingRank) -> Frame | None:
    """The innermost frame of the script's own; the innermost of all where none is."""
    frames = [Frame(*each) for each in process.error_frames]
    return user_frame(frames) or next(iter(frames), None)


def _called_in(process: LivingRank, own: Frame | None) -> tuple[str, ...]:
    """Where in a library it was raised, if it was raised there."""
    if not process.error_frames or (inner := Frame(*process.error_frames[0])) == own:
        return ()
    name = printable(f"{inner.function} ({Path(inner.file).name}:{inner.line})")
    return (f"The line called into {name}, which raised it.",)


def _as_raised(status: RankStatus, ranks: dict[int, LivingRank]) -> RankStatus:
    process = ranks.get(status.rank)
    if process is None or not process.error:
        return status
    return replace(status, status="culprit", detail=f"raised {process.error.partition(':')[0]}")
