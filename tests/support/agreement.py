"""Where a picture, or a command that helps next, says otherwise than the report beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from unhang.case import Case
from unhang.casedir.place import Place
from unhang.picture import Cell, Picture
from unhang.report import CallSide, Finding, Report
from unhang.reports.content.next_steps import main_finding, next_steps

NEVER_CALLED = "UH101"


def contradictions(report: Report, picture: Picture) -> Iterator[str]:
    """What the calls side by side say otherwise than the first finding, in sentences."""
    status = {each.rank: str(each.status) for each in report.ranks}
    lanes = {rank: lane for lane in picture.lanes for rank in lane.ranks}
    for rank, lane in lanes.items():
        if lane.status != status[rank]:
            yield f"rank {rank} is {lane.status} in its lane, {status[rank]} in the report"
    finding = report.findings[0] if report.findings else None
    if finding is None or finding.role != "cause" or finding.seq is None or not lanes:
        return
    yield from _of_graph(finding, picture)
    marked = [at for at, column in enumerate(picture.columns) if column.marked]
    if [picture.columns[at].number for at in marked] != [finding.seq]:
        yield f"marked are {marked}, the call is #{finding.seq}"
        return
    at = {r: c for r, lane in lanes.items() for c in lane.cells if c.column == marked[0]}
    yield from _of_culprits(finding, set(lanes), at)
    for side in _sides(finding):
        yield from _of_side(side, set(lanes), at)


def _of_graph(finding: Finding, picture: Picture) -> Iterator[str]:
    """The call of the headline is a box of its own, where ranks wait in it."""
    whole = f"{finding.op} #{finding.seq} of "
    inside = any(side.role == "victim" and side.op == finding.op for side in finding.calls)
    boxes = [knot.label for knot in picture.nodes if knot.kind == "call" and knot.count == 1]
    if finding.code == NEVER_CALLED and inside and not any(b.startswith(whole) for b in boxes):
        yield f"{whole} has no box of its own among {boxes}"


def _of_culprits(finding: Finding, there: set[int], at: dict[int, Cell]) -> Iterator[str]:
    # What peers of another group made, a culprit may lack in a group, and a row, of its own.
    of_peers = any(s.role == "peer" and s.group == finding.group for s in finding.calls)
    for rank in there.intersection(finding.culprits):
        if rank not in at and of_peers:
            continue
        if rank not in at:
            yield f"culprit {rank} is absent from the row of its call"
        elif finding.code == NEVER_CALLED and at[rank].state not in ("missing", "unknown"):
            yield f"culprit {rank} is said never to have made what is {at[rank].state}"


def _sides(finding: Finding) -> Iterator[CallSide]:
    """Sides that are in the finding's call itself: other groups may have its name."""
    named = [side for side in finding.calls if side.group == finding.group and side.op]
    for side in named if finding.culprits else named[:1]:
        if side.state not in ("", "completed") and side.seq == finding.seq:
            yield side


def _of_side(side: CallSide, there: set[int], at: dict[int, Cell]) -> Iterator[str]:
    shown = there.intersection(side.ranks)
    lost = sorted(rank for rank in shown if rank not in at)
    if lost:
        yield f"ranks {lost} are in the call, and absent from its row"
    denied = sorted(r for r in shown if r in at and at[r].state in ("missing", "unknown"))
    if denied:
        yield f"ranks {denied} have made the call, and its row denies it"
    if shown and not any(r in at and at[r].state in ("open", "failed") for r in shown):
        yield f"of {side.ranks} none waits in the row of the call"


def one_sided(case: Case, report: Report) -> Iterator[str]:
    """Commands with ranks that leave out the culprits, or all who wait in the finding's call."""
    finding = main_finding(report)
    if finding is None:
        return
    for command, shown in shown_by(case, report):
        there = set(case.ranks_with_dump)
        if command.startswith("unhang stacks"):
            there = {sample.rank for sample in case.samples}
        inside = {r for side in finding.calls if side.op and side.state for r in side.ranks}
        waiting = (set(finding.victims) & inside or set(finding.victims)) - set(finding.culprits)
        loop = () if finding.culprits else finding.loop[:2]
        for side in (set(finding.culprits), waiting, *({rank} for rank in loop)):
            if side & there and not shown & side:
                yield command


def shown_by(case: Case, report: Report) -> Iterator[tuple[str, set[int]]]:
    """Each command that chooses ranks, with these."""
    for step in next_steps(report, case, Place(("job",), stacks="stacks.json")):
        words = step.command.split()
        if "--ranks" in words:
            yield step.command, set(unfolded(words[words.index("--ranks") + 1]))


def unfolded(text: str) -> Iterable[int]:
    """The ranks of "0-6:2,9"."""
    for part in text.split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1, int(step or 1))
