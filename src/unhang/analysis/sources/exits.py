"""Ranks whose process ended while their peers went on: who was first, how, and at which line.

A death explains what follows: peers wait for a rank that is no more, or fail because it is no
more. So it stands before findings about the same ranks, which become its consequences. Errors of
communication are never taken for the beginning, nor are ranks that were told to end; and where all
ranks ended alike, none of them is blamed. An end with exit status 0 counts only where peers were
left in calls: every job ends so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from unhang.analysis.sites import StackBook
from unhang.analysis.sources.looks import RankLook
from unhang.case import Case
from unhang.logs.following import follows
from unhang.model import Frame
from unhang.report import Confidence, Finding, Site, Subject
from unhang.wording import printable, rank_phrase

__all__ = ["with_ends"]

CODE: Final = "UH106"
SAME_TIME_NS: Final = 2 * 10**9
"""Exceptions closer together than this, with one text, are one and the same failure."""

_SIGNAL_BASE: Final = 128
_SIGNALS: Final = {
    4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV",
    31: "SIGSYS",
}  # fmt: skip
_KILLS: Final = frozenset(_SIGNALS) - {6}
_ORDERED: Final = frozenset({1, 2, 3, 15})  # told to end: the launcher, or somebody
_SHOWN_TEXT: Final = 160
_MOST_SHOWN: Final = 8

_LEFT_IN_CALLS: Final = frozenset(("UH101", "UH103", "UH302"))
"""Findings that show peers waiting for a rank that has not come."""

_KILLED, _RAISED, _LEFT, _UNCLEAR, _FOLLOWED = range(5)
"""How good a beginning an end is: the lowest that is there explains the others."""


@dataclass(frozen=True, slots=True)
class End:
    """How one rank ended.

    Attributes:
        kind: One of the five above.
        status: As shells say it; None where nobody saw it.
        error: "ValueError: bad batch", or "".
        frames: Where it raised, or else its last known line; innermost first.
        age_s: How old that line is at the end of the evidence; None where it raised there.
        time_ns: When it raised; 0 where unknown.
        ended_ns: When its process was seen to have ended; 0 where unknown.
    """

    rank: int
    kind: int
    status: int | None = None
    error: str = ""
    frames: tuple[Frame, ...] = ()
    age_s: float | None = None
    time_ns: int = 0
    ended_ns: int = 0
    host: str = ""
    pid: int = -1


def with_ends(
    findings: Sequence[Finding], case: Case, looks: Mapping[int, RankLook], book: StackBook
) -> list[Finding]:
    """Put a finding about ranks that ended first before the others.

    Findings that blame the same ranks become its consequences.

    Args:
        findings: From dumps and stacks.
        case: For the exceptions that dumps tell of.
        looks: For the exit status of processes and their last known lines.
        book: Takes the stacks that are referred to.
    """
    ends = _ends(case, looks)
    ends += _left(findings, ends, looks)
    first = _first(ends)
    if not first:
        return list(findings)
    culprits = {end.rank for end in first}
    blamed = culprits if len(culprits) < max(len(case.expected_ranks), 2) else set[int]()
    explained = [f for f in findings if f.role == "cause" and set(f.culprits) <= culprits]
    victims = {rank for finding in explained for rank in finding.victims}
    victims |= {end.rank for end in ends if end.kind == _FOLLOWED}
    everybody = set(case.expected_ranks) <= culprits | victims
    finding = _finding(first, ends, blamed, victims - culprits, book, everybody=everybody)
    if first[0].kind == _UNCLEAR:
        finding = _with_earlier(finding, first, looks)
    rest = [
        replace(f, role="consequence", caused_by=("f1",)) if f in explained and f.culprits else f
        for f in findings
        if f.code not in ("UH601", "UH901") or f.role == "cause"
    ]
    return [finding, *rest]


# ------------------------------------------------------------------ who ended, and how


def _ends(case: Case, looks: Mapping[int, RankLook]) -> list[End]:
    raised: dict[int, End] = {}
    for dump in case.dumps:
        if dump.exception and dump.rank not in raised:
            raised[dump.rank] = End(
                dump.rank,
                _FOLLOWED if follows(dump.exception, dump.exception_stack) else _RAISED,
                error=dump.exception,
                frames=dump.exception_stack,
                time_ns=dump.time_ns,
                host=dump.host,
                pid=dump.pid,
            )
    for look in looks.values():
        if look.gone and look.rank in raised:
            raised[look.rank] = replace(
                raised[look.rank], status=look.status, ended_ns=look.ended_ns
            )
        elif look.gone and look.status != 0:
            raised[look.rank] = _from_look(look)
    return [raised[rank] for rank in sorted(raised)]


def _from_look(look: RankLook) -> End:
    number = (look.status or 0) - _SIGNAL_BASE
    kind = _UNCLEAR
    if number in _KILLS:
        kind = _KILLED
    elif number in _ORDERED:
        kind = _FOLLOWED
    return End(
        look.rank,
        kind,
        status=look.status,
        frames=look.frames,
        age_s=look.age_s,
        ended_ns=look.ended_ns,
        host=look.host,
        pid=look.pid,
    )


def _left(
    findings: Sequence[Finding], ends: Sequence[End], looks: Mapping[int, RankLook]
) -> list[End]:
    """Ranks that ended as if all were well, and left peers in calls: who waits or fails tells.

    A rank that ended so after its peers had failed is none of them.
    """
    told = {end.rank for end in ends}
    gone = [look for look in looks.values() if look.gone and look.status == 0]
    gone = [look for look in gone if look.rank not in told]
    waited = {
        rank
        for finding in findings
        if finding.role == "cause" and finding.code in _LEFT_IN_CALLS
        for rank in finding.culprits
    }
    lost = [end for end in ends if end.kind in (_FOLLOWED, _UNCLEAR)]
    failed_ns = min((end.time_ns for end in lost if end.time_ns), default=0) + SAME_TIME_NS
    ended_ns = min((end.ended_ns for end in lost if end.ended_ns), default=0)
    failed = any(end.kind == _FOLLOWED and end.error for end in ends)
    return [
        replace(_from_look(look), kind=_LEFT)
        for look in gone
        if look.rank in waited or (failed and look.ended_ns <= max(failed_ns, ended_ns))
    ]


def _with_earlier(finding: Finding, first: Sequence[End], looks: Mapping[int, RankLook]) -> Finding:
    """Say which ranks had ended well before: whoever failed may have failed because of that."""
    began_ns = min(end.ended_ns for end in first)
    gone = [look for look in looks.values() if look.gone and look.status == 0]
    before = [look.rank for look in gone if 0 < look.ended_ns < began_ns]
    if not before:
        return finding
    verb = "was" if len(before) == 1 else "were"
    said = (
        f"{_capital(rank_phrase(before))} had ended with exit code 0 before it: it may have failed "
        f"because {rank_phrase(before)} {verb} gone."
    )
    return replace(finding, confidence="low", alternatives=(said, *finding.alternatives))


def _first(ends: Sequence[End]) -> list[End]:
    """The ends that nothing else explains; none where all of them follow from something."""
    best = min((end.kind for end in ends), default=_FOLLOWED)
    candidates = [end for end in ends if end.kind == best]
    if best == _FOLLOWED:
        return []
    if best != _RAISED:
        return candidates
    earliest = min(candidates, key=lambda end: (end.time_ns, end.rank))
    return [
        end
        for end in candidates
        if end is earliest
        or (end.error == earliest.error and end.time_ns - earliest.time_ns < SAME_TIME_NS)
    ]


# ------------------------------------------------------------------ what is said


def _finding(
    first: Sequence[End],
    ends: Sequence[End],
    blamed: set[int],
    victims: set[int],
    book: StackBook,
    *,
    everybody: bool,
) -> Finding:
    ranks = tuple(end.rank for end in first)
    same = len({_how(end) for end in first}) == 1
    how = _how(first[0]) if same else "ended in different ways"
    where = _where(first[0]) if len(first) == 1 else ""
    followed = [end for end in ends if end.kind == _FOLLOWED]
    return Finding(
        id="f1",
        code=CODE,
        role="cause",
        confidence=_confidence(first, blamed, everybody=everybody),
        summary=f"{_capital(rank_phrase(ranks))} {how}{where}.",
        culprits=tuple(sorted(blamed)),
        victims=tuple(sorted(victims)),
        subjects=tuple(
            Subject("process", f"pid {end.pid}", rank=end.rank, host=end.host or None, pid=end.pid)
            for end in first[:_MOST_SHOWN]
            if end.pid > 0
        ),
        sites=tuple(_sites(first, book)),
        evidence=tuple(_evidence(first, followed)),
        alternatives=_alternatives(first[0], blamed),
        actions=_actions(first[0]),
    )


def _confidence(first: Sequence[End], blamed: set[int], *, everybody: bool) -> Confidence:
    if first[0].kind == _LEFT and not everybody:
        return "medium"
    if first[0].kind == _UNCLEAR:
        return "low" if len(first) > 1 else "medium"
    return "high" if blamed else "medium"


def _how(end: End) -> str:
    """How it ended, after "rank 3"."""
    if end.error:
        return f"raised {printable(end.error, _SHOWN_TEXT)}"
    if end.status is None:
        return "is gone, and nobody saw how it ended"
    number = end.status - _SIGNAL_BASE
    if number in _SIGNALS:
        return f"was ended by {_SIGNALS[number]}"
    if end.kind == _LEFT:
        return "ended with exit code 0 while its peers were in calls"
    return f"ended with exit code {end.status}"


def _where(end: End) -> str:
    site = next(iter(_plain_sites([end])), None)
    if site is None:
        return "" if end.error else "; its last line is unknown"
    place = f"{site.function} ({site.file.rpartition('/')[2]}:{site.line})"
    if end.age_s is None:
        return f" at {place}"
    return f"; its last known line, {end.age_s:.1f} s old, is {place}"


def _plain_sites(ends: Iterable[End]) -> Iterable[Site]:
    return _sites(ends, StackBook(Case()))


def _sites(ends: Iterable[End], book: StackBook) -> Iterable[Site]:
    for end in list(ends)[:_MOST_SHOWN]:
        site = book.site((end.rank,), "culprit", end.frames)
        if site is not None:
            yield replace(site, age_s=end.age_s)


def _evidence(first: Sequence[End], followed: Sequence[End]) -> Iterable[str]:
    for end in first[:_MOST_SHOWN]:
        told = f"rank {end.rank} {_how(end)}"
        status = f" (exit status {end.status})" if end.error and end.status is not None else ""
        yield f"{_capital(told)}{status}{_where(end)}."
    if followed:
        error = next((end.error for end in followed if end.error), "")
        text = f": {printable(error, _SHOWN_TEXT)}" if error else ""
        ranks = rank_phrase([end.rank for end in followed])
        verb = "was" if len(followed) == 1 else "were"
        yield f"{_capital(ranks)} failed or {verb} ended after it{text}"


def _alternatives(end: End, blamed: set[int]) -> tuple[str, ...]:
    if not blamed:
        return ("All ranks ended alike: somebody or something outside may have ended them.",)
    if end.kind == _KILLED and end.status == _SIGNAL_BASE + 9:
        return ("Somebody, or the scheduler, may have sent the signal.",)
    if end.kind == _LEFT:
        return ("It may have ended as it should, and its peers made a call too many.",)
    if end.kind == _UNCLEAR:
        return ("An earlier failure of another rank may not be in the evidence.",)
    return ()


def _actions(end: End) -> tuple[str, ...]:
    if end.error:
        return ("Look at that line; what the other ranks print follows from it.",)
    if end.kind == _LEFT:
        return (
            "Look at why its program ends before its peers': uneven data, an early return or exit.",
            "With uneven data: drop_last, a DistributedSampler, or DistributedDataParallel.join().",
        )
    if end.status == _SIGNAL_BASE + 9:
        return (
            "Look for the out-of-memory killer on its host: dmesg | grep -iE 'oom|killed process'.",
            "Look at the memory limit of the job or its container.",
        )
    if end.kind == _KILLED or end.status == _SIGNAL_BASE + 6:
        return ("Look at its core file: unhang core; and at its last output: unhang logs.",)
    return ("Look at its last output: unhang logs.",)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
