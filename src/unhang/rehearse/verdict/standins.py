"""What a verdict rests on where a few ranks of a large job ran and stood for the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeAlias

from unhang.kinds import INSUFFICIENT_EVIDENCE
from unhang.model import Frame
from unhang.rehearse.matching.parties import LivingRank
from unhang.rehearse.matching.referee import Referee
from unhang.report import Finding, Report
from unhang.stacks.ownership import is_library
from unhang.wording import count_of, rank_phrase

_MOST: Final = 4
_Schedule: TypeAlias = tuple[object, ...]


def of_those_that_ran(report: Report, referee: Referee) -> Report:
    """Without what the analysis says of ranks that were not to run."""
    if not referee.running:
        return report
    return replace(
        report,
        ranks=tuple(status for status in report.ranks if status.rank in referee.running),
        findings=tuple(f for f in report.findings if f.code != INSUFFICIENT_EVIDENCE.code),
    )


def ranks_that_ran(referee: Referee) -> str:
    """How many."""
    ran = count_of(referee.size, "rank")
    return f"the {ran} of {referee.world:,} that ran" if referee.running else ran


def others_do_alike(referee: Referee) -> str:
    """How that limits the verdict."""
    if not referee.running:
        return ""
    others = count_of(referee.world - referee.size, "other rank")
    return f", as far as the {others} call what these do"


def standing_for(referee: Referee) -> str:
    """Which ranks ran, and how many schedules they have."""
    found = roles(referee.ranks.values())
    shown = "; ".join(rank_phrase(ranks) for ranks in found[:_MOST])
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return (
        f"{rank_phrase(sorted(referee.running))} ran, of {referee.world:,}; the others are taken "
        f"to call what these do. They have {count_of(len(found), 'schedule')}: {shown}{more}"
    )


def roles(processes: Iterable[LivingRank]) -> list[list[int]]:
    """Ranks that make the same calls at the same lines, whatever their groups."""
    found: dict[_Schedule, list[int]] = {}
    for process in processes:
        found.setdefault(_schedule(process), []).append(process.rank)
    return list(found.values())


def _schedule(process: LivingRank) -> _Schedule:
    """What it calls: operation, sizes of tensors, and the script's line."""
    lines: dict[int, object] = {}
    made = []
    for call in process.calls.values():
        if id(call.frames) not in lines:
            own = (f for f in call.frames if not is_library(Frame(*f)))
            lines[id(call.frames)] = next(own, None)
        issue = call.issue
        made.append((issue.op, issue.inputs, issue.outputs, issue.dtype, lines[id(call.frames)]))
    return tuple(made)


def with_doubts(report: Report, referee: Referee) -> Report:
    """A problem that values of ranks that did not run may have made is none that is known."""
    if not referee.running or report.status != "problem":
        return report
    raised = [process for process in referee.ranks.values() if process.error]
    awaits = [p for p in referee.ranks.values() if p.waits.startswith("key ")]
    if not raised and not awaits:
        return report
    rank = (raised or awaits)[0].rank
    what = "raised an error" if raised else "waits for a key of a store"
    text = (
        f"Rank {rank} {what}, which may come of ranks that did not run: "
        f"{count_of(referee.size, 'rank')} of {referee.world:,} ran, with their values in the "
        f"place of the others'. {report.summary}"
    )
    finding = Finding(
        "f1", INSUFFICIENT_EVIDENCE.code, INSUFFICIENT_EVIDENCE.role, "low", text,
        sites=report.findings[0].sites if report.findings else (),
        actions=("Rehearse a smaller job whose ranks all run: --ranks 64.",),
        confidence_reasons=("not all ranks ran",),
    )  # fmt: skip
    return replace(report, status="insufficient", summary=text, findings=(finding,), decision=None)
