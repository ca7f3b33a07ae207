"""What explains what: the one table of it, and what becomes of a claim that another one explains.

A cause that something else explains is its consequence. Rules that find a reason (an end, a
failure, a shortage, calls or groups that do not fit) say of which sort it is and of which ranks;
which claims it explains is decided here, for all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum, auto
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.claims import Bearing, Because, Claim, Doubt, Observation, Reason
from unhang.analysis.sources.logs import Message
from unhang.kinds import RANK_ENDED, SHAPE_MISMATCH, SILENT_RANK, Kind, Trait
from unhang.report import Site

__all__ = [
    "EXPLAINS",
    "INSTEAD",
    "Among",
    "Explanation",
    "Instead",
    "explained_by",
    "following",
    "linked",
    "told_instead",
    "with_first",
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


class Instead(Struct, frozen=True):
    """One claim says of the same trouble more than another, which is not told beside it.

    Attributes:
        told, left_out: Whether a claim is the one, and the other.
    """

    told: Callable[[Claim], bool]
    left_out: Callable[[Claim], bool]
    why: str


INSTEAD: Final = (
    Instead(
        lambda claim: _is_reason(claim, Because.GROUPS_APART),
        lambda claim: claim.rests_on == "stacks" and not claim.reasons,
        "Stacks show that ranks wait as they make a group, and what they were told shows why.",
    ),
    Instead(
        lambda claim: _is_reason(claim, Because.CALLS_APART) and claim.rests_on != "dumps",
        lambda claim: claim.kind is SHAPE_MISMATCH and claim.rests_on == "dumps",
        "Heartbeats outlive the rank that was ended for a size, and know its last call.",
    ),
)  # fmt: skip
"""What is told instead of what: of two claims about one trouble, the one that says more."""


def _is_reason(claim: Claim, because: Because) -> bool:
    return any(reason.because is because for reason in claim.reasons)


def told_instead(claims: Sequence[Claim]) -> list[Claim]:
    """The claims without those of which others say more."""
    rows = [row for row in INSTEAD if any(map(row.told, claims))]
    return [c for c in claims if not any(row.left_out(c) for row in rows)]


def linked(claims: Iterable[Claim], *bare: Reason) -> list[Claim]:
    """The claims, those that another one explains as its consequences.

    Args:
        claims: Of rules that have not seen each other's.
        bare: Reasons that no claim tells of.
    """
    told = list(claims)
    leads = [at for at, claim in enumerate(told) if claim.reasons]
    for at in sorted(leads, key=lambda at: _turn(told[at])):
        if told[at].is_cause:
            told = _linked_to(told, at)
    told = without_empty(told) if any(claim.is_cause for claim in told) else told
    for reason in bare:
        told = following(told, explained_by(told, reason))
    return told


def _turn(lead: Claim) -> int:
    return list(Because).index(lead.reasons[0].because)


def _linked_to(claims: Sequence[Claim], at: int) -> list[Claim]:
    """The claims, with what the one at a place explains as its consequences.

    What explains it in turn, and comes later, is none: an end says less than what ended the rank.
    """
    lead = claims[at]
    rest = [claim for claim in claims if claim is not lead]
    explained = explained_by(rest, *lead.reasons)
    explained = [claim for claim in explained if not _comes_of(lead, claim)]
    if explained:
        lead = _taking(replace(lead, explains=tuple(explained)))
    rest = following(rest, explained, lead)
    return [*rest[:at], lead, *rest[at:]]


def _taking(lead: Claim) -> Claim:
    """The lead with what it takes from the claims that it explains."""
    told = [(claim, _handed_on(lead, claim)) for claim in lead.explains]
    main = next(fields for claim, fields in told if claim is lead.main)
    taken = {each: getattr(lead, each) or getattr(lead.main, each) for each in main}
    own = {*lead.culprits, *lead.reasons[0].ranks}
    for ranks in ("victims", "moving"):
        also = {rank for claim, fields in told if ranks in fields for rank in getattr(claim, ranks)}
        taken[ranks] = tuple(sorted({*getattr(lead, ranks), *also}))
    taken["victims"] = tuple(rank for rank in taken["victims"] if rank not in own)
    if "sites" in main:
        taken["sites"] = _sites(lead)
    return replace(lead, **taken)


def _sites(lead: Claim) -> tuple[Site, ...]:
    """Its own places first; of those that the others know too, theirs, with the whole stack."""
    known = {_place(site): site for claim in lead.explains for site in claim.sites}
    own = tuple(known.get(_place(site), site) for site in lead.sites)
    rest = (site for claim in lead.explains for site in claim.sites if site not in own)
    return (*own, *dict.fromkeys(rest))


def _place(site: Site) -> tuple[object, ...]:
    return (site.ranks, site.role, site.file, site.line)


def _comes_of(lead: Claim, claim: Claim) -> bool:
    """Whether another reason will explain the lead itself."""
    later = bool(claim.reasons) and _turn(claim) > _turn(lead)
    return later and bool(explained_by([lead], *claim.reasons))


def _handed_on(lead: Claim, claim: Claim) -> dict[str, None]:
    edges = [e for r in lead.reasons for e in _edges(r) if e.holds(claim, r.ranks)]
    return dict.fromkeys(field for edge in edges for field in edge.hands_on)


def _edges(reason: Reason) -> list[Explanation]:
    return [edge for edge in EXPLAINS if edge.because is reason.because]


def with_first(claims: Sequence[Claim], rivals: Sequence[Claim]) -> list[Claim]:
    """The claims, and the one that counts of reasons of which only one came first.

    It is the earliest of which others tell already, or which explains whom they blame; or else the
    earliest of all. It leads what it explains, or where nothing else is a cause; else it is told
    after the others, and makes them less sure.
    """
    causes = [claim for claim in claims if claim.is_cause]
    if not rivals:
        return list(claims)
    named = [claim for claim in causes if claim.culprits]
    fits = (r for r in rivals if _is_told(r, causes) or explained_by(named, *r.reasons))
    first = next(fits, rivals[0])
    if _is_told(first, causes):
        return list(claims)
    explained = explained_by(claims, *first.reasons)
    if not causes or (explained and (explained[0] is claims[0] or not _has_ended(claims[0]))):
        lead, *rest = _linked_to([_named_by(first, explained), *claims], 0)
        rest = rest if causes else without_empty(rest)
        return [_led(lead), *sorted(rest, key=lambda claim: not claim.is_cause)]
    beside = replace(first, role="observation").doubted([Doubt.OTHER_CAUSE])
    return [*(_less_sure(c, first) if c.is_cause else c for c in claims), beside]


def _is_told(rival: Claim, causes: Iterable[Claim]) -> bool:
    """Whether the end of a rank is told with it already."""
    return any(
        isinstance(rival.about, Observation) and _has_ended(c) and c.knows(rival.about)
        for c in causes
    )


def _has_ended(claim: Claim) -> bool:
    return claim.kind is RANK_ENDED


def _named_by(first: Claim, explained: Sequence[Claim]) -> Claim:
    """A failure of no known rank is that of the ranks that left nothing else behind."""
    silent = explained[0] if explained and _is_reason(first, Because.FAILED_SOMEWHERE) else None
    if silent is None or silent.kind is not SILENT_RANK:
        return first
    return replace(first, culprits=silent.culprits).doubted([Doubt.NOTHING_SEEN])


def _led(lead: Claim) -> Claim:
    """The lead, less sure where who is missed moves, or where all ranks are in the call."""
    if not lead.explains:
        return lead
    may_come = lead.kind.has(Trait.MAY_COME)  # whom its peers missed may have worked all the while
    moving = tuple(rank for rank in lead.moving if may_come and rank in lead.culprits)
    doubts = (
        *([Doubt.MOVES] if moving else []),
        *([] if lead.main.culprits else [Doubt.LOG_ALONE]),
    )
    return replace(lead, moving=moving).doubted(doubts)


def _less_sure(claim: Claim, first: Claim) -> Claim:
    """A cause beside which the logs name another one.

    A wrong call is wrong whatever else failed, and a line of no rank contradicts none; nor does
    one that the claim rests on.
    """
    known = (each.observation for each in claim.weighed)
    failure = first.about
    if not isinstance(failure, Message) or any(
        isinstance(each, Message) and each.group is failure.group for each in known
    ):
        return claim
    against = claim.kind.has(Trait.FROM_FAILURE) and first.culprits
    return claim.seen(failure, Bearing.OTHER_FAILURE if against else Bearing.FAILURE_BESIDE)


def explained_by(claims: Iterable[Claim], *reasons: Reason) -> list[Claim]:
    """The causes among the claims that one of these reasons explains."""
    edges = [(edge, reason.ranks) for reason in reasons for edge in _edges(reason)]
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
