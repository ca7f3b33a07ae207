"""Adds to what dumps and stacks show what the logs say: why a rank never came, and who agrees.

A log tells a reason, dumps tell who waits for whom. Where a log's first failure is that of a rank
for which others wait, it is the cause and the waiting its consequence. Watchdogs' lines that name
the same call are evidence; lines that contradict the dumps are told, and the confidence falls. A
failure of a rank that is seen waiting like the others is never made the cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from unhang.analysis.sources.log_counters import Counters, compare_counters, counters_of
from unhang.analysis.sources.log_places import placed
from unhang.analysis.sources.logs import differing_findings, failures, told_besides
from unhang.case import Case
from unhang.model import LogEvent
from unhang.report import Confidence, Finding, Site
from unhang.wording import printable, rank_phrase

__all__ = ["with_logs"]

_EXPLAINED: Final = frozenset(
    ("UH101", "UH102", "UH103", "UH104", "UH105", "UH106", "UH302", "UH401", "UH402", "UH602")
)
"""What may follow from the failure of one rank; a wrong call or a circle stands by itself."""

_NOT_FOUND: Final = frozenset(("UH601", "UH901"))
"""Observations that nothing was found, which a cause makes pointless."""

_ENDED: Final = "UH106"
_TELLS_OF_AN_END: Final = frozenset(("UH720", "UH721", "UH782", "UH793"))
"""Messages that say that a process ended, and no more: what `_ENDED` says already."""

_LOWER: Final[dict[Confidence, Confidence]] = {"high": "medium", "medium": "low", "low": "low"}
_SHOWN: Final = 160
_MOST: Final = 4


def with_logs(findings: Sequence[Finding], case: Case) -> list[Finding]:
    """Join findings from dumps and stacks with what the case's logs say.

    Args:
        findings: From dumps and stacks, causes first.
        case: For its log events, and for which process and host belongs to which rank.

    Returns:
        All findings, causes first; the given ones with what the logs add to them.
    """
    if not case.log_events and not case.log_facts:
        return list(findings)
    events = placed(case)
    ranks = sorted({*case.expected_ranks, *(e.rank for e in events if e.rank >= 0)})
    joined = _with_watchdogs(findings, events)
    candidates = failures(events, ranks)
    told = _fitting(candidates, joined) if candidates else None
    if told is not None:
        joined = _with_failure(joined, told)
        told = told if _leads(joined[0], told) else replace(told, role="observation")
    elif not any(finding.role == "cause" for finding in joined):
        joined = _instead(joined, compare_counters(events))
    reason = ("f1",) if any(finding.role == "cause" for finding in joined) else ()
    besides = [*told_besides(events, reason, told), *differing_findings(case.log_facts)]
    return [*joined, *besides]


# ------------------------------------------------------------------ the first failure


def _fitting(candidates: Sequence[Finding], findings: Sequence[Finding]) -> Finding:
    """The earliest failure of a rank that others wait for; else the earliest one.

    Of a later one it is said that something failed before it, and it is less sure.
    """
    causes = [f for f in findings if f.role == "cause" and f.culprits]
    fits = (c for c in candidates if any(_explains(c, f) or _tells_the_same(f, c) for f in causes))
    chosen = next(fits, candidates[0])
    if chosen is candidates[0]:
        return chosen
    earlier = f"An earlier failure in the logs: {candidates[0].evidence[0]}"
    confidence = _LOWER[chosen.confidence]
    return replace(chosen, confidence=confidence, alternatives=(earlier, *chosen.alternatives))


def _with_failure(findings: Sequence[Finding], failure: Finding) -> list[Finding]:
    causes = [finding for finding in findings if finding.role == "cause"]
    if not causes:
        sure = not any(f.code == "UH601" and f.confidence == "high" for f in findings)
        lowered = failure if sure else replace(failure, confidence=_LOWER[failure.confidence])
        return _instead(findings, [lowered])
    told = next((f for f in causes if _tells_the_same(f, failure)), None)
    if told is not None:
        return [_confirmed(f, failure) if f is told else f for f in findings]
    explained = [finding for finding in causes if _explains(failure, finding)]
    if explained and (explained[0] is findings[0] or findings[0].code != _ENDED):
        lead = _lead(failure, explained)
        rest = [
            replace(f, role="consequence", caused_by=("f1",)) if f in explained else f
            for f in findings
        ]
        return [lead, *sorted(rest, key=lambda f: f.role != "cause")]
    return [
        *(_doubted(f, failure) if f.role == "cause" else f for f in findings),
        replace(failure, role="observation", confidence="low", victims=(), caused_by=()),
    ]


def _leads(first: Finding, failure: Finding) -> bool:
    """Whether the first finding is that failure, or the end of its rank that it confirms."""
    confirmed = first.code == _ENDED and set(failure.culprits) <= set(first.culprits)
    return first.role == "cause" and (first.code == failure.code or confirmed)


def _instead(findings: Sequence[Finding], causes: Sequence[Finding]) -> list[Finding]:
    """The causes first, without the observations that nothing was found."""
    if not causes:
        return list(findings)
    return [*causes, *(f for f in findings if f.code not in _NOT_FOUND)]


def _tells_the_same(finding: Finding, failure: Finding) -> bool:
    same = bool(failure.culprits) and set(failure.culprits) <= set(finding.culprits)
    return finding.code == _ENDED and failure.code in _TELLS_OF_AN_END and same


def _explains(failure: Finding, finding: Finding) -> bool:
    """Whether a failure in the logs can be why others wait: it is of a rank for which they do."""
    if finding.code not in _EXPLAINED:
        return False
    if not finding.culprits:
        return True
    return bool(set(failure.culprits) & set(finding.culprits))


def _confirmed(finding: Finding, failure: Finding) -> Finding:
    """The end of a rank that its log tells as well, with the line and what to do about it."""
    sites = finding.sites or failure.sites
    return replace(
        finding,
        confidence="high" if failure.confidence != "low" else finding.confidence,
        sites=sites,
        evidence=(*finding.evidence, f"Its log says the same: {failure.evidence[0]}"),
        actions=_merged(finding.actions, failure.actions),
    )


def _lead(failure: Finding, explained: Sequence[Finding]) -> Finding:
    """The failure as the cause, with the waiting that it explains."""
    main = next((f for f in explained if f.op), explained[0])
    victims = {rank for f in explained for rank in f.victims} - set(failure.culprits)
    certain = bool(main.culprits) and failure.confidence != "low" and not failure.alternatives
    confidence: Confidence = "high" if certain else failure.confidence
    if not main.culprits and confidence == "high":
        confidence = "medium"  # The dumps show everybody in the call: only the log names a rank.
    return replace(
        failure,
        confidence=confidence,
        summary=_capital(f"{_reason(failure)}; {_waiting(main, victims)}"),
        victims=tuple(sorted(victims)),
        subjects=failure.subjects or main.subjects,
        group=main.group,
        seq=main.seq,
        op=main.op,
        calls=main.calls,
        waits=main.waits,
        sites=_sites(failure, explained),
        evidence=(
            *(f"Log: {sentence}" for sentence in failure.evidence[:1]),
            *failure.evidence[1:],
            *(f"Dumps: {f.summary}" for f in explained[:_MOST]),
            *(text for text in main.evidence if main.code != _ENDED),
        ),
        alternatives=failure.alternatives,
        actions=_merged(failure.actions, main.actions),
    )


def _reason(failure: Finding) -> str:
    """What failed, from the log's first failure: its own words after its rank."""
    _, _, text = failure.summary.partition(": ")
    who = rank_phrase(failure.culprits) if failure.culprits else "a process of unknown rank"
    where = ""
    if failure.sites:
        site = failure.sites[0]
        file = printable(site.file.rpartition("/")[2])
        where = f" at {printable(site.function)} ({file}:{site.line})"
    return f"{who} failed first, by its log: {printable(text, _SHOWN)}{where}"


def _waiting(main: Finding, victims: Iterable[int]) -> str:
    members = sorted(victims)
    if not members:
        return f"{main.summary[:1].lower()}{main.summary[1:]}"
    if not main.op:
        return f"{rank_phrase(members)} wait for it, or failed after it."
    call = main.op if main.seq is None else f"{main.op} #{main.seq}"
    return f"{rank_phrase(members)} {'waits' if len(members) == 1 else 'wait'} in {call}."


def _sites(failure: Finding, explained: Sequence[Finding]) -> tuple[Site, ...]:
    """The log's place first; of places that dumps know too, theirs, which has the whole stack."""
    known = {_place(site): site for finding in explained for site in finding.sites}
    own = tuple(known.get(_place(site), site) for site in failure.sites)
    rest = (site for finding in explained for site in finding.sites if site not in own)
    return (*own, *dict.fromkeys(rest))


def _place(site: Site) -> tuple[object, ...]:
    return (site.ranks, site.role, site.file, site.line)


def _doubted(finding: Finding, failure: Finding) -> Finding:
    """A cause beside which the logs name another one: both are told, neither is sure."""
    said = f"Sources disagree: the logs' first failure is another one: {failure.evidence[0]}"
    if finding.code not in _EXPLAINED or not failure.culprits:
        # A wrong call is wrong whatever else failed, and a line of nobody contradicts nobody.
        return replace(finding, alternatives=(*finding.alternatives, said.partition(": ")[2]))
    return replace(
        finding,
        confidence=_LOWER[finding.confidence],
        evidence=(*finding.evidence, said),
    )


# ------------------------------------------------------------------ watchdogs


def _with_watchdogs(findings: Sequence[Finding], events: Sequence[LogEvent]) -> list[Finding]:
    """Compare each cause that names a call with what the watchdogs printed about that group."""
    groups = counters_of(events)
    if not any(groups.values()):
        return list(findings)
    return [_compared(f, groups) if f.role == "cause" else f for f in findings]


@dataclass(frozen=True, slots=True)
class _Words:
    """What watchdogs say about one finding: sentences for it, and sentences against it."""

    agree: tuple[str, ...] = ()
    contradict: tuple[str, ...] = ()


def _compared(finding: Finding, groups: dict[str, dict[int, Counters]]) -> Finding:
    if finding.group is None or finding.seq is None:
        return finding
    names = {finding.group.name, finding.group.description}
    told: dict[int, Counters] = {}
    for name, counters in groups.items():
        if name in names:
            told |= counters
    words = _words(finding, finding.seq, told)
    if words.contradict:
        return replace(
            finding,
            confidence=_LOWER[finding.confidence],
            evidence=(
                *finding.evidence,
                *(f"Sources disagree: {text}" for text in words.contradict),
                *words.agree,
            ),
        )
    if not words.agree:
        return finding
    sure = finding.confidence == "medium" and bool(finding.culprits)
    return replace(
        finding,
        confidence="high" if sure else finding.confidence,
        evidence=(*finding.evidence, *words.agree),
    )


def _words(finding: Finding, seq: int, told: dict[int, Counters]) -> _Words:
    absent = finding.culprits if finding.code in ("UH101", "UH103") else ()
    waited = [r for r in finding.victims if r in told and told[r].seq == seq]
    elsewhere = [r for r in finding.victims if r in told and told[r].seq not in (-1, seq)]
    behind = [r for r in absent if r in told and 0 <= told[r].enqueued < seq]
    joined = [r for r in absent if r in told and r not in behind and _reach(told[r]) >= seq]
    agree = []
    if waited:
        ops = sorted({told[rank].op for rank in waited} - {""})
        named = f" ({', '.join(ops)})" if ops else ""
        agree.append(
            f"Watchdogs of {rank_phrase(waited)} say the same: timed out in #{seq}{named}."
        )
    if behind:
        counts = sorted({told[rank].enqueued for rank in behind})
        reach = ", ".join(f"#{count}" for count in counts[:_MOST])
        agree.append(f"The watchdog of {rank_phrase(behind)} had counted calls up to {reach} only.")
    contradict = []
    if joined:
        contradict.append(f"by its watchdog {rank_phrase(joined)} had enqueued #{seq}.")
    if elsewhere:
        by_seq: dict[int, list[int]] = defaultdict(list)
        for rank in elsewhere:
            by_seq[told[rank].seq].append(rank)
        where = "; ".join(f"{rank_phrase(r)} in #{s}" for s, r in sorted(by_seq.items())[:_MOST])
        contradict.append(f"watchdogs timed out in other calls of this group: {where}.")
    return _Words(tuple(agree), tuple(contradict))


def _reach(counters: Counters) -> int:
    """The last call that a rank is known to have enqueued."""
    return max(counters.enqueued, counters.seq)


def _merged(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    return (*first, *(text for text in second if text not in first))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
