"""What explains what: the one table of it, and what becomes of a claim that another one explains.

A cause that something else explains is its consequence. Rules that find a reason (an end, a
failure, a shortage, calls or groups that do not fit) say of which sort it is and of which ranks;
which claims it explains is decided here, for all of them alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum, auto
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.claims import Because, Claim, Reason
from unhang.kinds import RANK_ENDED, SILENT_RANK, Kind, Trait

__all__ = [
    "EXPLAINS",
    "Among",
    "Explanation",
    "edges_of",
    "explained_by",
    "following",
    "without_empty",
]


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


class Explanation(Struct, frozen=True):
    """A reason explains claims.

    Attributes:
        why: How the one comes of the other.
        kind, trait: Of this kind, of kinds with this trait; of all where neither is given.
        hands_on: What the reason takes from the claim: who waits, and where it tells of no call or
            place itself, those.
    """

    because: Because
    among: Among
    why: str
    kind: Kind | None = None
    trait: Trait = Trait.NONE
    hands_on: tuple[str, ...] = ("victims",)

    def holds(self, claim: Claim, ranks: Collection[int]) -> bool:
        """Whether it explains this cause, being about these ranks."""
        fits = self.kind is None or claim.kind is self.kind
        return fits and claim.kind.has(self.trait) and _lie(self.among, claim.culprits, ranks)


_ALL: Final = (
    "victims", "moving", "subjects", "group", "seq", "op", "calls", "waits", "sites",
)  # fmt: skip

EXPLAINS: Final = (
    Explanation(
        Because.ENDED,
        Among.NAMED,
        "A process that has ended makes no call, answers nothing and moves nothing: whatever is "
        "said of its rank alone comes of that.",
    ),
    Explanation(
        Because.ENDED,
        Among.WITHIN,
        "Where none is blamed for what does not move, the rank that has ended is missing there. A "
        "wrong call is wrong whichever rank it has ended.",
        trait=Trait.FROM_FAILURE,
    ),
    Explanation(
        Because.GONE,
        Among.WITHIN,
        "A rank that failed because its peer had ended does not come either. What else it is "
        "blamed for, such as a call that does not fit, stands by itself.",
        trait=Trait.AWAITED,
    ),
    Explanation(
        Because.CALLS_APART,
        Among.ALL,
        "Gloo aborts the process that receives what does not fit, which need not be the one that "
        "was wrong.",
        kind=RANK_ENDED,
        hands_on=(),
    ),
    Explanation(
        Because.GROUPS_APART,
        Among.ALL,
        "The making of a group waits for its members: ranks that make another one keep all of them "
        "there, and with them the ranks that wait for these.",
        hands_on=(),
    ),
    Explanation(
        Because.FAILED,
        Among.SHARED,
        "A rank that has failed does not come, and a call in which all are fails for all. A wrong "
        "call is wrong whatever failed, so its kind lacks the trait.",
        trait=Trait.FROM_FAILURE,
        hands_on=_ALL,
    ),
    Explanation(
        Because.FAILED_SOMEWHERE,
        Among.ALL,
        "A line without a rank may be of the rank that left nothing else behind.",
        kind=SILENT_RANK,
        trait=Trait.FROM_FAILURE,
        hands_on=_ALL,
    ),
    Explanation(
        Because.SHORT,
        Among.NAMED,
        "A rank that gets no core, or no memory, comes late to every call. It has to be every rank "
        "that is waited for: one that is not short is late for another reason.",
        trait=Trait.MAY_COME,
        hands_on=("victims", "moving", "op", "sites"),
    ),
)  # fmt: skip


def edges_of(reason: Reason) -> list[Explanation]:
    """What it may explain."""
    return [edge for edge in EXPLAINS if edge.because is reason.because]


def explained_by(claims: Iterable[Claim], *reasons: Reason) -> list[Claim]:
    """The causes among the claims that one of these reasons explains."""
    edges = [(edge, reason.ranks) for reason in reasons for edge in edges_of(reason)]
    return [c for c in claims if c.is_cause and any(e.holds(c, ranks) for e, ranks in edges)]


def following(claims: Iterable[Claim], explained: Iterable[Claim], *lead: Claim) -> list[Claim]:
    """All claims, those that are explained as consequences of the one that explains them.

    Args:
        claims: In the order in which they are given back.
        explained: Some of them, by identity.
        lead: The claim that explains them; none where nothing tells what does.
    """
    ids = {id(claim) for claim in explained}
    return [replace(c, role="consequence", caused_by=lead) if id(c) in ids else c for c in claims]


def without_empty(claims: Sequence[Claim]) -> list[Claim]:
    """The claims beside a cause: that nothing was found is pointless then."""
    return [c for c in claims if c.is_cause or not c.kind.has(Trait.NOTHING_FOUND)]


def _lie(among: Among, blamed: Sequence[int], ranks: Collection[int]) -> bool:
    if among is Among.ALL:
        return True
    if among is Among.SHARED:
        return not blamed or any(rank in ranks for rank in blamed)
    return all(rank in ranks for rank in blamed) and bool(blamed or among is Among.WITHIN)
