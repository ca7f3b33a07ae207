"""Groups that ranks make unlike each other: torch numbers them, so later ones take wrong names.

torch names a group by how many its rank has made, and finds partners by that name. Where some ranks
make a group and others do not, one name stands for several groups: on Gloo, members of one were
seen to meet members of the other. A rank may also wait in a group that its partners do not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final, TypeAlias

from unhang.analysis.rules.membership_mismatch import MEMBERSHIP_MISMATCH
from unhang.analysis.words.decisions import sentence
from unhang.model import Frame
from unhang.rehearse.matching.parties import Frames, RankGroup
from unhang.rehearse.matching.referee import Referee
from unhang.report import Decision, Finding, Report, Site, Subject
from unhang.stacks.ownership import user_frame
from unhang.wording import printable, rank_phrase

_Asked: TypeAlias = tuple[tuple[int, ...], Frames]
_MOST_SITES: Final = 4


@dataclass(frozen=True, slots=True)
class _Parting:
    """The first call of new_group about which ranks disagree.

    Attributes:
        odd: Ranks that most others do not do as; empty where neither way has a majority.
        ways: Which ranks made which group there; of a rank that made none more, nothing.
    """

    odd: tuple[int, ...]
    ways: Mapping[tuple[int, ...], tuple[tuple[int, ...], Frames]]


def with_groups_made(report: Report, referee: Referee) -> Report:
    """The report, with who made a group unlike the others where that is the fault.

    Returns:
        The report as it is where all ranks made the same groups, or where nothing came of it.
    """
    parting = _parting(referee)
    if parting is None:
        return report
    if report.status == "problem":
        first, *rest = report.findings
        half = any(_lacks(circle, referee) for circle in _waited_in(referee))
        if first.role != "cause" or not (first.code == MEMBERSHIP_MISMATCH.code or half):
            return report
        return _told(report, _named(first, parting), rest)
    clash = next(_clashes(referee), None)
    return _told(report, _mixed(clash, parting), ()) if clash else report


def _told(report: Report, first: Finding, rest: Sequence[Finding]) -> Report:
    subjects = tuple(Subject("rank", f"rank {rank}", rank=rank) for rank in first.culprits)
    decision = Decision(
        "fix-code", "wrong-calls", first.confidence, subjects,
        text=sentence("fix-code", "wrong-calls", subjects),
    )  # fmt: skip
    return replace(
        report, status="problem", summary=first.summary, findings=(first, *rest), decision=decision
    )


def _parting(referee: Referee) -> _Parting | None:
    """Where ranks make different groups; one that has only not come so far yet agrees."""
    made = {rank: process.asked for rank, process in referee.ranks.items()}
    for row in zip_longest(*made.values()):
        there = {rank: asked for rank, asked in zip(made, row, strict=True) if asked is not None}
        ways = Counter(members for members, _ in there.values())
        if len(ways) > 1:
            return _told_apart(there, ways)
    return None


def _told_apart(there: Mapping[int, _Asked], ways: Counter[tuple[int, ...]]) -> _Parting:
    (usual, most), *_ = ways.most_common()
    odd = tuple(rank for rank, (members, _) in there.items() if members != usual)
    by_way = {
        members: (
            tuple(rank for rank, asked in there.items() if asked[0] == members),
            next(frames for each, frames in there.values() if each == members),
        )
        for members in ways
    }
    return _Parting(odd if 2 * most > len(there) else (), by_way)


def _waited_in(referee: Referee) -> Iterator[RankGroup]:
    """Groups in which a call has not ended."""
    for process in referee.ranks.values():
        yield from (call.circle for call in process.calls.values() if not call.met_ns)


def _lacks(circle: RankGroup, referee: Referee) -> bool:
    """Whether a member has made later groups, and not this one."""
    ranks = referee.ranks
    return any(rank in ranks and circle not in ranks[rank].groups for rank in circle.ranks)


def _clashes(referee: Referee) -> Iterator[tuple[RankGroup, RankGroup]]:
    """Two groups of one name that ranks made by new_group; a rank alone has no partners."""
    asked = {members for p in referee.ranks.values() for members, _ in p.asked}
    first: dict[str, RankGroup] = {}
    for circle in referee.circles.values():
        if len(circle.ranks) > 1 and tuple(sorted(circle.ranks)) in asked:
            other = first.setdefault(circle.name, circle)
            if other is not circle:
                yield other, circle


def _named(finding: Finding, parting: _Parting) -> Finding:
    """A finding of the analysis with the ranks that made other groups, and their line."""
    if not parting.odd:
        return replace(finding, sites=_sites(parting), evidence=_evidence(parting))
    who = rank_phrase(parting.odd).capitalize()
    frames = next(f for ranks, f in parting.ways.values() if set(ranks) <= set(parting.odd))
    return replace(
        finding, code=MEMBERSHIP_MISMATCH.code,
        summary=f"{who} made another group than the other ranks by new_group at {_place(frames)}: "
        "torch numbers groups, so later ones do not meet.",
        confidence="high", confidence_reasons=(), culprits=parting.odd, sites=_sites(parting),
        victims=tuple(rank for rank in finding.victims if rank not in parting.odd),
        evidence=(*_evidence(parting), *finding.evidence), group=None, seq=None, op=None, calls=(),
        actions=("Call new_group on every rank, with the same ranks and in the same order.",),
    )  # fmt: skip


def _mixed(clash: tuple[RankGroup, RankGroup], parting: _Parting) -> Finding:
    """Every call met here, and in the job one may meet a rank of the other group."""
    one, other = clash
    return Finding(
        id="f1",
        code=MEMBERSHIP_MISMATCH.code,
        role="cause",
        confidence="medium",
        confidence_reasons=("it depends on which ranks are first",),
        summary=f"Group {printable(one.name)} is {rank_phrase(one.ranks)} on some ranks and "
        f"{rank_phrase(other.ranks)} on others: torch finds partners by that name.",
        culprits=parting.odd,
        sites=_sites(parting),
        evidence=_evidence(parting),
        actions=("Call new_group on every rank, with the same ranks and in the same order.",),
    )


def _sites(parting: _Parting) -> tuple[Site, ...]:
    sites = []
    for ranks, frames in list(parting.ways.values())[:_MOST_SITES]:
        frame = _own(frames)
        role = "culprit" if set(ranks) <= set(parting.odd) else "victim"
        sites.append(Site(ranks, role, frame.file, frame.line, frame.function))
    return tuple(sorted(sites, key=lambda site: site.role))


def _evidence(parting: _Parting) -> tuple[str, ...]:
    return tuple(
        f"{rank_phrase(ranks).capitalize()} made a group of {rank_phrase(members)} at "
        f"{_place(frames)}."
        for members, (ranks, frames) in list(parting.ways.items())[:_MOST_SITES]
    )


def _own(frames: Frames) -> Frame:
    return user_frame([Frame(*each) for each in frames]) or Frame("", "?", 0)


def _place(frames: Frames) -> str:
    frame = _own(frames)
    return printable(f"{Path(frame.file).name}:{frame.line}")
