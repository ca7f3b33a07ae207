"""What fault classes are written with: places in programs, edits, and common judgements."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lab.model.job import Bundle, HostSync, Issue, Plan, Site, Step
from lab.recorder.recording import Recording
from lab.simulate.engine import Outcome, Record
from lab.simulate.oracle import Oracle
from lab.truth import Cause, Point, Truth

Judge: TypeAlias = Callable[[Outcome, Recording], Truth]


class UnfitError(Exception):
    """The fault cannot be put into this job, or did not do there what its class says.

    The corpus then tries another place; it is no error of a user.
    """


@dataclass(slots=True)
class Scene:
    """A plan about to be broken, and the dice that say where."""

    plan: Plan
    rng: random.Random = field(default_factory=random.Random)

    def places(
        self,
        rank: int,
        wanted: Callable[[Step], bool],
        low: float = 0.4,
        high: float = 0.8,
    ) -> list[int]:
        """Positions of fitting steps in the middle part of a rank's program."""
        program = self.plan.programs[rank]
        first, last = int(len(program) * low), int(len(program) * high)
        return [i for i in range(first, last) if wanted(program[i])]

    def place(
        self,
        wanted: Callable[[Step], bool],
        ranks: Iterable[int] = (),
        low: float = 0.4,
        high: float = 0.8,
    ) -> tuple[int, int]:
        """A random rank with a fitting step, and the step's position.

        Raises:
            UnfitError: No rank has one.
        """
        order = list(ranks) or list(range(self.plan.world_size))
        self.rng.shuffle(order)
        for rank in order:
            if found_places := self.places(rank, wanted, low, high):
                return rank, self.rng.choice(found_places)
        raise UnfitError("no such step")

    def step(self, rank: int, position: int) -> Step:
        """One step of a rank's program."""
        return self.plan.programs[rank][position]

    def issue(self, rank: int, position: int) -> Issue:
        """One step that is a single call."""
        step = self.step(rank, position)
        if not isinstance(step, Issue):
            raise UnfitError("not a single call")
        return step

    def replace(self, rank: int, position: int, *steps: Step) -> None:
        """Put other steps in the place of one."""
        self.plan.programs[rank][position : position + 1] = steps

    def insert(self, rank: int, position: int, *steps: Step) -> None:
        """Put steps before a position."""
        self.plan.programs[rank][position:position] = steps

    def members(self, group: int) -> tuple[int, ...]:
        """Members of a group."""
        return self.plan.groups[group].members

    def collective(self, step: Step, *, at_least: int = 2) -> bool:
        """Whether a step is one plain collective in a group of some size."""
        return (
            isinstance(step, Issue)
            and not step.is_p2p
            and len(self.members(step.group)) >= at_least
        )

    def number(self, rank: int, position: int) -> int:
        """The sequence number that the collective at a position has."""
        group = getattr(self.step(rank, position), "group", -1)
        before = self.plan.programs[rank][: position + 1]
        return sum(1 for step in before if _is_on(step, group))

    def step_starts(self, rank: int) -> list[int]:
        """Positions just behind a host synchronisation, but for the last."""
        program = self.plan.programs[rank]
        starts = [i + 1 for i, step in enumerate(program) if isinstance(step, HostSync)]
        return [i for i in starts if i < len(program) - 2]

    def same_calls(self, rank: int, group: int, seq: int) -> range:
        """The run of sequence numbers around one whose calls nothing tells apart."""
        steps = [step for step in self.plan.programs[rank] if _is_on(step, group)]
        marks = [_mark(step) for step in steps]
        first = last = seq - 1
        while first > 0 and marks[first - 1] == marks[seq - 1]:
            first -= 1
        while last + 1 < len(marks) and marks[last + 1] == marks[seq - 1]:
            last += 1
        return range(first + 1, last + 2)

    def point(self, group: int, seq: int, step: Issue | Bundle) -> Point:
        """A call as a truth names it."""
        where = self.plan.groups[group]
        return Point(where.name, where.description, seq, step.site.file, step.site.line)


def _is_on(step: Step, group: int) -> bool:
    return isinstance(step, (Issue, Bundle)) and step.group == group and not step.is_p2p


def _mark(step: Step) -> object:
    if isinstance(step, Issue):
        return (step.op, step.inputs, step.outputs, step.dtype, step.site)
    return step


def problem(outcome: Outcome, *causes: Cause) -> Truth:
    """The truth of a job that is stuck."""
    return Truth(("problem",), causes, outcome.plan.world_size)


def found(outcome: Outcome, rank: int, step: Issue | Bundle) -> Record:
    """The record of one particular step of a rank.

    Raises:
        UnfitError: The rank never got there.
    """
    wanted = step.issues[0] if isinstance(step, Bundle) else step
    for record in outcome.records[rank]:
        if record.issue is wanted:
            return record
    raise UnfitError("the rank never made the call")


def silence(
    outcome: Outcome, recording: Recording, culprits: frozenset[int], points: tuple[Point, ...]
) -> Truth | None:
    """What the files allow to know when culprits left none, or None where they left theirs.

    A silent rank is named if it is the only silent one among all that visible ranks may wait for.
    With several such ranks nothing tells the culprit from one whose dump was merely lost: then the
    verdict is "insufficient", or all of them with UH103.
    """
    lost = recording.silent | recording.truncated
    if not culprits & lost:
        return None
    oracle = Oracle(outcome)
    visible = [wait for rank, wait in oracle.waits.items() if rank not in lost]
    candidates = set()
    for wait in visible:
        issue = wait.head.issue
        group = outcome.plan.groups[issue.group].members
        needed = {r.issue.peer for r in oracle.launch_of(wait.head)} if issue.is_p2p else set(group)
        candidates |= needed & lost
    if not culprits <= candidates:
        raise UnfitError("nobody who left a dump waits for the silent culprit")
    world = outcome.plan.world_size
    codes = ("UH103", "UH101") if culprits <= recording.truncated else ("UH103",)
    if candidates == culprits:
        cause = Cause(codes, tuple(sorted(culprits)), points=points)
        return Truth(("problem",), (cause,), world)
    also = (tuple(sorted(culprits)), tuple(sorted(candidates)))
    return Truth(("insufficient", "problem"), (Cause(("UH901", "UH103"), (), also),), world)


def site_of(scene: Scene) -> Site:
    """Any call site of the program, as a model for new ones."""
    for step in scene.plan.programs[0]:
        if isinstance(step, Issue):
            return replace(step.site, through="python", file="/home/user/train/train.py")
    raise UnfitError("no call")
