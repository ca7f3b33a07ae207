"""Calls that have ended although their members did not fit: nothing waits, and the data are wrong.

NCCL checks neither operations nor sizes nor dtypes. Where buffers happen to suffice, such a call
ends, with wrong values. It is reported where nothing else is wrong, and never as sure: what
is stuck goes first, and a program may know why. Compared are calls of groups whose members are
recorded, in which ranks have agreed as well: else it may be the dump of another job. What was
launched as one is one call, compared in all its parts.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np
from msgspec import Struct

from unhang.analysis.matching.collectives import aspect_of
from unhang.analysis.rules.call_mismatch import KIND_OF, CallSaid, MembersDisagree
from unhang.analysis.rules.rule import Rule, Unless, When
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.ops import Demand, demand_of, rule_of
from unhang.kinds import Kind
from unhang.report import GroupRef
from unhang.spans import distinct

_SPARSE = 8
_MOST_SIDES = 8
_ODD = np.uint64(0x9E3779B97F4A7C15)
"""Its powers lie far apart: sums of few small multiples are equal by chance once in 2^64."""


class _Compared(Struct, frozen=True, eq=False):
    """Calls that are compared, a row for each rank that made one: the last of its entries.

    Attributes:
        row: That entry; those of a batch stand behind each other in `part`, from `first` on.
        demand: Equal where all entries demand the same.
        place: Equal where channel and sequence number are.
    """

    row: Ints
    demand: Ints
    place: Ints
    channel: Ints
    first: Ints
    size: Ints
    part: Ints
    demands: list[Demand]

    def demanded(self, at: int) -> tuple[Demand, ...]:
        """What each entry of a call demands."""
        parts = self.part[self.first[at] : self.first[at] + self.size[at]]
        return tuple(self.demands[number] for number in parts.tolist())


def _ended_unlike(situation: Situation) -> list[Claim]:
    """For each group, the first call that ended though its members disagree about it."""
    compared = _compared(situation)
    unlike, alike = _agreement(compared)
    found = []
    for channel in distinct(compared.channel[unlike]).tolist():
        here = compared.channel == channel
        places = distinct(compared.place[here & unlike])
        if (here & alike).any():
            rows = np.flatnonzero(compared.place == places[0])
            claim = _claim(situation, compared, rows, len(places))
            found += [claim] if claim is not None else []
    return found


RULE: Final = Rule(
    when=When.CALLS,
    unless=Unless.CAUSE,
    tells=lambda facts: _ended_unlike(facts.situation) if facts.situation else (),
)


def _compared(situation: Situation) -> _Compared:
    evidence = situation.evidence
    case, calls = evidence.case, evidence.case.calls
    n = max(len(case.signatures), 1)
    pair = np.asarray(calls.name, np.int64) * n + calls.signature
    pairs, at = np.unique(pair, return_inverse=True)
    demands = [demand_of(case.names[p // n], case.signatures[p % n]) for p in pairs.tolist()]
    known = [
        _is_compared(case.names[p // n].op, d) for p, d in zip(pairs.tolist(), demands, strict=True)
    ]
    numbers: dict[Demand, int] = {}
    demand = np.asarray([numbers.setdefault(each, len(numbers)) for each in demands], np.int64)
    rows = np.flatnonzero(_ended(situation))
    place = _places(evidence.channel(rows), np.asarray(calls.seq[rows], np.int64))
    order = np.lexsort((calls.dump[rows], place))  # rows of one call stay in order
    rows, place = rows[order], place[order]
    kind, dump = at.reshape(-1)[rows], calls.dump[rows]
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (place[1:] != place[:-1]) | (dump[1:] != dump[:-1])
    first = np.flatnonzero(begins)
    part, size = demand[kind], np.diff(np.r_[first, len(rows)])
    unknown = ~np.asarray([*known, False])[kind]
    call = np.cumsum(begins) - 1
    whole = np.bincount(call[unknown], minlength=len(first)) == 0
    last = (first + size - 1)[whole]
    return _Compared(
        row=rows[last],
        demand=_as_one(part, first, size)[whole],
        place=place[last],
        channel=evidence.channel(rows[last]),
        first=first[whole],
        size=size[whole],
        part=part,
        demands=list(numbers),
    )


def _as_one(part: Ints, first: Ints, size: Ints) -> Ints:
    """A number for all that the entries of a call demand, in their order."""
    if not len(first):
        return part
    within = np.arange(len(part)) - np.repeat(first, size)
    weighed = (part.astype(np.uint64) + np.uint64(1)) * _ODD ** (within + 1).astype(np.uint64)
    _, found = np.unique(np.add.reduceat(weighed, first), return_inverse=True)
    return np.asarray(found, np.int64).reshape(-1)


def _is_compared(op: str, demand: Demand) -> bool:
    """Whether all that is demanded of all members alike is known."""
    rule = rule_of(op)
    if not rule.known or rule.compared == "nothing":
        return rule.known
    sized = demand.elements is not None or rule.compared == "totals"
    return sized and bool(demand.dtypes)


def _ended(situation: Situation) -> Bools:
    """Rows of finished collectives in groups that are recorded."""
    evidence = situation.evidence
    calls = evidence.case.calls
    trusted = [not group.inferred for group in evidence.case.groups]
    found: Bools = evidence.finished & evidence.collective & (calls.seq >= 0)
    found &= evidence.counts[calls.dump] & (calls.group >= 0)
    found &= np.asarray([*trusted, False])[calls.group]
    return found


def _places(channel: Ints, seq: Ints) -> Ints:
    """A number for each call: equal where channel and sequence number are."""
    if not len(seq):
        return seq
    n = int(channel.max()) + 1
    low, high = np.full(n, np.iinfo(np.int64).max), np.full(n, -1, np.int64)
    np.minimum.at(low, channel, seq)
    np.maximum.at(high, channel, seq)
    width = np.where(high >= 0, np.minimum(high - low, len(seq) * _SPARSE) + 1, 0)
    if width.sum() > len(seq) * _SPARSE:  # numbers with wide gaps between them
        _, place = np.unique(np.stack([channel, seq]), axis=1, return_inverse=True)
        return np.asarray(place, np.int64).reshape(-1)
    found: Ints = (np.cumsum(width) - width)[channel] + seq - low[channel]
    return found


def _agreement(compared: _Compared) -> tuple[Bools, Bools]:
    """Per call: members disagree about it; several made it, and agree.

    Of batches of other lengths nothing is known: a ring that is full has lost the first entries.
    """
    n = int(compared.place.max(initial=-1)) + 1
    low, high = np.full(n, np.iinfo(np.int64).max), np.full(n, -1, np.int64)
    np.minimum.at(low, compared.place, compared.demand)
    np.maximum.at(high, compared.place, compared.demand)
    long = np.zeros(n, np.int64)
    np.maximum.at(long, compared.place, compared.size)
    alike_long = np.bincount(compared.place, weights=compared.size, minlength=n)
    made = np.bincount(compared.place, minlength=n)
    shared = (made > 1) & (alike_long == made * long)
    return (shared & (low != high))[compared.place], (shared & (low == high))[compared.place]


def _claim(situation: Situation, compared: _Compared, at: Ints, times: int) -> Claim | None:
    sides: dict[tuple[Demand, ...], list[int]] = defaultdict(list)
    for each in at.tolist():
        sides[compared.demanded(each)].append(int(compared.row[each]))
    aspect = aspect_of(list(sides))
    if aspect is None:
        return None
    rank_of = situation.evidence.case.calls.rank
    ordered = sorted(sides.values(), key=lambda rows: (-len(rows), int(rank_of[rows].min())))
    told = [(tuple(sorted(rank_of[rows].tolist())), rows) for rows in ordered]
    return _about(situation, told, times, KIND_OF[aspect])


def _about(
    situation: Situation, sides: list[tuple[tuple[int, ...], list[int]]], times: int, kind: Kind
) -> Claim:
    """The claim of a call from its sides, each by its ranks (global) and their rows."""
    case, first = situation.evidence.case, sides[0][1][0]
    group = case.groups[int(case.calls.group[first])]
    blamed = 2 * len(sides[0][0]) > group.size
    names = (case.names[int(case.calls.name[rows[0]])] for _, rows in sides)
    said = tuple(CallSaid(side[0], name.op) for side, name in zip(sides, names, strict=True))
    roles = ["peer", *(("culprit" if blamed else "peer") for _ in sides[1:])]
    shown = list(zip(sides, roles, strict=True))[:_MOST_SIDES]
    return Claim(
        kind=kind,
        about=MembersDisagree(
            call=situation.name_of(first),
            group=group.label,
            sides=said,
            majority=sides[0][0] if blamed else (),
            totals=None,
            ended=times,
        ),
        culprits=tuple(sorted(r for ranks, _ in sides[1:] for r in ranks)) if blamed else (),
        group=GroupRef.of(group),
        seq=int(case.calls.seq[first]),
        op=said[0].op,
        calls=tuple(situation.side(ranks, rows[0], role) for (ranks, rows), role in shown),
        sites=tuple(
            site
            for (_, rows), role in shown
            for site in situation.book.sites_of_rows(np.asarray(rows), role)
        ),
        doubts=(Doubt.HAS_ENDED,),
    )
