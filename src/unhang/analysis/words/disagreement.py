"""Words for calls that meet and do not fit, and for groups of unclear members."""

from __future__ import annotations

from typing import Final

from unhang.analysis.claims import Claim
from unhang.analysis.findings.disagreement import MembersDiffer, MembersDisagree
from unhang.analysis.findings.exchanges import PairDisagrees, PeersCrossed
from unhang.analysis.rules.telling import Words, subject, words_for
from unhang.kinds import DTYPE_MISMATCH, OP_MISMATCH, SHAPE_MISMATCH, SPLIT_MISMATCH, Kind
from unhang.wording import rank_phrase

__all__: list[str] = []

_DISAGREE: Final[dict[Kind, str]] = {
    SHAPE_MISMATCH: "disagree about the sizes of",
    DTYPE_MISMATCH: "disagree about the dtypes of",
    SPLIT_MISMATCH: "send and receive different amounts in",
}
_MOST_OPS = 4
_MOST_SIDES = 3


@words_for(MembersDisagree)
def _verdict_of_members_disagree(about: MembersDisagree, claim: Claim) -> Words:
    if about.roots is not None:
        return _roots(about, about.roots, claim)
    return Words(_mismatch(about, claim), tuple(_agreement(about)))


def _roots(about: MembersDisagree, roots: tuple[int, ...], claim: Claim) -> Words:
    who = f"{rank_phrase(roots)} all are" if roots else "none of its members is"
    before = (
        f"In earlier calls of this line {rank_phrase(claim.culprits)} always had the other role."
        if about.majority
        else "No earlier calls of this line tell who is wrong, so nobody is blamed."
    )
    return Words(
        f"Members disagree about the root of {about.call}: {who} its root.",
        ("The root alone has a tensor for each member; the dumps show who has.", before),
        alternatives=("A call that one side skipped or repeated earlier makes unlike calls meet.",),
        actions=("Print the rank and the root (src or dst) just before this line on all ranks.",),
    )


def _mismatch(about: MembersDisagree, claim: Claim) -> str:
    if claim.kind == OP_MISMATCH:
        said = "; ".join(f"{rank_phrase(s.ranks)}: {s.op}" for s in about.sides[:_MOST_OPS])
        return f"Members of {about.group} made different calls as #{claim.seq}: {said}."
    if about.majority:
        who = f"{rank_phrase(claim.culprits)} against {rank_phrase(about.majority)}"
    else:
        who = " against ".join(rank_phrase(side.ranks) for side in about.sides[:_MOST_SIDES])
    return f"Members {_DISAGREE[claim.kind]} {about.call}: {who}."


def _agreement(about: MembersDisagree) -> list[str]:
    found = []
    if about.totals:
        sent, received = about.totals
        found.append(f"All members together send {sent:,} and receive {received:,} elements.")
    if about.ended:
        more = f", and {about.ended - 1} more of its group," if about.ended > 1 else ""
        found.append(f"The call{more} has ended all the same; what it computed may be wrong.")
    known = sum(len(side.ranks) for side in about.sides)
    found.append(
        f"{len(about.majority)} of {known} members agree."
        if about.majority
        else "No side has a majority, so neither is blamed."
    )
    return found


@words_for(PairDisagrees)
def _verdict_of_pair_disagrees(about: PairDisagrees, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    if about.tags is not None:
        return _tags(about, *about.tags)
    return Words(
        f"Rank {about.sender} sends to rank {about.receiver} what that does not receive: they "
        f"disagree about the {about.what}.",
        (
            "Both calls are in flight and are each other's counterpart.",
            "There are two sides only, so neither is blamed.",
        ),
    )


def _tags(about: PairDisagrees, sent: int, received: int) -> Words:
    return Words(
        f"Send and receive between ranks {about.sender} and {about.receiver} disagree about the "
        f"tag: {sent} and {received}.",
        (
            "Both calls are in flight, and neither meets one of its own tag.",
            "There are two sides only, so neither is blamed.",
        ),
        alternatives=("One side has left out an exchange, or made one too many, before this one.",),
        actions=("Print the tag and what it is counted from just before both lines.",),
    )


@words_for(PeersCrossed)
def _verdict_of_peers_crossed(about: PeersCrossed, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    rank, named, waiting = about.rank, about.named, about.waiting
    verb = "sends to" if about.sends else "receives from"
    met = (
        f"That of rank {waiting} is met only by what rank {rank} has queued behind it."
        if about.met_by_queued
        else "Neither has a counterpart."
    )
    why = (
        f"Before, rank {rank} met rank {waiting} here, and never rank {named}."
        if about.by_habit
        else f"Ranks {rank} and {named} have gone on to later calls of the group."
    )
    return Words(
        f"Rank {rank} {verb} rank {named}, which has no call for it, while rank {waiting} waits "
        f"for rank {rank}: the wrong peer.",
        (f"The call of rank {rank} and that of rank {waiting} are of one size.", met, why),
    )


@words_for(MembersDiffer)
def _verdict_of_members_differ(about: MembersDiffer, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    first = about.versions[0]
    return Words(
        f"{subject(about.accused)} and {rank_phrase(first.knowers)} disagree about who is in "
        f"{about.group}.",
        tuple(
            f"{subject(version.knowers)}: {rank_phrase(version.members)} are in it."
            for version in about.versions
        ),
    )
