"""One call as the rules see it: in which group, what, how large, to or from whom, at which line.

Shared by rehearsals, whose calls are real, and by the lab, which makes them up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from unhang.model import Shape

Shapes: TypeAlias = tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class IssueSite:
    """The line of the user's program that makes a call.

    Attributes:
        through: Which of torch's own frames stand above it: "python" (c10d's wrappers) or
            "autograd" (issued by C++ from the backward pass, so only the backward call shows).
    """

    function: str
    file: str
    line: int
    through: str = "python"


@dataclass(frozen=True, slots=True)
class Issue:
    """One communication call.

    Attributes:
        group: Index in `Plan.groups`.
        op: torch's name without backend: "all_reduce", "_all_gather_base", "send", "recv"…
        peer: Global rank of the other side of a send or receive; -1 for collectives.
        root: Global rank of the root of a rooted collective; -1 for the others.
        sync: Whether the rank's later work waits for it (`async_op=False`).
        reduction: How values are reduced; "" where they are not, or nothing tells.
        uneven: Sizes may differ between members by right (splits, lists of tensors).
        inside: The rank's host never returns from the library's enqueue.
    """

    group: int
    op: str
    inputs: Shapes
    outputs: Shapes
    site: IssueSite
    dtype: str = "BFloat16"
    peer: int = -1
    root: int = -1
    sync: bool = True
    reduction: str = ""
    uneven: bool = False
    inside: bool = False

    @property
    def is_p2p(self) -> bool:
        """Whether it is a send or a receive."""
        return self.peer >= 0


@dataclass(frozen=True, slots=True)
class Bundle:
    """Calls that torch coalesces into one launch, closed by an entry of its own.

    Attributes:
        closing: Name of the closing entry: "coalesced" or "ALLGATHER_coalesced"…
        inside: As for `Issue`: the launch of the whole never returns.
    """

    issues: tuple[Issue, ...]
    site: IssueSite
    closing: str = "coalesced"
    sync: bool = True
    inside: bool = False

    @property
    def group(self) -> int:
        """The group of all its members."""
        return self.issues[0].group

    @property
    def is_p2p(self) -> bool:
        """Whether it bundles sends and receives."""
        return self.issues[0].is_p2p
