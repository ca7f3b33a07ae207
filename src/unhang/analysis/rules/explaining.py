"""What explains what: the table of it, and what becomes of a claim that another one explains.

A cause that something else explains is its consequence. Rules that find a reason (an end, a
failure, a shortage, calls or groups that do not fit) say its sort and its ranks;
which claims it explains is decided here, for all of them alike. The edges of a sort that several
rules share are here; a reason that only one finding gives carries its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from unhang.analysis.shared.claims import Claim
from unhang.analysis.shared.reason import Among, Because, Explanation, Reason
from unhang.kinds import Trait

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
        Because.KILLED_ALIKE,
        Among.NAMED,
        "As for one that has ended. But who kills all ranks at once has not made their calls, and "
        "may have done it because these did not fit.",
        spares="disagreement",
    ),
    Explanation(
        Because.KILLED_ALIKE,
        Among.WITHIN,
        "As for one that has ended.",
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
        trait=Trait.ENDED,
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
        trait=Trait.FROM_FAILURE | Trait.LAST_RESORT,
        hands_on=_ALL,
    ),
)  # fmt: skip


def edges_of(reason: Reason) -> list[Explanation]:
    """What it may explain."""
    return [*(edge for edge in EXPLAINS if edge.because is reason.because), *reason.edges]


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
    """The claims next to a cause: that nothing was found is pointless then."""
    return [c for c in claims if c.is_cause or not c.kind.has(Trait.NOTHING_FOUND)]
