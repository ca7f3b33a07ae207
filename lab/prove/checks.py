"""Hold what the analysis claims against what the dumps hold.

A claim is checked by its typed facts, never by its words: a call that somebody "never made" must
not be there, whoever "waits" must have it open, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from lab.prove.endstates import EndState, Entry
from unhang.analysis.judgement import settle
from unhang.analysis.lives.life import lives_of
from unhang.analysis.rules.causes import claims_of
from unhang.analysis.rules.never_joined import NeverJoined
from unhang.analysis.rules.not_progressing import NotMoving
from unhang.analysis.rules.p2p_mismatch import PeersCrossed
from unhang.analysis.rules.p2p_unmatched import Unpaired
from unhang.analysis.rules.skipped_call import SkippedCall
from unhang.analysis.rules.wait_cycle import Circle
from unhang.analysis.shared.claims import Claim, confidence_of
from unhang.analysis.steps import situation_of
from unhang.case import Case
from unhang.report import CallSide


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the analysis concludes of an end state: its causes."""

    causes: tuple[Claim, ...]

    @property
    def culprits(self) -> frozenset[int]:
        """All ranks that are blamed."""
        return frozenset(rank for claim in self.causes for rank in claim.culprits)

    @property
    def surely(self) -> frozenset[int]:
        """Ranks that are blamed with high or medium confidence."""
        return frozenset(
            rank
            for claim in self.causes
            if confidence_of(claim) != "low"
            for rank in claim.culprits
        )


def judge_case(case: Case) -> Verdict:
    """Match and judge, without words."""
    situation, _ = situation_of(case)
    claims, _ = settle(claims_of(situation, lives_of(case)))
    return Verdict(tuple(claim for claim in claims if claim.is_cause))


def waits(state: EndState) -> bool:
    """Whether any rank has a call that has not finished."""
    return any(not entry[7] for entries in state if entries for entry in entries)


def falsehoods(state: EndState, verdict: Verdict, names: Sequence[str]) -> list[str]:
    """What is claimed and is not so.

    Args:
        state: The dumps.
        verdict: What was concluded of them.
        names: Names of the groups, by their index.
    """
    return [
        text
        for claim in verdict.causes
        for text in (*_absences(state, claim, names), *_about(state, claim, names))
    ]


def _calls(state: EndState, rank: int) -> tuple[Entry, ...]:
    return state[rank] or ()


def _absences(state: EndState, claim: Claim, names: Sequence[str]) -> Iterator[str]:
    """Calls that a rank is said never to have made, and that are in its dump."""
    claims = [claim]
    if isinstance(claim.about, SkippedCall):
        claims.append(claim.about.symptom)
    for each in claims:
        for side in each.calls:
            if side.state or side.sizes or side.group is None or side.seq is None:
                continue
            line = _line(each) if isinstance(each.about, SkippedCall) else 0
            for rank in side.ranks:
                if any(_same(entry, side, names, line) for entry in _calls(state, rank)):
                    yield f"{each.kind.code}: rank {rank} never called {side.op} #{side.seq}"


def _line(claim: Claim) -> int:
    about = claim.about
    return about.parting.call.line if isinstance(about, SkippedCall) else 0


def _same(entry: Entry, side: CallSide, names: Sequence[str], line: int) -> bool:
    group, op, _, peer, own_line, seq, _, _ = entry
    name = side.group.name if side.group else ""
    return (
        (peer < 0 and names[group] == name and seq == side.seq)
        and op == side.op
        and line in (0, own_line)
    )


def _about(state: EndState, claim: Claim, names: Sequence[str]) -> Iterator[str]:
    about = claim.about
    if isinstance(about, NeverJoined):
        yield from _joined_anyway(state, claim, about, names)
    elif isinstance(about, NotMoving) and not about.exchange:
        for rank in about.inside:
            if not any(_at(e, claim, names) for e in _calls(state, rank)):
                yield f"rank {rank} is not in {about.call}"
    elif isinstance(about, Circle):
        yield from _not_waiting(state, about.ranks)
    elif isinstance(about, Unpaired):
        yield from _paired_anyway(state, about)
    elif isinstance(about, PeersCrossed):
        yield from _not_waiting(state, (about.waiting,))


def _joined_anyway(
    state: EndState, claim: Claim, about: NeverJoined, names: Sequence[str]
) -> Iterator[str]:
    for rank in claim.culprits:
        if any(_at(e, claim, names) for e in _calls(state, rank)):
            yield f"rank {rank} is in {about.call}, which it never joined"
    for rank in about.waiting:
        if not any(_at(e, claim, names) and not e[7] for e in _calls(state, rank)):
            yield f"rank {rank} does not wait in {about.call}"


def _not_waiting(state: EndState, ranks: Sequence[int]) -> Iterator[str]:
    for rank in ranks:
        if all(entry[7] for entry in _calls(state, rank)):
            yield f"rank {rank} waits for nobody"


def _at(entry: Entry, claim: Claim, names: Sequence[str]) -> bool:
    name = claim.group.name if claim.group else ""
    return entry[3] < 0 and names[entry[0]] == name and entry[5] == claim.seq


def _paired_anyway(state: EndState, about: Unpaired) -> Iterator[str]:
    """Whoever never made the other side has made it as often as it was asked for."""
    if len(about.waiting) > 1:
        return
    for rank, waiting in product(about.ranks, about.waiting):
        for op, other in (("send", "recv"), ("recv", "send")):
            asked = [e for e in _calls(state, waiting) if e[1] == op and e[3] == rank]
            given = [e for e in _calls(state, rank) if e[1] == other and e[3] == waiting]
            if any(not entry[7] for entry in asked) and len(given) >= len(asked):
                yield f"rank {rank} has made every {other} that rank {waiting} asks for"
