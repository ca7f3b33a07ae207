"""A verdict of any tool in common terms, and its comparison with a truth.

Tools differ in what they can say at all: a peer that knows no codes is given the nearest ones by
its adapter. Nothing here knows a tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePath

from lab.truth import Cause, Point, Truth

CONFIDENCES = ("high", "medium", "low")


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
        claims: Of each cause that was reported with a confidence: code, confidence, and whether
            both its code and all its culprits are right.
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
    claims: tuple[tuple[str, str, bool], ...] = ()

    @property
    def right(self) -> bool:
        """Status, culprits and codes."""
        return self.exact and self.code


def judge(truth: Truth, verdict: Verdict) -> Mark:
    """Compare a verdict with the truth, or with the nearest verdict that is right as well."""
    marks = [_against(option, verdict) for option in (truth, *truth.either)]
    return max(marks, key=lambda mark: (mark.right, mark.exact, mark.code, not mark.overconfident))


def _against(truth: Truth, verdict: Verdict) -> Mark:
    allowed = frozenset[int]().union(*(cause.allowed for cause in truth.causes))
    healthy = truth.status[0] == "healthy"
    confident = {r for b in verdict.blames if b.confidence == "high" for r in b.culprits}
    points = [*truth.lines, *(point for cause in truth.causes for point in cause.points)]
    if truth.status[0] == "insufficient":  # nothing is accused, so nowhere is pointed at
        points = []
    return Mark(
        exact=verdict.status in truth.status and truth.accepts(verdict.named),
        code=verdict.status in truth.status and _codes_right(truth, verdict),
        site=_shown(truth, verdict, _same_line) if any(p.file for p in points) else None,
        call=_shown(truth, verdict, _same_call) if any(p.group for p in points) else None,
        named=len(verdict.named),
        guilty=len(verdict.named & allowed),
        false_alarm=healthy and (bool(verdict.named) or verdict.status in ("problem", "slow")),
        gave_up=verdict.status == "insufficient" and "insufficient" not in truth.status,
        overconfident=bool(confident - allowed) or _too_sure(truth, verdict),
        claims=tuple(
            (blame.code, blame.confidence, _claim_right(truth, blame))
            for blame in verdict.blames
            if blame.confidence
        ),
    )


def _too_sure(truth: Truth, verdict: Verdict) -> bool:
    """Whether a cause is reported with more confidence than its evidence allows."""
    return any(
        CONFIDENCES.index(blame.confidence) < CONFIDENCES.index(cause.ceiling)
        for cause in truth.causes
        for blame in verdict.blames
        if blame.confidence and blame.code in cause.codes
    )


def _claim_right(truth: Truth, blame: Blame) -> bool:
    """Whether one reported cause is a true one; it may name some of the culprits of its cause."""
    return any(
        blame.code in cause.codes
        and (blame.culprits <= cause.allowed if blame.culprits else cause.accepts(frozenset()))
        for cause in truth.causes
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
    """Whether all lines, and of each cause that has points one, are among what the tool shows."""
    shown = [point for blame in verdict.blames for point in blame.points]
    wanted = [*((line,) for line in truth.lines), *(c.points for c in truth.causes if c.points)]
    return all(any(same(one, point) for one in points for point in shown) for points in wanted)


def _same_line(wanted: Point, shown: Point) -> bool:
    same_file = shown.file == wanted.file or PurePath(shown.file).name == wanted.file
    return not wanted.file or (same_file and shown.line == wanted.line)


def _same_call(wanted: Point, shown: Point) -> bool:
    if (wanted.group, wanted.description) != (shown.group, shown.description):
        return False
    return wanted.seq in (-1, shown.seq)


def disagreements(truth: Truth, verdict: Verdict) -> list[str]:
    """Say in sentences how a verdict differs from the nearest right one; empty if it is right."""
    options = (truth, *truth.either)
    return min((_differences(option, verdict) for option in options), key=len)


def _differences(truth: Truth, verdict: Verdict) -> list[str]:
    mark = _against(truth, verdict)
    wrong = []
    if verdict.status not in truth.status:
        wrong.append(f"status is {verdict.status}, not {' or '.join(truth.status)}")
    if not truth.accepts(verdict.named):
        wrong.append(f"culprits are {sorted(verdict.named)}, not {sorted(truth.culprits)}")
    if not _codes_right(truth, verdict):
        codes = sorted({code for cause in truth.causes for code in cause.codes})
        wrong.append(f"codes are {sorted({b.code for b in verdict.blames})}, not among {codes}")
    if mark.overconfident:
        wrong.append("confidence is higher than the evidence allows")
    if truth.status[0] == "problem" and mark.site is False:
        missing = [p for p in truth.lines if not _shown(Truth((), lines=(p,)), verdict, _same_line)]
        wrong += [f"{point.file}:{point.line} is not shown" for point in missing]
    return wrong
