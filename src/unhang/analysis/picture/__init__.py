"""The picture of a case: what a page draws, from the same situation as the verdict."""

from __future__ import annotations

from unhang.analysis.picture.bandwidth import rates
from unhang.analysis.picture.calls import lanes
from unhang.analysis.picture.lateness import clock_offsets, heat, largest_meetings
from unhang.analysis.picture.places import stack_tree
from unhang.analysis.picture.replay import replay
from unhang.analysis.picture.times import bars
from unhang.analysis.picture.waits import wait_graph
from unhang.analysis.shared.situation import Situation
from unhang.analysis.steps import situation_of
from unhang.case import Case
from unhang.picture import Picture, Team
from unhang.report import Report

__all__ = ["picture_of"]

_MOST_TEAMS = 12


def picture_of(case: Case, report: Report, *, every: bool = False) -> Picture:
    """Draw up what is known of a case.

    Args:
        case: What the report was made from.
        report: Its verdict: statuses of ranks and the call of the first finding are taken from it.
        every: Times of all ranks, not only of as many as a page can show.
    """
    if not case.dumps:
        return Picture(stacks=stack_tree(case, None))
    situation, _ = situation_of(case)
    status = {each.rank: str(each.status) for each in report.ranks}
    nodes, links = wait_graph(situation, report, status)
    columns, rows, folded = lanes(situation, report, status)
    meetings = largest_meetings(situation.evidence)
    culprits = report.findings[0].culprits if report.findings else ()
    ahead_ms = clock_offsets(meetings)
    drawn, cut = bars(situation, culprits, ahead_ms, every=every)
    return Picture(
        teams=_teams(situation),
        nodes=nodes,
        links=links,
        columns=columns,
        lanes=rows,
        bars=drawn,
        heat=heat(situation.evidence, meetings, culprits),
        rates=rates(case),
        stacks=stack_tree(case, situation),
        replay=replay(situation, report, ahead_ms),
        left_out=tuple(text for text in (folded, cut) if text),
    )


def _teams(situation: Situation) -> tuple[Team, ...]:
    """Descriptions that several groups share, or one group of a part of the job."""
    by_name: dict[str, list[tuple[int, ...]]] = {}
    for group in situation.evidence.case.groups:
        if 1 < group.size < len(situation.evidence.ranks):
            by_name.setdefault(group.description or group.label, []).append(group.members)
    whole = [Team(name, tuple(sorted(set(members)))) for name, members in by_name.items()]
    return tuple(sorted(whole, key=lambda team: (-len(team.members), team.name))[:_MOST_TEAMS])
