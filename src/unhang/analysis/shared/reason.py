"""What a claim is to others that it may explain: the sort of reason, and what comes of it.

`unhang.analysis.rules.explaining` has the edges of the sorts that several rules share.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto
from typing import Protocol

from msgspec import Struct

from unhang.kinds import Kind, Trait


class Because(Enum):
    """A sort of reason, those first whose consequences may be reasons themselves."""

    ENDED = "ranks have ended"
    KILLED_ALIKE = "all ranks have ended alike, and none of them says why"
    GONE = "ranks have ended, or failed since because others ended"
    CALLS_APART = "the last calls of ranks do not fit"
    GROUPS_APART = "ranks make groups that are not the same"
    FAILED = "ranks have failed, by their logs"
    FAILED_SOMEWHERE = "a rank has failed, and nothing tells which"
    OWN = "what the file of a finding says of itself"


class Among(Enum):
    """How the ranks that a claim blames must lie to those of the reason."""

    WITHIN = auto()
    """All of them are of the reason; a claim that blames none has no other."""
    NAMED = auto()
    """It blames some, and all of them are of the reason."""
    SHARED = auto()
    """One of them is of the reason, or it blames none."""
    ALL = auto()
    """Wherever they lie."""


class Blaming(Protocol):
    """A claim, as far as its kind and whom it blames."""

    @property
    def kind(self) -> Kind:
        """What is claimed."""

    @property
    def culprits(self) -> tuple[int, ...]:
        """The global ranks that it blames."""


class Explanation(Struct, frozen=True):
    """A reason explains claims.

    Attributes:
        why: How the one comes of the other.
        trait: Of kinds with this trait; of all where none is given.
        spares: A family of kinds that it does not explain, or "".
        hands_on: What the reason takes from the claim: who waits, and where it tells of no call or
            place itself, those.
    """

    because: Because
    among: Among
    why: str
    trait: Trait = Trait.NONE
    spares: str = ""
    hands_on: tuple[str, ...] = ("victims",)

    def holds(self, claim: Blaming, ranks: Collection[int]) -> bool:
        """Whether it explains this cause, being about these ranks."""
        fits = claim.kind.has(self.trait) and claim.kind.family != self.spares
        return fits and _lie(self.among, claim.culprits, ranks)


class Reason(Struct, frozen=True):
    """The sort of a reason, and its ranks.

    Attributes:
        edges: What it explains, for a reason of a finding's own (`Because.OWN`).
    """

    because: Because
    ranks: frozenset[int] = frozenset()
    edges: tuple[Explanation, ...] = ()


def _lie(among: Among, blamed: Sequence[int], ranks: Collection[int]) -> bool:
    if among is Among.ALL:
        return True
    if among is Among.SHARED:
        return not blamed or any(rank in ranks for rank in blamed)
    return all(rank in ranks for rank in blamed) and bool(blamed or among is Among.WITHIN)
