"""Ranks whose script raised, where no rank waits for them: the exception and its line are it.

Where a rank waits, the analysis says who failed it. Here nothing is matched any more, and logs
alone would leave open whose line comes first: a rehearsal has heard it from each process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.words.decisions import sentence
from unhang.logs.lines.anchors import wanted_by
from unhang.logs.rules import LogRule
from unhang.logs.rules.known import UNHANDLED_EXCEPTION
from unhang.model import Frame
from unhang.rehearse.matching.parties import LivingRank
from unhang.rehearse.matching.referee import Referee
from unhang.report import Decision, Finding, RankStatus, Report, Site
from unhang.stacks.ownership import user_frame
from unhang.wording import count_of, printable, rank_phrase

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


def with_never_started(report: Report, referee: Referee) -> Report:
    """The report where ranks wait for others for which the script starts no process.

    Returns:
        The report as it is where as many ranks came as the script asks for.
    """
    ranks = referee.ranks
    absent = tuple(sorted(set(range(referee.world)) - set(ranks)))
    if referee.running or not referee.is_stuck or not absent or not ranks:
        return report
    places = {user_frame(Frame(*f) for f in p.begun): None for p in ranks.values() if p.begun}
    present = tuple(ranks)
    sites = tuple(Site(present, "victim", f.file, f.line, f.function) for f in places if f)
    where = f" at {Path(sites[0].file).name}:{sites[0].line}" if sites else ""
    came = count_of(len(ranks), "process", "processes")
    text = (
        f"{rank_phrase(absent).capitalize()} of {referee.world} never started: init_process_group"
        f"{where} waits for {referee.world} ranks, and {came} came."
    )
    return replace(
        report,
        status="problem",
        summary=text,
        findings=(
            Finding(
                id="f1", code=NEVER_JOINED.code, role="cause", confidence="high", summary=text,
                culprits=absent, victims=present, sites=sites,
                actions=("Start as many processes as the world size says.",),
            ),
        ),
        decision=Decision(
            "fix-code", "wrong-calls", "high", (), text=sentence("fix-code", "wrong-calls", ())
        ),
    )  # fmt: skip


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
        code=_rule(first.error).code,
        role="cause",
        confidence="high",
        summary=f"{who} raised {printable(first.error, _WIDTH)}{where}.",
        culprits=() if len(ranks) == world else ranks,
        sites=sites,
        evidence=_called_in(first, frame),
    )


def _rule(error: str) -> LogRule:
    """What is known of an exception by its words; that none caught it where nothing is."""
    known = (rule for rule in wanted_by(error) if rule.role == "cause" and rule.trust != "C")
    return next((rule for rule in known if rule.search(error)), UNHANDLED_EXCEPTION)


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
