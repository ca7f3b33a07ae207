"""Run programs, judge each end state once, and count what was right, wrong or not to be known."""

from __future__ import annotations

import multiprocessing
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from lab.prove.checks import Verdict, falsehoods, judge_case, waits
from lab.prove.endstates import EndState, case_of, end_state, members_of
from lab.prove.explain import can_explain
from lab.prove.plan import Chunk
from lab.prove.programs import Deviation, Program, Shape, deviations_of

FAULTS: Final = frozenset(
    {"false sentence", "false alarm", "missed", "innocent", "wrong name", "not named"}
)


@dataclass(slots=True)
class Worlds:
    """The end states of some programs over one set of groups, and who may have led to each.

    Attributes:
        deviating: Per state the ranks that deviated in a program that ends like this; -1 where
            nobody did.
        first: Per state the first program and deviation that ends like this.
    """

    shape: Shape
    deviating: dict[EndState, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    first: dict[EndState, tuple[Program, Deviation | None]] = field(default_factory=dict)

    def add(self, program: Program, deviation: Deviation | None, alike: int = 1) -> None:
        """Run one program, for all that differ from it in names of ranks only."""
        state = end_state(program, deviation)
        self.deviating[state][deviation.rank if deviation else -1] += alike
        self.first.setdefault(state, (program, deviation))


def worlds_of(shape: Shape, programs: Iterable[tuple[Program, int]]) -> Worlds:
    """Run programs, each without and with every deviation."""
    worlds = Worlds(shape)
    for program, alike in programs:
        worlds.add(program, None, alike)
        for deviation in deviations_of(program):
            worlds.add(program, deviation, alike)
    return worlds


@dataclass(frozen=True, slots=True)
class Fault:
    """One end state that was judged wrongly."""

    what: str
    program: Program
    deviation: Deviation | None
    state: EndState
    verdict: Verdict
    detail: str = ""


@dataclass(slots=True)
class Tally:
    """Counts of programs (not of end states), by name."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take over what was counted elsewhere."""
        self.counts += other.counts
        self.faults += other.faults

    def told(self) -> str:
        """What was counted so far, in a line."""
        wrong = ", ".join(f"{self.counts[what]} {what}" for what in sorted(FAULTS))
        return f"{self.counts['programs']:,} programs: {wrong}"


def judged_by(pieces: Sequence[Chunk], processes: int) -> Iterator[Tally]:
    """Judge parts of a plan, each as soon as a worker has time."""
    if processes == 1:
        yield from map(judged, pieces)
        return
    with multiprocessing.Pool(processes) as pool:
        yield from pool.imap_unordered(judged, pieces)


def judged(piece: Chunk) -> Tally:
    """Judge one part of a plan."""
    tally = Tally()
    judge_worlds(worlds_of(*piece), tally)
    return tally


def judge_worlds(worlds: Worlds, tally: Tally) -> None:
    """Judge each end state once, and count it for all programs that end like this."""
    tally.counts["end states"] += len(worlds.first)
    for state, deviating in worlds.deviating.items():
        verdict = judge_case(case_of(worlds.shape, state))
        n = sum(deviating.values())
        tally.counts["programs"] += n
        program, deviation = worlds.first[state]
        for what, detail in _judged(worlds.shape, state, set(deviating), verdict):
            tally.counts[what] += n
            if what in FAULTS:
                tally.faults.append(Fault(what, program, deviation, state, verdict, detail))


def _judged(
    shape: Shape, state: EndState, deviating: set[int], verdict: Verdict
) -> Iterator[tuple[str, str]]:
    """What an end state counts as, each with a detail."""
    groups = members_of(shape)
    for text in falsehoods(state, verdict, [str(n) for n in range(len(groups))]):
        yield "false sentence", text
    if not waits(state):
        yield "no rank waits", ""
        if verdict.causes:
            yield "false alarm", ""
        return
    yield "hangs", ""
    if sum(entries is not None for entries in state) == 1 and not verdict.causes:
        yield "one dump alone", ""
        return
    if not verdict.causes:
        yield "missed", ""
    possible = set(deviating)
    possible |= {r for r in verdict.culprits - possible if can_explain(groups, state, r)}
    if verdict.surely - possible:
        yield "innocent", str(sorted(verdict.surely - possible))
    if verdict.culprits and verdict.culprits == deviating:
        yield "named", ""
    elif verdict.culprits - possible:
        yield "wrong name", ""
    elif verdict.culprits:
        yield "one of several", ""
    else:
        others = (r for r in range(len(state)) if r not in possible)
        alone = len(possible) == 1 and not any(can_explain(groups, state, r) for r in others)
        yield ("not named" if alone else "not to be known"), ""
