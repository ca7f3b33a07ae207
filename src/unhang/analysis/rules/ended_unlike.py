"""Calls that have ended although their members did not fit: nothing waits, and the data are wrong.

NCCL checks neither operations nor sizes nor dtypes. Where buffers happen to suffice, such a call
ends, with wrong values. It is reported where nothing else is wrong, and never as sure: what
is stuck goes first, and a program may know why. Compared are single calls of groups whose members
are recorded, in which ranks have agreed as well: else it may be the dump of another job.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np
from msgspec import Struct

from unhang.analysis.claims import Claim, Doubt
from unhang.analysis.matching.collectives import aspect_of
from unhang.analysis.rules.call_mismatch import KIND_OF, CallSaid, MembersDisagree
from unhang.analysis.rules.rule import Rule, Unless, When
from unhang.analysis.situation import Situation
from unhang.analysis.state.columns import Bools, Ints
from unhang.analysis.state.ops import PARTS, Demand, demand_of, rule_of
from unhang.kinds import Kind
from unhang.report import GroupRef
from unhang.spans import distinct

_SPARSE = 8
_MOST_SIDES = 8


class _Compared(Struct, frozen=True, eq=False):
    """Rows that are compared, what they demand (a number each), and the place of their call."""

    row: Ints
    demand: Ints
    place: Ints
    channel: Ints
    demands: list[Demand]


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
    rows = np.flatnonzero(_single(situation) & np.asarray([*known, False])[at.reshape(-1)])
    channel, seq = evidence.channel(rows), np.asarray(calls.seq[rows], np.int64)
    place = _places(channel, seq)
    return _Compared(rows, demand[at.reshape(-1)[rows]], place, channel, list(numbers))


def _is_compared(op: str, demand: Demand) -> bool:
    """Whether all that is demanded is known, and the same of all members."""
    rule = rule_of(op)
    if not rule.known or rule.compared == "totals":
        return False
    return rule.compared == "nothing" or (demand.elements is not None and bool(demand.dtypes))


def _single(situation: Situation) -> Bools:
    """Rows of finished collectives that are no part of a batch, in groups that are recorded."""
    evidence = situation.evidence
    calls, batches = evidence.case.calls, evidence.batches
    trusted = [not group.inferred for group in evidence.case.groups]
    whole = [name.op not in PARTS for name in evidence.case.names]
    found: Bools = evidence.finished & evidence.collective & ~batches.closed & (calls.seq >= 0)
    found &= np.asarray([*whole, False])[calls.name] & (batches.last == np.arange(len(calls)))
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
    """Per row: members disagree about its call; several made it, and agree."""
    n = int(compared.place.max(initial=-1)) + 1
    low, high = np.full(n, np.iinfo(np.int64).max), np.full(n, -1, np.int64)
    np.minimum.at(low, compared.place, compared.demand)
    np.maximum.at(high, compared.place, compared.demand)
    shared = np.bincount(compared.place, minlength=n) > 1
    return (shared & (low != high))[compared.place], (shared & (low == high))[compared.place]


def _claim(situation: Situation, compared: _Compared, at: Ints, times: int) -> Claim | None:
    sides: dict[int, list[int]] = defaultdict(list)
    for each in at.tolist():
        sides[int(compared.demand[each])].append(int(compared.row[each]))
    aspect = aspect_of([(compared.demands[number],) for number in sides])
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
