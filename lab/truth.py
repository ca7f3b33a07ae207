"""What a case's verdict must be: the injected fault, as far as the files can show it.

`Truth` is written beside the dumps as truth.json and is the only thing that scoring reads. Where
the evidence is symmetrical (two sides, a loop, everybody joined) the culprit set is empty; where
it is not enough, the status says "insufficient".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Cause", "Point", "Truth", "from_json", "to_json"]

SCHEMA = "unhang.simulated-truth/1"


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """A call in which a fault shows: group, sequence number (-1: any), line of code ("": any)."""

    group: str
    description: str
    seq: int = -1
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """One injected fault as it must be reported.

    Attributes:
        codes: Accepted codes; the first is the best one.
        culprits: Who is to be named.
        also: Other sets that the evidence allows as well.
        points: Calls that are right to point at; empty where nothing is asked.
    """

    codes: tuple[str, ...]
    culprits: tuple[int, ...] = ()
    also: tuple[tuple[int, ...], ...] = ()
    points: tuple[Point, ...] = ()

    def accepts(self, named: frozenset[int]) -> bool:
        """Whether a set of named ranks is right."""
        return any(named == frozenset(right) for right in (self.culprits, *self.also))


@dataclass(frozen=True, slots=True)
class Truth:
    """The right verdict of one case.

    Attributes:
        status: Accepted statuses; the first is the best one.
        causes: Empty for a healthy job.
        world_size: Ranks that are no culprit of any cause are innocent.
        observations: Codes that a healthy or slow job may well carry.
    """

    status: tuple[str, ...]
    causes: tuple[Cause, ...] = ()
    world_size: int = 0
    observations: tuple[str, ...] = ()

    @property
    def culprits(self) -> frozenset[int]:
        """All who are to be named."""
        return frozenset(rank for cause in self.causes for rank in cause.culprits)

    def accepts(self, named: frozenset[int]) -> bool:
        """Whether the union of all named ranks is right."""
        options: set[frozenset[int]] = {frozenset()}
        for cause in self.causes:
            sets = [frozenset(right) for right in (cause.culprits, *cause.also)]
            options = {known | more for known in options for more in sets}
        return named in options


def to_json(truth: Truth, **more: object) -> str:
    """The text of truth.json; further keys describe the case."""
    value: dict[str, Any] = {"schema": SCHEMA, **more, **asdict(truth)}
    value["innocents"] = [r for r in range(truth.world_size) if r not in truth.culprits]
    return json.dumps(value, indent=1) + "\n"


def from_json(value: Mapping[str, Any]) -> Truth:
    """Read a truth back."""
    causes = tuple(
        Cause(
            codes=tuple(cause["codes"]),
            culprits=tuple(cause["culprits"]),
            also=tuple(tuple(ranks) for ranks in cause["also"]),
            points=tuple(Point(**point) for point in cause["points"]),
        )
        for cause in value["causes"]
    )
    return Truth(
        status=tuple(value["status"]),
        causes=causes,
        world_size=int(value["world_size"]),
        observations=tuple(value["observations"]),
    )
