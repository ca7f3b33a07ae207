"""The one judgement: what stands for itself, what follows from what, how sure, in which order.

`settle` brings claims of rules into shape: one mistake is reported once, the last resort is taken
back where something else is known to be wrong, most victims first. Once all sources are weighed,
`most_telling_first` orders them, and `judge` numbers them, puts them into words and makes the
report: for dumps, stacks, logs, traces and reports alike. No other module numbers, ranks or says
what the status of a report is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from unhang._version import __version__
from unhang.analysis.shared.claims import Claim, Doubt, Stance, confidence_of
from unhang.analysis.words import finding_of
from unhang.kinds import Trait
from unhang.model import Frame, Note
from unhang.report import Confidence, Finding, Incident, Job, RankStatus, Report, Status

MAX_CLAIMS: Final = 64

_LEVELS: Final[tuple[Confidence, ...]] = ("high", "medium", "low")


class Backdrop(Struct, frozen=True, kw_only=True):
    """What a report tells next to its findings.

    Attributes:
        table: Gives every expected rank a status, for the findings (numbered, in order).
        status: What `status_of` makes of the claims, mostly.
        stacks: By id; read after `table`, which may add to it.
        summary: Instead of the one that the findings make; "" for that.
    """

    job: Job = field(default_factory=Job)
    incident: Incident = field(default_factory=Incident)
    table: Callable[[Sequence[Finding]], Iterable[RankStatus]] = lambda _: ()
    stacks: MutableMapping[str, tuple[Frame, ...]] = field(default_factory=dict)
    notes: Sequence[Note] = ()
    status: Status = "healthy"
    summary: str = ""


def settle(claims: Iterable[Claim]) -> tuple[list[Claim], tuple[Note, ...]]:
    """Bring the claims of rules into shape, before other sources are weighed.

    Returns:
        Causes first, those with most victims first; and a note on what was left out.
    """
    found = sorted(_once(_last_resort(list(claims))), key=_importance)
    if len(found) <= MAX_CLAIMS:
        return found, ()
    text = f"{len(found) - MAX_CLAIMS} further findings of fewer victims are left out."
    return found[:MAX_CLAIMS], (Note("info", "findings", text),)


def judge(claims: Sequence[Claim], backdrop: Backdrop) -> Report:
    """Make the report of claims that have been settled and weighed.

    Args:
        claims: In the order of the report.
        backdrop: What stands next to them.
    """
    findings = [
        finding_of(claim, f"f{number + 1}", _reasons(claim, claims))
        for number, claim in enumerate(claims)
    ]
    table = tuple(backdrop.table(findings))
    if backdrop.status == "insufficient":  # of no rank it is known that it is well
        table = tuple(
            dataclasses.replace(row, status="unknown") if row.status == "ok" else row
            for row in table
        )
    return Report(
        status=backdrop.status,
        summary=backdrop.summary or summary_of(findings),
        job=backdrop.job,
        incident=backdrop.incident,
        findings=tuple(findings),
        ranks=table,
        stacks=dict(backdrop.stacks),
        notes=tuple(backdrop.notes),
        tool_version=__version__,
    )


def most_telling_first(claims: Iterable[Claim]) -> list[Claim]:
    """Put causes first, and of these the ones that say most; equals keep their order.

    A cause that names ranks and is no mere guess comes before one that names none, however many
    wait in that: it is what a reader can act on. A circle counts as a name, because it is proven
    without one. Guesses come last: a name that may be wrong misleads.
    """
    return sorted(claims, key=_telling)


def _telling(claim: Claim) -> tuple[bool, bool, int, bool]:
    if not claim.is_cause:
        return True, False, 0, False
    level = _LEVELS.index(confidence_of(claim))
    names = bool(claim.culprits) or claim.kind.family == "deadlock"
    is_guess = level == len(_LEVELS) - 1
    return False, is_guess or not names, level, not claim.culprits


def _reasons(claim: Claim, claims: Sequence[Claim]) -> list[str]:
    """Numbers of the findings that a claim follows from: those may have been weighed since."""
    kinds = {reason.kind for reason in claim.caused_by}
    found = (f"f{n + 1}" for n, each in enumerate(claims) if each.is_cause and each.kind in kinds)
    return [next(found, "f1")] if kinds else []


def _importance(claim: Claim) -> tuple[object, ...]:
    """Causes first, most victims first; the rest only keeps the order of a case the same."""
    group, sides = claim.group.name if claim.group else "", [side.ranks for side in claim.calls]
    weight = (not claim.is_cause, -len(claim.victims), claim.kind.code, claim.culprits)
    return (*weight, claim.victims, sides, group, claim.seq or 0, claim.op or "")


def _last_resort(claims: Sequence[Claim]) -> list[Claim]:
    """Take silent ranks back to an observation where something is known to be wrong.

    A rank without a dump may be waiting like the others; it is suspected only where nothing else
    explains the hang. Then calls that stand for no known reason may stand for it.
    """
    causes = [c for c in claims if c.is_cause]
    silent = [c for c in causes if c.kind.has(Trait.LAST_RESORT)]
    others = [c for c in causes if not c.kind.has(Trait.LAST_RESORT)]
    alone = [c for c in silent if not any(_may_explain(other, c) for other in others)]
    if alone:
        return [replace(c, role="observation") if c in others else c for c in claims]
    return [
        replace(c, role="observation").doubted([Doubt.OTHER_CAUSE]) if others and c in silent else c
        for c in claims
    ]


def _may_explain(cause: Claim, silent: Claim) -> bool:
    """Whether a cause may be why ranks wait for those who are silent.

    One that names no rank is no more than its own call: a rank that waits elsewhere waits for
    another.
    """
    named = cause.culprits or cause.kind.family == "deadlock"
    return bool(named) or {*silent.victims} <= {*cause.victims}


def _once(claims: Iterable[Claim]) -> list[Claim]:
    """Tell a mistake once, though it shows in several places; victims together."""
    kept: dict[object, Claim] = {}
    for claim in claims:
        one = claim.kind.has(Trait.ONE_MISTAKE) and claim.mistake is not None
        key: object = (claim.kind.code, claim.mistake) if one else len(kept)
        if key in kept:
            victims = {*kept[key].victims, *claim.victims} - set(claim.culprits)
            kept[key] = replace(kept[key], victims=tuple(sorted(victims)))
        else:
            kept[key] = claim
    return list(kept.values())


# ------------------------------------------------------------------ what findings amount to


def status_of(claims: Sequence[Claim]) -> Status:
    """The status that claims make: a problem if and only if one is a cause.

    A rank that fell silent may be stuck: that nothing else shows it is no health. Nor is a cause
    that was taken back for what other sources saw, or dumps in which a hang would leave no trace.
    """
    if any(claim.is_cause for claim in claims):
        return "problem"
    if any(_leaves_open(claim) for claim in claims):
        return "insufficient"
    return "slow" if any(claim.kind.family == "slow" for claim in claims) else "healthy"


def _leaves_open(claim: Claim) -> bool:
    undecided = claim.kind.has(Trait.UNDECIDED) or Doubt.LEAVES_NO_TRACE in claim.doubts
    return undecided or _taken_back(claim)


def _taken_back(claim: Claim) -> bool:
    return claim.kind.role == "cause" and bool(claim.weights(Stance.CONTRADICTS))


def summary_of(findings: Sequence[Finding]) -> str:
    """The first finding in its own words, with the number of further causes."""
    if not findings:
        return "Nothing wrong was found."
    more = sum(finding.role == "cause" for finding in findings) - 1
    rest = f" (and {more} more {'cause' if more == 1 else 'causes'})" if more > 0 else ""
    return findings[0].summary + rest
