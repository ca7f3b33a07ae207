"""How the claims of a case lie to each other: the only place that sees those of several rules.

Rules read facts. Here the table of what explains what is applied to what they claim, in the order
of the reasons: so it makes no difference which rule told first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.rules.explaining import edges_of, explained_by, following, without_empty
from unhang.analysis.shared.claims import Bearing, Because, Claim, Doubt, Reason
from unhang.kinds import Trait
from unhang.report import Site


class Instead(Struct, frozen=True):
    """One claim says of the same trouble more than another, which is then left out.

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
        lambda claim: claim.kind.has(Trait.SIZES) and claim.rests_on == "dumps",
        "Heartbeats outlive the rank that was ended for a size, and know its last call.",
    ),
)  # fmt: skip
"""Of two claims about one trouble, the one that says more."""


def _is_reason(claim: Claim, because: Because) -> bool:
    return any(reason.because is because for reason in claim.reasons)


def told_instead(claims: Sequence[Claim]) -> list[Claim]:
    """The claims without those that others say more about."""
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
    edges = [e for r in lead.reasons for e in edges_of(r) if e.holds(claim, r.ranks)]
    return dict.fromkeys(field for edge in edges for field in edge.hands_on)


def with_first(claims: Sequence[Claim], rivals: Sequence[Claim]) -> list[Claim]:
    """The claims, and the reason that counts where only one of several came first.

    It is the earliest that others mention already, or that explains whom they blame; or else the
    earliest of all. It leads what it explains, or where nothing else is a cause; else, or where
    another rank is known to have ended, it comes after the others, and makes them less sure.
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
    others = [c for c in causes if _has_ended(c) and not explained_by([c], *first.reasons)]
    if not causes or (explained and not others):
        lead, *rest = _linked_to([_named_by(first, explained), *claims], 0)
        rest = rest if causes else without_empty(rest)
        return [_led(lead), *sorted(rest, key=lambda claim: not claim.is_cause)]
    beside = replace(first, role="observation").doubted([Doubt.OTHER_CAUSE])
    return [*(_less_sure(c, first) if c.is_cause else c for c in claims), beside]


def _is_told(rival: Claim, causes: Iterable[Claim]) -> bool:
    """Whether the end of a rank names it already."""
    told = rival.observed
    return told is not None and any(_has_ended(c) and c.knows(told) for c in causes)


def _has_ended(claim: Claim) -> bool:
    return claim.kind.has(Trait.ENDED)


def _named_by(first: Claim, explained: Sequence[Claim]) -> Claim:
    """A failure of no known rank is that of the ranks that left nothing else behind."""
    silent = next((claim for claim in explained if claim.kind.has(Trait.LAST_RESORT)), None)
    if silent is None or not _is_reason(first, Because.FAILED_SOMEWHERE):
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
    """A cause, where the logs name another one.

    A wrong call is wrong whatever else failed, and a line of no rank contradicts none; nor does
    one that the claim rests on.
    """
    failure = first.observed
    if failure is None or claim.knows(failure):
        return claim
    against = claim.kind.has(Trait.FROM_FAILURE) and first.culprits
    return claim.seen(failure, Bearing.OTHER_FAILURE if against else Bearing.FAILURE_BESIDE)
