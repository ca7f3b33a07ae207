"""Which rank alone made exchanges unlike all others: once more, once less, or none any more.

A send that nothing meets looks the same whether it is one too many or its receive was left out.
How often ranks came to the lines of both sides tells: where all others came there equally often,
the one that did not is odd. And of ranks that wait in a circle, most in exchanges and few in a call
of the whole group, the few have left what the others still do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from unhang.analysis.rules.p2p_unmatched import P2P_UNMATCHED
from unhang.model import Frame, Group
from unhang.rehearse.matching.parties import LivingRank, MadeCall, own_lines
from unhang.rehearse.matching.referee import Referee
from unhang.rehearse.verdict.blaming import with_culprits
from unhang.rehearse.verdict.channels import last_partner, unmet
from unhang.report import Finding
from unhang.stacks.ownership import user_frame
from unhang.wording import count_of, printable, rank_phrase

_FAMILIES: Final = frozenset({"absent", "deadlock"})


def with_odd_exchange(finding: Finding, referee: Referee) -> Finding:
    """A finding about exchanges with the rank that alone made one more, or fewer, if one did."""
    if finding.role != "cause" or finding.family not in _FAMILIES:
        return finding
    odd = dict(_odd_ones(finding, referee))
    if len(odd) == 1 and finding.culprits != tuple(odd):
        return _blamed(finding, odd, "the other ranks may be the wrong ones")
    few = () if finding.culprits else _few(finding, referee)
    where = next(
        (f" to {call.op} #{call.seq}" for call in finding.calls if call.seq is not None), ""
    )
    words = f"{rank_phrase(few).capitalize()} went on{where}, and the others still wait to exchange"
    return _blamed(finding, dict.fromkeys(few, words), "most ranks may be the wrong ones")


def _blamed(finding: Finding, odd: dict[int, str], doubt: str) -> Finding:
    if not odd:
        return finding
    return replace(
        with_culprits(finding, odd),
        code=P2P_UNMATCHED.code,
        summary=f"{next(iter(odd.values()))}.",
        confidence="medium",
        confidence_reasons=(doubt,),
        evidence=(f"The final symptom: {finding.summary}", *finding.evidence),
        actions=P2P_UNMATCHED.actions,
        alternatives=(),
    )


def _pairs(finding: Finding, referee: Referee) -> Iterator[tuple[MadeCall, LivingRank]]:
    """Exchanges in which ranks of a finding wait, and the ranks that would meet them."""
    for rank in sorted({rank for call in finding.calls for rank in call.ranks}):
        process = referee.ranks.get(rank)
        for call in unmet(process) if process else ():
            if call.issue.peer in referee.ranks:
                yield call, referee.ranks[call.issue.peer]


def _odd_ones(finding: Finding, referee: Referee) -> Iterator[tuple[int, str]]:
    """Ranks that came to a line of an exchange unlike all others, and how often."""
    for call, partner in _pairs(finding, referee):
        before = last_partner(call, partner)
        if before is None:
            continue
        mine, theirs = _times(call, referee), _times(before, referee)
        me, peer = call.process.rank, partner.rank
        others = [n for rank, n in mine.items() if rank != me]
        others += [n for rank, n in theirs.items() if rank != peer]
        if not {*mine, *theirs} - {me, peer} or len(set(others)) != 1:
            continue
        usual = others[0]
        if mine[me] > usual == theirs[peer]:
            yield me, _counted(call, mine[me], usual)
        elif mine[me] == usual > theirs[peer]:
            yield peer, _counted(before, theirs[peer], usual)


def _times(call: MadeCall, referee: Referee) -> Counter[int]:
    """How often ranks made the same operation by the same lines."""
    way, op = own_lines(call.frames), call.issue.op
    return Counter(
        rank
        for rank, process in referee.ranks.items()
        for each in process.calls.values()
        if each.issue.op == op and own_lines(each.frames) == way
    )


def _counted(call: MadeCall, times: int, usual: int) -> str:
    frame = user_frame(Frame(*each) for each in call.frames) or Frame("", "?", 0)
    circle = call.circle
    label = Group(circle.name, circle.description, circle.ranks).label
    where = printable(f"{Path(frame.file).name}:{frame.line} in {frame.function}")
    return (
        f"Rank {call.process.rank} made {call.issue.op} of {printable(label)} ({where}) "
        f"{count_of(times, 'time')}, while all other ranks made it, or its counterpart, "
        f"{count_of(usual, 'time')}"
    )


def _few(finding: Finding, referee: Referee) -> list[int]:
    """Of ranks in a circle, the few in a collective for which most wait in exchanges."""
    inside = {r for call in finding.calls for r in call.ranks if call.seq is not None}
    waiting = {call.process.rank for call, _ in _pairs(finding, referee)} - inside
    met = {p.rank for call, p in _pairs(finding, referee) if last_partner(call, p)}
    calls = {(call.group, call.seq) for call in finding.calls if call.seq is not None}
    fewer = len(calls) == 1 and len(inside) < len(waiting) and inside <= met
    return sorted(inside) if fewer else []
