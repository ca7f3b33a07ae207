"""What the manifest of a case says, as far as it can be believed: the one reader of it.

A case may be a stranger's: what has not the shape of a manifest is as if it were not there. What is
said of the whole job stands first, so that of a manifest of a hundred thousand ranks the beginning
is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from unhang.bounds import MAX_RANKS, Budget
from unhang.incoming import first_pairs, overlaid, value_of
from unhang.model import AskedNode, AskedState, SlowRank
from unhang.regular import open_regular
from unhang.telltale import REMOVED

MANIFEST: Final = "manifest.json"
_HEAD: Final = 1 << 20
_MOST_BYTES: Final = 4 << 20
_OVERLAP: Final = 4
"""So many times as many ranks as the job has are gone through, whatever nodes claim."""

_Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Rank = Annotated[int, Meta(ge=0, lt=MAX_RANKS)]


@dataclass(frozen=True, slots=True)
class AskedPart:
    """A node that was asked, as the manifest has it: see `AskedNode`; ranks are intervals."""

    node: str
    state: AskedState
    ranks: list[tuple[_Rank, _Rank]] = field(default_factory=list)
    inferred: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Job:
    job: str | None = None
    attempt: int | None = None
    command: list[str] | None = None


@dataclass(frozen=True, slots=True)
class _Incident:
    time_ns: _Number = 0
    ran_s: Annotated[float, Meta(ge=0)] = 0.0
    slow: SlowRank | None = None


@dataclass(frozen=True, slots=True)
class _Ending:
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class _Node:
    host: str = ""
    ending: _Ending | None = None


@dataclass(frozen=True, slots=True)
class Contents:
    """What a manifest says; see `unhang.casedir.manifest` for how it is written.

    Attributes:
        world_size: 0 where it does not say.
        looked_at: First and last of the ranks that nodes reported; None where it does not say.
        cluster: What the nodes are called by ("slurm", "kubernetes"…), or "".
        namespace: Of the cluster, where it has any.
        nodes: Empty where the manifest is too long to be read whole.
    """

    world_size: _Number = 0
    looked_at: list[tuple[_Rank, _Rank]] | None = None
    cluster: str = ""
    namespace: str = ""
    asked: list[AskedPart] = field(default_factory=list)
    job: _Job = field(default_factory=_Job)
    incident: _Incident = field(default_factory=_Incident)
    nodes: list[_Node] = field(default_factory=list)

    @property
    def attempt(self) -> str:
        """The attempt as logs and dumps write it; "" where the manifest does not tell."""
        return "" if self.job.attempt is None else str(self.job.attempt)

    @property
    def command(self) -> tuple[str, ...]:
        """The job's command; none where a secret was taken out of it."""
        words = tuple(self.job.command or ())
        return () if any(REMOVED in word for word in words) else words

    @property
    def hosts(self) -> tuple[str, ...]:
        """The nodes that answered, each once, in order."""
        told = [each.node for each in self.asked if each.state == "answered"]
        return tuple(sorted({*told, *(each.host for each in self.nodes if not told)} - {""}))


def contents_of(case: Path) -> Contents | None:
    """What the manifest of a case says; None where there is none that can be read."""
    try:
        return read_contents(case / MANIFEST)
    except (OSError, ValueError, RecursionError):
        return None


def read_contents(path: Path) -> Contents:
    """What a manifest says.

    Raises:
        OSError: It cannot be read.
        ValueError: It is none.
        RecursionError: It is nested too deeply.
    """
    value = _value(path)
    if not isinstance(value, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - as of any other file that is none
    return overlaid(Contents(), value)[0]


def _value(path: Path) -> Any:  # noqa: ANN401 - what is in it
    with open_regular(path) as file:
        data = file.read(_HEAD + 1)
        if len(data) <= _HEAD:
            return value_of(data)
        head = first_pairs(data.decode("utf-8", "replace").lstrip())
        if "world_size" in head:
            return head
        data += file.read(_MOST_BYTES)
    return value_of(data) if len(data) <= _MOST_BYTES else head


def asked_nodes(told: Sequence[Contents], world: int) -> tuple[AskedNode, ...]:
    """The nodes of a job of so many ranks: a rank is on one node, the first that has it.

    Of a name that several manifests have, one that answered counts.
    """
    found: dict[str, AskedPart] = {}
    for each in (each for contents in told for each in contents.asked):
        if each.node not in found or each.state == "answered":
            found[each.node] = each
    ranks = _shared_out(found.values(), world)
    return tuple(
        AskedNode(name, each.state, ranks[name], each.inferred, each.why)
        for name, each in found.items()
    )


def _shared_out(asked: Iterable[AskedPart], world: int) -> dict[str, tuple[int, ...]]:
    taken = bytearray(world)
    work = Budget(_OVERLAP * world)
    shares: dict[str, tuple[int, ...]] = {}
    for each in sorted(asked, key=lambda each: each.inferred):
        mine: list[int] = []
        for first, last in each.ranks:
            span = range(first, min(last + 1, world))
            if not work.take(len(span)):
                break
            new = [rank for rank in span if not taken[rank]]
            for rank in new:
                taken[rank] = 1
            mine += new
        shares[each.node] = tuple(sorted(mine))
    return shares
