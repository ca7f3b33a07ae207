"""The one judgement: what stands for itself, what follows from what, how sure, in which order.

`settle` brings claims of rules into shape: one mistake is told once, the last resort is taken back
where something else is known to be wrong, most victims first. `judge` numbers them, puts them into
words and makes the report: for dumps, stacks, logs, traces and reports alike. No other module
numbers, ranks or says what the status of a report is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from unhang._version import __version__
from unhang.analysis.claims import Claim, Doubt
from unhang.analysis.words import finding_of
from unhang.kinds import KINDS, Kind, Trait
from unhang.model import Frame, Note
from unhang.report import Finding, Incident, Job, RankStatus, Report, Status

__all__ = [
    "Backdrop",
    "following",
    "judge",
    "numbered",
    "report_of",
    "settle",
    "status_of",
    "summary_of",
]

MAX_CLAIMS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Backdrop:
    """What a report tells beside its findings.

    Attributes:
        table: Gives every expected rank a status, for the findings (numbered, in order).
        stacks: By id; read after `table`, which may add to it.
        status, summary: Instead of those that the findings make; "" for these.
    """

    job: Job = field(default_factory=Job)
    incident: Incident = field(default_factory=Incident)
    table: Callable[[Sequence[Finding]], Iterable[RankStatus]] = lambda _: ()
    stacks: Mapping[str, tuple[Frame, ...]] = field(default_factory=dict)
    notes: Sequence[Note] = ()
    status: Status | None = None
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


def following(claims: Sequence[Claim]) -> list[Claim]:
    """Claims with what they follow from: the first one, which was weighed after they were."""
    return [replace(c, caused_by=tuple(claims[:1])) if c.caused_by else c for c in claims]


def judge(claims: Sequence[Claim], backdrop: Backdrop) -> Report:
    """Make the report of claims that have been settled and weighed.

    Args:
        claims: In the order in which they are told.
        backdrop: What stands beside them.
    """
    places = {id(claim): f"f{number + 1}" for number, claim in enumerate(claims)}
    findings = [
        finding_of(c, places[id(c)], [places[id(cause)] for cause in c.caused_by]) for c in claims
    ]
    return report_of(findings, backdrop)


def report_of(findings: Sequence[Finding], backdrop: Backdrop) -> Report:
    """Make the report of findings that are numbered."""
    table = tuple(backdrop.table(findings))
    return Report(
        status=backdrop.status or status_of(findings),
        summary=backdrop.summary or summary_of(findings),
        job=backdrop.job,
        incident=backdrop.incident,
        findings=tuple(findings),
        ranks=table,
        stacks=dict(backdrop.stacks),
        notes=tuple(backdrop.notes),
        tool_version=__version__,
    )


def numbered(findings: Iterable[Finding]) -> list[Finding]:
    """Give findings their numbers: "f1", "f2" and so on."""
    return [replace(finding, id=f"f{place + 1}") for place, finding in enumerate(findings)]


def _importance(claim: Claim) -> tuple[object, ...]:
    """Causes first, most victims first; the rest only keeps the order of a case the same."""
    group, sides = claim.group.name if claim.group else "", [side.ranks for side in claim.calls]
    weight = (not claim.is_cause, -len(claim.victims), claim.kind.code, claim.culprits)
    return (*weight, claim.victims, sides, group, claim.seq or 0, claim.op or "")


def _last_resort(claims: Sequence[Claim]) -> list[Claim]:
    """Take silent ranks back to an observation where something is known to be wrong.

    A rank without a dump may be waiting like the others; it is suspected only where nothing else
    explains the hang.
    """
    if not any(c.is_cause and not c.kind.has(Trait.LAST_RESORT) for c in claims):
        return list(claims)
    return [
        replace(c, role="observation").doubted([Doubt.OTHER_CAUSE])
        if c.kind.has(Trait.LAST_RESORT)
        else c
        for c in claims
    ]


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


def status_of(findings: Iterable[Claim | Finding]) -> Status:
    """The status that findings make: a problem if and only if one is a cause.

    Somebody who fell silent may be stuck: that nothing else shows it is no health.
    """
    found = list(findings)
    if any(finding.role == "cause" for finding in found):
        return "problem"
    kinds = [kind for finding in found if (kind := _kind_of(finding)) is not None]
    if any(kind.has(Trait.UNDECIDED) for kind in kinds):
        return "insufficient"
    return "slow" if any(kind.family == "slow" for kind in kinds) else "healthy"


def _kind_of(finding: Claim | Finding) -> Kind | None:
    return finding.kind if isinstance(finding, Claim) else KINDS.get(finding.code)


def summary_of(findings: Sequence[Finding]) -> str:
    """The first finding in its own words, with the number of further causes."""
    if not findings:
        return "Nothing wrong was found."
    more = sum(finding.role == "cause" for finding in findings) - 1
    rest = f" (and {more} more {'cause' if more == 1 else 'causes'})" if more > 0 else ""
    return findings[0].summary + rest
