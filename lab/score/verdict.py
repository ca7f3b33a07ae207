"""A verdict of any tool in common terms, and its comparison with a truth.

Tools differ in what they can say at all: a peer that knows no codes is given the nearest ones by
its adapter. Nothing here knows a tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePath

from lab.truth import Cause, Point, Truth

__all__ = ["Blame", "Mark", "Verdict", "judge"]


@dataclass(frozen=True, slots=True)
class Blame:
    """One cause as a tool reports it.

    Attributes:
        points: Calls and lines that it shows.
    """

    code: str
    culprits: frozenset[int] = frozenset()
    points: tuple[Point, ...] = ()
    confidence: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a tool said about one case.

    Attributes:
        status: As in reports, or "error" where the tool failed or took too long.
        detail: Why it failed, or its summary.
    """

    status: str
    blames: tuple[Blame, ...] = ()
    detail: str = ""
    seconds: float = 0.0

    @property
    def named(self) -> frozenset[int]:
        """All ranks that it accuses."""
        return frozenset(rank for blame in self.blames for rank in blame.culprits)


@dataclass(frozen=True, slots=True)
class Mark:
    """How right a verdict is; None where the case does not ask.

    Attributes:
        exact: Status and set of culprits are right.
        code: Every cause is reported with an accepted code, and none besides.
        site: The line of code is shown.
        call: The group and sequence number are right.
        named: Ranks that were accused.
        guilty: Those of them that the truth allows to accuse.
        false_alarm: Something is called wrong in a healthy job.
        gave_up: "Insufficient" where the files suffice.
        overconfident: An innocent rank was named with high confidence.
    """

    exact: bool
    code: bool
    site: bool | None
    call: bool | None
    named: int
    guilty: int
    false_alarm: bool
    gave_up: bool
    overconfident: bool


def judge(truth: Truth, verdict: Verdict) -> Mark:
    """Compare a verdict with the truth."""
    allowed = truth.culprits.union(*(rank for cause in truth.causes for rank in cause.also))
    healthy = truth.status[0] == "healthy"
    confident = {r for b in verdict.blames if b.confidence == "high" for r in b.culprits}
    wants_site = any(p.file for cause in truth.causes for p in cause.points)
    wants_call = any(p.group for cause in truth.causes for p in cause.points)
    return Mark(
        exact=verdict.status in truth.status and truth.accepts(verdict.named),
        code=verdict.status in truth.status and _codes_right(truth, verdict),
        site=_shown(truth, verdict, _same_line) if wants_site else None,
        call=_shown(truth, verdict, _same_call) if wants_call else None,
        named=len(verdict.named),
        guilty=len(verdict.named & allowed),
        false_alarm=healthy and (bool(verdict.named) or verdict.status in ("problem", "slow")),
        gave_up=verdict.status == "insufficient" and "insufficient" not in truth.status,
        overconfident=bool(confident - allowed),
    )


def _codes_right(truth: Truth, verdict: Verdict) -> bool:
    if not truth.causes:
        return not verdict.blames
    if truth.status[0] == "insufficient" and not verdict.blames:
        return True
    accepted = {code for cause in truth.causes for code in cause.codes}
    if any(blame.code not in accepted for blame in verdict.blames):
        return False
    return all(_matches(cause, verdict.blames) for cause in truth.causes)


def _matches(cause: Cause, blames: Iterable[Blame]) -> bool:
    return any(blame.code in cause.codes for blame in blames)


def _shown(truth: Truth, verdict: Verdict, same: Callable[[Point, Point], bool]) -> bool:
    """Whether every cause that has points has one of them among what the tool shows."""
    shown = [point for blame in verdict.blames for point in blame.points]
    return all(
        any(same(wanted, point) for wanted in cause.points for point in shown)
        for cause in truth.causes
        if cause.points
    )


def _same_line(wanted: Point, shown: Point) -> bool:
    same_file = shown.file == wanted.file or PurePath(shown.file).name == wanted.file
    return not wanted.file or (same_file and shown.line == wanted.line)


def _same_call(wanted: Point, shown: Point) -> bool:
    if (wanted.group, wanted.description) != (shown.group, shown.description):
        return False
    return wanted.seq in (-1, shown.seq)
