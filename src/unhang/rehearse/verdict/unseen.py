"""Disagreements that no dump has a place for: roots, shares of an exchange, communicators.

The analysis sees unlike names of calls, or a call that stands still with all its members in it. The
referee knows why: what was asked of it, and which communicator carries what.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from unhang.analysis.rules.call_mismatch import (
    DTYPE_MISMATCH,
    OP_MISMATCH,
    SHAPE_MISMATCH,
    SPLIT_MISMATCH,
)
from unhang.analysis.rules.not_progressing import JOINED_NOT_PROGRESSING
from unhang.analysis.rules.p2p_mismatch import P2P_MISMATCH
from unhang.model import Group
from unhang.rehearse.matching.encounters import unpaired
from unhang.rehearse.matching.parties import Frames, MadeCall, own_lines
from unhang.rehearse.matching.referee import Referee
from unhang.rehearse.verdict.blaming import with_culprits
from unhang.report import Finding
from unhang.wording import count_of, printable, rank_phrase

_UNEQUAL: Final = frozenset({"all_to_all", "gather", "scatter"})
"""Operations whose members have parts of their own: who is whose counterpart is the question."""
_ONE_COMMUNICATOR: Final = (
    "Put both sides into a batch (batch_isend_irecv), or neither.",
    "Or give init_process_group a device_id: then one communicator carries both.",
)

_TWO_COMMUNICATORS: Final = (
    "Where init_process_group has no device_id, ProcessGroupNCCL carries a batch by the "
    "communicator of its group, and a single send or receive by one of its two ranks."
)


def with_unseen(finding: Finding, referee: Referee) -> Finding:
    """A finding with the kind and the words of what the referee alone knows."""
    if finding.code in (OP_MISMATCH.code, SPLIT_MISMATCH.code):
        return _with_counterparts(finding, referee)
    if finding.code in (SHAPE_MISMATCH.code, DTYPE_MISMATCH.code):
        return _with_lines(finding, referee)
    if finding.code == JOINED_NOT_PROGRESSING.code:
        return _with_communicators(finding, referee)
    return finding


def _with_lines(finding: Finding, referee: Referee) -> Finding:
    """Calls of one operation that ranks made at different lines: they are different calls."""
    calls = _apart(finding, referee)
    sides: defaultdict[Frames, list[int]] = defaultdict(list)
    for call in calls:
        sides[own_lines(call.frames)].append(call.process.rank)
    alike = [set(call.ranks) for call in finding.calls]
    mixed = any(sum(not side.isdisjoint(ranks) for side in alike) > 1 for ranks in sides.values())
    if len(sides) < len(alike) or mixed or not all(sides):
        return finding
    ordered = sorted(sides.items(), key=lambda side: -len(side[1]))
    told = "; ".join(f"{rank_phrase(ranks)} at {_line(way)}" for way, ranks in ordered)
    circle = calls[0].circle
    label = Group(circle.name, circle.description, circle.ranks).label
    return replace(
        finding,
        code=OP_MISMATCH.code,
        summary=f"Members of {printable(label)} made {finding.op} #{finding.seq} at different "
        f"lines: {told}.",
        evidence=(f"The sizes differ: {finding.summary}", *finding.evidence),
        actions=OP_MISMATCH.actions,
        alternatives=(),
    )


def _line(way: Frames) -> str:
    _, file, line = way[0]
    return printable(f"{Path(file).name}:{line}")


def _with_counterparts(finding: Finding, referee: Referee) -> Finding:
    """An exchange, gather or scatter whose members do not fit each other."""
    calls = _apart(finding, referee)
    if len({call.issue.op for call in calls}) != 1 or calls[0].issue.op not in _UNEQUAL:
        return finding
    circle = calls[0].circle
    group = Group(circle.name, circle.description, circle.ranks)
    what = f"{calls[0].issue.op} #{finding.seq} of {printable(group.label)}"
    text = _roots(what, calls) or _shares(what, calls)
    if not text:
        return finding
    finding = replace(
        finding,
        code=SPLIT_MISMATCH.code,
        summary=text,
        op=calls[0].issue.op,
        actions=_ACTIONS["root" if calls[0].issue.root >= 0 else "share"],
        alternatives=(),
    )
    return finding if finding.culprits else with_culprits(finding, _in_all_pairs(calls))


def _in_all_pairs(calls: Sequence[MadeCall]) -> tuple[int, ...]:
    """The one rank that is in each of several pairs that do not fit, if one is."""
    pairs = unpaired(calls)
    odd = set.intersection(*map(set, pairs)) if len(pairs) > 1 else set()
    return tuple(calls[place].process.rank for place in odd) if len(odd) == 1 else ()


_ACTIONS: Final = {
    "root": ("Print the rank and the root (src or dst) just before this line on all ranks.",),
    "share": SPLIT_MISMATCH.actions,
}


def _apart(finding: Finding, referee: Referee) -> Sequence[MadeCall]:
    """The calls of the members that disagree."""
    name = finding.group.name if finding.group else None
    for circle in referee.circles.values():
        if circle.apart and (circle.name, circle.apart[0].seq) == (name, finding.seq):
            return circle.apart
    return ()


def _roots(what: str, calls: Sequence[MadeCall]) -> str:
    sides: defaultdict[int, list[int]] = defaultdict(list)
    for call in calls:
        sides[call.issue.root].append(call.process.rank)
    if len(sides) == 1:
        return ""
    ordered = sorted(sides.items(), key=lambda side: -len(side[1]))
    told = "; ".join(f"rank {root} by {rank_phrase(ranks)}" for root, ranks in ordered)
    return f"Members disagree about the root of {what}: it is {told}."


def _shares(what: str, calls: Sequence[MadeCall]) -> str:
    pairs = unpaired(calls)
    if not pairs:
        return ""
    giver, taker = pairs[0]
    gives, takes = calls[giver].told["gives"][taker], calls[taker].told["takes"][giver]
    ranks = [call.process.rank for call in calls]
    more = f" The same holds for {count_of(len(pairs) - 1, 'other pair')}." if pairs[1:] else ""
    return (
        f"Members disagree about what passes in {what}: rank {ranks[giver]} gives {gives} to "
        f"rank {ranks[taker]}, which takes {takes} elements.{more}"
    )


def _with_communicators(finding: Finding, referee: Referee) -> Finding:
    """A send and a receive, only one of them in a batch: each waits in its own communicator."""
    ranks = {rank for call in finding.calls for rank in call.ranks}
    pair = next(_between_communicators(referee, ranks), None)
    if pair is None:
        return finding
    batched, single = pair
    one, other = batched.process.rank, single.process.rank
    verbs = {"send": "sends to", "recv": "receives from"}
    return replace(
        finding,
        code=P2P_MISMATCH.code,
        summary=f"Rank {one} {verbs[batched.issue.op]} rank {other} in a batch, and rank {other} "
        f"{verbs[single.issue.op]} rank {one} outside of one: they use different communicators.",
        confidence="high",
        confidence_reasons=(),
        evidence=(_TWO_COMMUNICATORS,),
        actions=_ONE_COMMUNICATOR,
        alternatives=(),
    )


def _between_communicators(
    referee: Referee, ranks: set[int]
) -> Iterator[tuple[MadeCall, MadeCall]]:
    """The first send and receive of two ranks that wait for each other, one of them in a batch."""
    first: dict[tuple[int, int, str], MadeCall] = {}
    for rank in sorted(ranks & set(referee.ranks)):
        for call in referee.ranks[rank].calls.values():
            if call.circle.pairs_apart and call.issue.peer >= 0 and not call.met_ns:
                first.setdefault((rank, call.issue.peer, call.issue.op), call)
    for (rank, peer, op), call in first.items():
        other = first.get((peer, rank, "recv" if op == "send" else "send"))
        if other and other.circle is call.circle and other.in_pair and not call.in_pair:
            yield call, other
