"""What a page draws of an incident: the engine's own facts, bounded, and no more than these.

A picture holds what ranks wait for, which calls they made and where they stand, as the analysis
judged them: whether a call has finished is never read off a raw state again. So a drawing cannot
say otherwise than the verdict next to it. Ranks are folded where they are the same; what is left
out is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

CellState: TypeAlias = Literal["finished", "open", "failed", "missing", "unknown", "pending"]
"""Of a call; "pending" is one that has not finished, and is not the one in which its rank waits."""


@dataclass(frozen=True, slots=True)
class Team:
    """Groups of one description: an axis along which ranks can be laid out.

    Attributes:
        members: Ranks of each group, in group order.
    """

    name: str
    members: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Knot:
    """Ranks, or calls in which ranks wait, that stand alike in the graph of waiting.

    Attributes:
        kind: "ranks" or "call".
        ranks: The ranks; of calls, those whose head it is.
        status: Of ranks, as in the report; "" for calls.
        label: "all_reduce #41 of dp (1)"; for several calls what they have in common.
        count: How many ranks or calls it stands for.
        place: Line of the user's code, where it is one.
        level: The longest way to where waiting ends: 0 for ranks for whom others wait.
        ring: It lies in a circle.
        description, members: Of the group of a single call.
    """

    kind: Literal["ranks", "call"]
    ranks: tuple[int, ...]
    status: str
    label: str
    count: int
    place: str = ""
    level: int = 0
    ring: bool = False
    description: str = ""
    members: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """Waiting of one node for another.

    Attributes:
        source, target: Positions in `Picture.nodes`.
        why: "waits in", "after", "not called", "queued"…
        known: Whether anything tells why; else it waits for all that nothing is known of.
    """

    source: int
    target: int
    why: str
    known: bool = True


@dataclass(frozen=True, slots=True)
class Slot:
    """One call, aligned over ranks.

    Attributes:
        marked: It is the call of the first finding.
        p2p: The number counts sends and receives.
    """

    label: str
    number: int
    marked: bool
    p2p: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """What the ranks of a lane did with the call of a column.

    Attributes:
        odd: It is another call, or of another size, than most lanes made there.
    """

    column: int
    op: str
    state: CellState
    words: str
    place: str
    odd: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """Ranks that made the same calls."""

    ranks: tuple[int, ...]
    status: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """A call of one rank in time.

    Attributes:
        begin_ms: Before the newest sign of life, negative; clocks set where they could be.
        end_ms: None where the end was not recorded.
        meeting: The same for all who made one collective; -1 for sends and receives.
    """

    rank: int
    begin_ms: float
    end_ms: float | None
    state: CellState
    label: str
    group: str = ""
    meeting: int = -1


@dataclass(frozen=True, slots=True)
class Heat:
    """How late ranks came to the calls of one group, in ms after the first.

    Attributes:
        late_ms: One row a rank.
        clocks: How far the clock of each rank was ahead, in ms; empty where nothing tells.
    """

    group: str
    ranks: tuple[int, ...]
    numbers: tuple[int, ...]
    late_ms: tuple[tuple[float, ...], ...]
    clocks: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast collectives of one operation and size moved their data, in groups of one name.

    Attributes:
        size: Bytes of each.
        calls: How many of them all members timed.
        ms: The middle of their times.
        bus_gb_s: The middle of their bus bandwidths, as nccl-tests counts them.
        slowest: The group with the lowest, where that is well below the others'; else "".
        slowest_gb_s: Its bandwidth.
    """

    group: str
    op: str
    size: int
    calls: int
    ms: float
    bus_gb_s: float
    slowest: str = ""
    slowest_gb_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Replay:
    """What each rank did from the last good step to the standstill.

    Attributes:
        good: The call that all had finished: "all_reduce #149 of tp (2)".
        since_ms: The moments, before the last of them, negative.
        states: Of each moment a character a rank, in the order of ranks: "." in its own code,
            "c" in a call that ends later, "w" in one that never ends, "?" not known.
    """

    good: str
    since_ms: tuple[float, ...]
    states: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """A frame of the tree of stacks, outermost first, with the ranks that stand below it."""

    name: str
    place: str
    ranks: tuple[int, ...]
    children: tuple[Branch, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that is drawn.

    Attributes:
        left_out: What is not drawn, in sentences.
    """

    teams: tuple[Team, ...] = ()
    nodes: tuple[Knot, ...] = ()
    links: tuple[Link, ...] = ()
    columns: tuple[Slot, ...] = ()
    lanes: tuple[Lane, ...] = ()
    bars: tuple[Bar, ...] = ()
    heat: Heat | None = None
    rates: tuple[Rate, ...] = ()
    stacks: tuple[Branch, ...] = ()
    replay: Replay | None = None
    left_out: tuple[str, ...] = ()
