"""Results of checks as a Report: what failed is a cause, what is doubtful an observation.

Healthy is what was looked at, not what was left out: a run that saw nothing of what it is for is
"insufficient", and what was skipped stands in the headline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from unhang.checks import COMM_RANKS_MISSING, GPU_MISSING, PORT_BLOCKED, SLOW_LINK
from unhang.doctor.checks.results import CheckResult
from unhang.model import Note
from unhang.report import Checked, Finding, Job, Report, Role, Status
from unhang.wording import count_of

MAX_NAMED = 4
MAX_LISTED = 3
_ORDER = {"fail": 0, "warn": 1, "info": 2}
_CORE = {"net": (PORT_BLOCKED, SLOW_LINK), "gpu": (GPU_MISSING,), "comm": (COMM_RANKS_MISSING,)}
"""Per part the checks that it is for; of `env` it is any. Settings alone say little of a job."""


def to_report(results: Sequence[CheckResult], parts: Sequence[str] = ()) -> Report:
    """Make the Report of `unhang doctor`.

    Checks that passed or were skipped become notes, so that nothing is silent.

    Args:
        results: What the checks saw.
        parts: The parts that were asked for by name: each must have been looked at. Without any,
            one of net, gpu and comm must.
    """
    blind = _blind(results, parts)
    results = fold(results)
    bad = sorted((r for r in results if r.level in _ORDER), key=lambda r: (_ORDER[r.level], r.code))
    findings = tuple(_finding(i, result) for i, result in enumerate(bad))
    failed = [finding for finding in findings if finding.role == "cause"]
    quiet = [Note("info", _name(r), f"{r.level}: {r.seen}") for r in results if r not in bad]
    status: Status = "problem" if failed else "insufficient" if blind else "healthy"
    return Report(
        status=status,
        summary=_failures(failed) if failed else _counts(results, blind),
        job=Job(),
        findings=findings,
        notes=tuple(quiet),
        checks=tuple(
            map(_checked, sorted(results, key=lambda r: (_ORDER.get(r.level, 3), r.code)))
        ),
    )


def _checked(result: CheckResult) -> Checked:
    remedy = " ".join(_remedies(result)) if result.level in _ORDER else ""
    return Checked(result.code, result.check.name, result.level, result.seen, remedy)


def _remedies(result: CheckResult) -> tuple[str, ...]:
    return result.per_host or (result.action or result.check.action,)


def _blind(results: Sequence[CheckResult], parts: Sequence[str]) -> str:
    """The parts whose purpose was not looked at, in words; "" if what was asked for was."""
    if parts:
        return " and ".join(
            part for part in parts if not _looked_at(part, results, everywhere=True)
        )
    seen = any(_looked_at(part, results, everywhere=False) for part in _CORE)
    return "" if seen else ", ".join(_CORE)


def _looked_at(part: str, results: Sequence[CheckResult], *, everywhere: bool) -> bool:
    """Whether checks that a part is for have run: on every node, or on one at least.

    A skipped one that is about a node tells of a node that could not be looked at.
    """
    own = [result for result in results if result.check.part == part]
    if part not in _CORE:
        return any(result.level != "skip" for result in own)
    core = [result for result in own if result.check in _CORE[part]]
    left_out = any(result.level == "skip" and result.subjects for result in core)
    ran = any(result.level != "skip" for result in core)
    return ran and not (everywhere and left_out)


def fold(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Say once what is the same on several hosts: "node01, node02 and 6 more: …"."""
    groups: dict[tuple[object, ...], list[CheckResult]] = defaultdict(list)
    for number, result in enumerate(results):
        host = result.subjects[0].host if result.subjects else None
        same = host and result.seen.startswith(f"{host}: ") and not result.ranks
        what = result.seen.removeprefix(f"{host}: ") if same else number
        groups[result.code, result.level, what, result.evidence].append(result)
    return [_folded(group) for group in groups.values()]


def _folded(group: Sequence[CheckResult]) -> CheckResult:
    if len(group) == 1:
        return group[0]
    hosts = [str(result.subjects[0].host) for result in group]
    more = f" and {len(hosts) - MAX_NAMED} more" if len(hosts) > MAX_NAMED else ""
    names = ", ".join(hosts[:MAX_NAMED]) + more
    seen = group[0].seen.removeprefix(f"{hosts[0]}: ")
    subjects = tuple(subject for result in group for subject in result.subjects)
    differ = len({result.action for result in group}) > 1
    told = zip(hosts[:MAX_NAMED], group, strict=False) if differ else ()
    per_host = tuple(f"On {host}: {each.action}" for host, each in told if each.action)
    return replace(group[0], seen=f"{names}: {seen}", subjects=subjects, per_host=per_host)


def _name(result: CheckResult) -> str:
    return f"{result.code} {result.check.slug}"


def _failures(failed: Sequence[Finding]) -> str:
    more = len(failed) - 1
    return failed[0].summary + (f" ({count_of(more, 'more check')} failed)" if more else "")


def _counts(results: Sequence[CheckResult], blind: str) -> str:
    """What ran, how it ended, and what did not run: "3 checks passed, 1 skipped: …"."""
    skipped = [result.seen.rstrip(".") for result in results if result.level == "skip"]
    warned = [result.seen.rstrip(".") for result in results if result.level == "warn"]
    told = [f"{count_of(len(results) - len(skipped) - len(warned), 'check')} passed"]
    told += [f"{len(warned)} gave a warning: {_listed(warned)}"] if warned else []
    told += [f"{len(skipped)} skipped: {_listed(skipped)}"] if skipped else []
    said = ", ".join(told) + "."
    return f"Too few checks ran for a verdict on {blind}: {said}" if blind else said


def _listed(seen: Sequence[str]) -> str:
    more = len(seen) - MAX_LISTED
    return "; ".join(seen[:MAX_LISTED]) + (f"; and {more} more" if more > 0 else "")


def _finding(index: int, result: CheckResult) -> Finding:
    kind = result.check.kind
    role: Role = "cause" if result.level == "fail" else "observation"
    return Finding(
        id=f"f{index + 1}",
        code=kind.code,
        role=role,
        confidence=result.confidence,
        confidence_reasons=(result.doubt,) if result.doubt else (),
        summary=result.seen,
        culprits=tuple(sorted(result.ranks)) if role == "cause" else (),
        subjects=result.subjects,
        evidence=(*result.evidence, kind.meaning),
        actions=_remedies(result),
    )
