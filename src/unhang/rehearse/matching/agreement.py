"""Who has to meet whom before a call can end: collectives, and channels of sends and receives.

Pure rules about arrival and agreement; the engine owns time and streams.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

from unhang.rehearse.matching.issue import Bundle, Issue, Shapes

Launch: TypeAlias = Any
"""The engine's launch: opaque here."""

FROM_ROOT = frozenset({"broadcast", "scatter"})
"""Collectives that need their root, whichever other ranks are missing."""
_TO_ROOT = frozenset({"reduce", "gather"})


@dataclass(slots=True)
class MemberMeeting:
    """One collective: arrivals of its members, and who may leave.

    Attributes:
        members: Global ranks in group order.
        frozen: If not None, data stop flowing once all are there and only these ranks come out.
        tolerant: Disagreeing sizes do not stop it.
    """

    members: tuple[int, ...]
    frozen: frozenset[int] | None = None
    tolerant: bool = False
    arrived: dict[int, tuple[Issue | Bundle, float, Launch]] = field(default_factory=dict)
    chain: tuple[int, ...] = ()
    passed: int = 0
    latest: float = 0.0

    def arrive(
        self, rank: int, step: Issue | Bundle, at: float, launch: Launch
    ) -> list[tuple[Launch, float]]:
        """Note an arrival; returns the launches that can leave now, and from when on."""
        self.arrived[rank] = (step, at, launch)
        if self.frozen is None and isinstance(step, Issue) and step.root >= 0:
            if step.op in FROM_ROOT:
                return self._along_chain(step)
            if step.op in _TO_ROOT and rank != step.root:
                return [(launch, at), *self._all_there(skip_producers=True)]
        return self._all_there(skip_producers=isinstance(step, Issue) and step.op in _TO_ROOT)

    def _all_there(self, *, skip_producers: bool) -> list[tuple[Launch, float]]:
        if len(self.arrived) < len(self.members):
            return []
        steps = [self.arrived[rank][0] for rank in self.members]
        if not agree(steps, tolerant=self.tolerant):
            return []
        latest = max(at for _, at, _ in self.arrived.values())
        leaving = []
        for rank, (step, _, launch) in self.arrived.items():
            if self.frozen is not None and rank not in self.frozen:
                continue
            if self.frozen is None and skip_producers and rank != _root(step):
                continue  # has left by itself on arrival
            leaving.append((launch, latest))
        return leaving

    def _along_chain(self, step: Issue) -> list[tuple[Launch, float]]:
        """Data pass from the root to the next member in group order, as far as there is one."""
        if not self.chain:
            start = self.members.index(step.root)
            self.chain = self.members[start:] + self.members[:start]
        leaving = []
        while self.passed < len(self.chain) and self.chain[self.passed] in self.arrived:
            theirs, at, launch = self.arrived[self.chain[self.passed]]
            sides = [self.arrived[self.chain[0]][0], step, theirs]
            if not agree(sides, tolerant=self.tolerant):
                break
            self.latest = max(self.latest, at)
            leaving.append((launch, self.latest))
            self.passed += 1
        return leaving


def _root(step: Issue | Bundle) -> int:
    return step.root if isinstance(step, Issue) else -1


def agree(steps: list[Issue | Bundle], *, tolerant: bool = False) -> bool:
    """Whether the members of one collective mean the same call."""
    first = steps[0]
    if all(step is first for step in steps):
        return not _totals_matter(first)
    if any(type(step) is not type(first) for step in steps):
        return False
    if isinstance(first, Bundle):
        return all(
            isinstance(s, Bundle) and [i.op for i in s.issues] == [i.op for i in first.issues]
            for s in steps
        )
    return _calls_agree([s for s in steps if isinstance(s, Issue)], tolerant=tolerant)


def _totals_matter(step: Issue | Bundle) -> bool:
    """A call that is one object for all still disagrees if it sends other totals than it takes."""
    return (
        isinstance(step, Issue)
        and step.op.startswith("all_to_all")
        and numel(step.inputs) != numel(step.outputs)
    )


def _calls_agree(calls: list[Issue], *, tolerant: bool) -> bool:
    first = calls[0]
    if any((c.op, c.root, c.reduction) != (first.op, first.root, first.reduction) for c in calls):
        return False
    if tolerant:
        return True
    if any(c.dtype != first.dtype for c in calls):
        return False
    if first.op.startswith("all_to_all"):
        return sum(numel(c.inputs) for c in calls) == sum(numel(c.outputs) for c in calls)
    if first.uneven or first.op in {"gather", "scatter"}:
        return True
    sizes = _sizes(first.inputs), _sizes(first.outputs)
    return all((_sizes(c.inputs), _sizes(c.outputs)) == sizes for c in calls)


def _sizes(shapes: Shapes) -> list[int]:
    """Elements of each tensor: what travels has no shape."""
    return [prod(shape) for shape in shapes]


def numel(shapes: Shapes) -> int:
    """Elements in all tensors together."""
    return sum(prod(shape) for shape in shapes)


@dataclass(slots=True)
class PairChannel:
    """Sends and receives of one direction between two ranks of a group, in order."""

    sends: deque[tuple[Issue, Launch]] = field(default_factory=deque)
    receives: deque[tuple[Issue, Launch]] = field(default_factory=deque)

    def post(self, issue: Issue, launch: Launch) -> list[Launch]:
        """Add one side; returns the launch of the other side if they match, else nothing.

        Two that meet and disagree about size or dtype block their channel for good.
        """
        mine, theirs = (
            (self.sends, self.receives) if issue.op == "send" else (self.receives, self.sends)
        )
        if mine or not theirs:
            mine.append((issue, launch))
            return []
        other, partner = theirs[0]
        if (_sizes(other.inputs), other.dtype) != (_sizes(issue.inputs), issue.dtype):
            mine.append((issue, launch))
            return []
        theirs.popleft()
        return [partner]
