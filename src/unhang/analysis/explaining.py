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

from unhang.analysis.claims import Claim
from unhang.kinds import RANK_ENDED, SILENT_RANK, Kind, Trait

__all__ = [
    "EXPLAINS",
    "Among",
    "Because",
    "Explanation",
    "explained_by",
    "following",
    "without_empty",
]


class Because(Enum):
    """A sort of reason."""

    ENDED = "ranks have ended"
    GONE = "ranks have ended, or failed since because others ended"
    CALLS_APART = "the last calls of ranks do not fit"
    GROUPS_APART = "ranks make groups that are not the same"
    FAILED = "ranks have failed, by their logs"
    FAILED_SOMEWHERE = "a rank has failed, and nothing tells which"
    SHORT = "ranks are held up by a limit"


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
        kind, trait: Of this kind, of kinds with this trait; of all where neither is given.
        why: How the one comes of the other.
    """

    because: Because
    among: Among
    why: str
    kind: Kind | None = None
    trait: Trait = Trait.NONE

    def holds(self, claim: Claim, ranks: Collection[int]) -> bool:
        """Whether it explains this cause, being about these ranks."""
        fits = self.kind is None or claim.kind is self.kind
        return fits and claim.kind.has(self.trait) and _lie(self.among, claim.culprits, ranks)


EXPLAINS: Final = (
    Explanation(
        Because.ENDED,
        Among.WITHIN,
        "A process that has ended makes no call, answers nothing and moves nothing: whatever is "
        "said of its rank alone comes of that.",
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
    ),
    Explanation(
        Because.GROUPS_APART,
        Among.ALL,
        "The making of a group waits for its members: ranks that make another one keep all of them "
        "there, and with them the ranks that wait for these.",
    ),
    Explanation(
        Because.FAILED,
        Among.SHARED,
        "A rank that has failed does not come, and a call in which all are fails for all. A wrong "
        "call is wrong whatever failed, so its kind lacks the trait.",
        trait=Trait.FROM_FAILURE,
    ),
    Explanation(
        Because.FAILED_SOMEWHERE,
        Among.ALL,
        "A line without a rank may be of the rank that left nothing else behind.",
        kind=SILENT_RANK,
        trait=Trait.FROM_FAILURE,
    ),
    Explanation(
        Because.SHORT,
        Among.NAMED,
        "A rank that gets no core, or no memory, comes late to every call. It has to be every rank "
        "that is waited for: one that is not short is late for another reason.",
        trait=Trait.MAY_COME,
    ),
)  # fmt: skip


def explained_by(
    claims: Iterable[Claim], because: Because, ranks: Collection[int] = ()
) -> list[Claim]:
    """The causes among the claims that a reason about these ranks explains."""
    edges = [edge for edge in EXPLAINS if edge.because is because]
    return [c for c in claims if c.is_cause and any(edge.holds(c, ranks) for edge in edges)]


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
