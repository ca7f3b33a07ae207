"""What is true about a case, as a file beside its dumps: the only thing that scoring reads.

One schema for all cases: simulated ones, live captures of Gloo, and real dumps of NCCL. A truth
says what the files allow to know. Where the evidence is symmetrical (two sides, a loop, everybody
joined) the culprit set is empty; where it is not enough, the status says "insufficient".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SCHEMA = "unhang.truth/2"
TRUTH_FILE = "truth.json"


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """A call in which a fault shows: group, sequence number (-1: any), line of code ("": any)."""

    group: str = ""
    description: str = ""
    seq: int = -1
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """One fault as it must be reported.

    Attributes:
        codes: Accepted codes; the first is the best one.
        culprits: Who is to be named.
        also: Other sets that the evidence allows as well.
        points: Calls that are right to point at; empty where nothing is asked.
        ceiling: The highest confidence that the evidence allows.
    """

    codes: tuple[str, ...]
    culprits: tuple[int, ...] = ()
    also: tuple[tuple[int, ...], ...] = ()
    points: tuple[Point, ...] = ()
    ceiling: str = "high"

    @property
    def allowed(self) -> frozenset[int]:
        """All who may be named for it."""
        return frozenset(self.culprits).union(*self.also)

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
        fault: What was done to the job.
        lines: Calls all of which a right verdict of a hang shows.
        either: Other verdicts, whole, that the evidence allows as well.
        notes: Sentences for people.
    """

    status: tuple[str, ...]
    causes: tuple[Cause, ...] = ()
    world_size: int = 0
    observations: tuple[str, ...] = ()
    fault: str = ""
    lines: tuple[Point, ...] = ()
    either: tuple[Truth, ...] = ()
    notes: tuple[str, ...] = ()

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
    """The text of truth.json; further keys describe the case. What is empty is left out."""
    told = asdict(truth, dict_factory=_filled)
    return json.dumps({"schema": SCHEMA, **more, **told}, indent=1) + "\n"


def _filled(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Fields that say something: neither empty, nor as every case has them."""
    kept = {key: value for key, value in items if value not in ((), "", -1)}
    return {key: value for key, value in kept.items() if (key, value) != ("ceiling", "high")}


def from_json(value: Mapping[str, Any]) -> Truth:
    """Read a truth back; keys that only describe the case are left out."""
    return Truth(
        status=tuple(value["status"]),
        causes=tuple(_cause(cause) for cause in value.get("causes", ())),
        world_size=int(value.get("world_size", 0)),
        observations=tuple(value.get("observations", ())),
        fault=value.get("fault", ""),
        lines=tuple(Point(**point) for point in value.get("lines", ())),
        either=tuple(from_json(other) for other in value.get("either", ())),
        notes=tuple(value.get("notes", ())),
    )


def _cause(value: Mapping[str, Any]) -> Cause:
    return Cause(
        codes=tuple(value["codes"]),
        culprits=tuple(value.get("culprits", ())),
        also=tuple(tuple(ranks) for ranks in value.get("also", ())),
        points=tuple(Point(**point) for point in value.get("points", ())),
        ceiling=value.get("ceiling", "high"),
    )


def read_truth(directory: Path) -> Truth:
    """The truth about the case in a directory."""
    return from_json(json.loads((directory / TRUTH_FILE).read_text(encoding="utf-8")))
