"""Sends and receives that meet and disagree, or that name the wrong peer.

About size, dtype, tag or peer. With two sides only there is no majority, so a mismatch blames
neither.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from unhang.analysis.divergence.counterparts import group_peer
from unhang.analysis.matching.pairs import met_by_tag
from unhang.analysis.rules.telling import Words, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.ops import elements
from unhang.kinds import Kind, Trait
from unhang.spans import distinct

P2P_MISMATCH: Final = Kind(
    "UH304",
    "p2p-mismatch",
    "disagreement",
    "A send and its receive disagree about size, dtype, tag or peer.",
    traits=Trait.OF_NOW,
    actions=("Print shape, dtype, tag and peer just before both lines.",),
)

Disputed: TypeAlias = Literal["size", "dtype", "tag"]


class PairMismatch(Struct, frozen=True):
    """A send and a receive that meet and disagree.

    Attributes:
        waiting_calls: Of the sender and of the receiver.
        rows: Of the send and of the receive.
        tags: Of both, where these are in dispute.
        sure: Their numbers are counted from the start.
    """

    waiting_calls: tuple[int, int]
    rows: tuple[int, int]
    what: Disputed
    tags: tuple[int, int] | None = None
    sure: bool = True


class PairDisagrees(Struct, frozen=True):
    """A send and its receive that disagree about something; `tags` of both where it is these."""

    sender: int
    receiver: int
    what: Disputed
    tags: tuple[int, int] | None = None


class PeersCrossed(Struct, frozen=True):
    """A rank addresses one peer while another one waits for it.

    Attributes:
        rank, named, waiting: Who calls, whom it names, who waits for it instead.
        sends: It sends; else it receives.
        met_by_queued: The waiting call is met, but only by what `rank` has queued behind this one.
        by_habit: `rank` has always met `waiting` here, and never `named`.
    """

    rank: int
    named: int
    waiting: int
    sends: bool
    met_by_queued: bool
    by_habit: bool


def pair_mismatches(situation: Situation) -> list[PairMismatch]:
    """Find sends and receives, both in flight as heads, that disagree about size, dtype or tag.

    Of an exchange in both directions with different tags, only the first one is reported.
    """
    pairs = situation.pairs
    found: list[PairMismatch] = []
    told: set[frozenset[int]] = set()
    sends = np.flatnonzero(pairs.sending & (pairs.waiting_call >= 0) & (pairs.counterpart >= 0))
    # The first is that of the lowest rank, in whatever order dumps were read.
    for at in sends[np.argsort(pairs.owner[sends], kind="stable")].tolist():
        send, receive = int(pairs.row[at]), int(pairs.counterpart[at])
        other = pairs.at_row(receive)
        if other < 0 or pairs.waiting_call[other] < 0:
            continue
        tags, waiting_calls = _tags_of(situation, at, other), _waiting_calls(situation, at, other)
        sure = bool(pairs.sure[at] and pairs.sure[other])
        if not sure and situation.ages.young[pairs.owner[[at, other]]].all():
            continue  # in flight: who meets whom is presumed
        if tags[0] == tags[1]:
            if (what := _disputed(situation, send, receive)) is not None:
                found.append(PairMismatch(waiting_calls, (send, receive), what, sure=sure))
        elif {*waiting_calls} not in told and not _meet_by_tag(situation, at, other):
            found.append(PairMismatch(waiting_calls, (send, receive), "tag", tags, sure=sure))
            told.add(frozenset(waiting_calls))
    return found


def _waiting_calls(situation: Situation, at: int, other: int) -> tuple[int, int]:
    """The waiting calls of two positions in `Pairs`."""
    calls = situation.pairs.waiting_call
    return int(calls[at]), int(calls[other])


def _tags_of(situation: Situation, at: int, other: int) -> tuple[int, int]:
    """Tags of a send and a receive; both -1 where one of them is not known."""
    tags = situation.pairs.tag
    known = tags[at] >= 0 and tags[other] >= 0
    return (int(tags[at]), int(tags[other])) if known else (-1, -1)


def _meet_by_tag(situation: Situation, at: int, other: int) -> bool:
    """Whether one of two calls may have its counterpart by tag among the open ones."""
    met = (met_by_tag(situation.evidence, situation.pairs, each) for each in (at, other))
    return any(each is not False for each in met)


def _disputed(situation: Situation, send: int, receive: int) -> Disputed | None:
    """About what the rows of a send and a receive disagree."""
    case = situation.evidence.case
    left = case.signatures[int(case.calls.signature[send])]
    right = case.signatures[int(case.calls.signature[receive])]
    counts = elements(left.input_sizes), elements(right.output_sizes)
    dtypes = set(left.input_dtypes), set(right.output_dtypes)
    if None not in counts and counts[0] != counts[1]:
        return "size"
    return "dtype" if all(dtypes) and dtypes[0] != dtypes[1] else None


def explain_pair_mismatch(situation: Situation, mismatch: PairMismatch) -> Claim:
    """Explain a send and a receive that disagree."""
    nodes = situation.graph.n_ranks + np.asarray(mismatch.waiting_calls, np.int64)
    rows = np.asarray(mismatch.rows, np.int64)
    sender, receiver = situation.evidence.case.calls.rank[rows].tolist()
    return Claim(
        kind=P2P_MISMATCH,
        about=PairDisagrees(sender, receiver, mismatch.what, mismatch.tags),
        victims=situation.victims(situation.graph.reaching(nodes)),
        group=situation.group_ref(mismatch.waiting_calls[0]),
        op="send",
        calls=situation.sides_by_row(rows, "peer"),
        sites=situation.book.sites_of_rows(rows, "victim"),
        doubts=(Doubt.NO_MAJORITY, *(() if mismatch.sure else (Doubt.COUNT_UNSURE,))),
    )


class WrongPeer(Struct, frozen=True):
    """A send or receive that names the wrong peer.

    Attributes:
        call: Position in `Pairs` of the call that nothing meets.
        expecting: Position of the call of another rank that expects this one.
    """

    call: int
    expecting: int


def wrong_peers(situation: Situation) -> list[WrongPeer]:
    """Find ranks that address one peer while another waits for them in vain.

    Both calls are of the same size and in the same group; nothing meets the first, and nothing but
    what that rank has queued behind it meets the second. And the rank will not make it up: it and
    the peer that it names have gone on to later calls, or it has never before addressed this peer
    in the group, but the waiting one.
    """
    pairs = situation.pairs
    waiting = np.flatnonzero((pairs.waiting_call >= 0) & (pairs.peer >= 0))
    expecting: dict[tuple[int, bool], list[int]] = {}
    for at in waiting.tolist():
        if pairs.counterpart[at] < 0 or _is_queued(situation, int(pairs.counterpart[at])):
            key = int(pairs.peer[at]), bool(pairs.sending[at])
            expecting.setdefault(key, []).append(at)
    found = []
    for at in waiting[pairs.counterpart[waiting] < 0].tolist():
        owner, peer = int(pairs.owner[at]), int(pairs.peer[at])
        for other in expecting.get((owner, not bool(pairs.sending[at])), ()):
            if int(pairs.owner[other]) != peer and _fits(situation, at, other):
                found.append(WrongPeer(at, other))
                break
    return found


def _is_queued(situation: Situation, row: int) -> bool:
    at = situation.pairs.at_row(row)
    return at >= 0 and int(situation.pairs.waiting_call[at]) < 0


def _fits(situation: Situation, at: int, other: int) -> bool:
    calls, pairs = situation.evidence.case.calls, situation.pairs
    left, right = int(pairs.row[at]), int(pairs.row[other])
    if calls.group[left] != calls.group[right] or calls.signature[left] != calls.signature[right]:
        return False
    gone_on = pairs.counterpart[other] < 0 and all(
        _went_on(situation, rank, left) for rank in (int(pairs.owner[at]), int(pairs.peer[at]))
    )
    return gone_on or _out_of_habit(situation, at, int(pairs.owner[other]))


def _out_of_habit(situation: Situation, at: int, usual: int) -> bool:
    """Whether a rank has always addressed another peer, never the one that this call names."""
    evidence, pairs = situation.evidence, situation.pairs
    calls, row = evidence.case.calls, int(pairs.row[at])
    dump = evidence.case.dumps[int(calls.dump[row])]
    own = np.arange(dump.start, dump.stop)
    own = own[~evidence.collective[own] & (calls.group[own] == calls.group[row])]
    done = own[evidence.finished[own]]
    sending = bool(pairs.sending[at])
    peers = {
        group_peer(situation, int(name), sending=sending) for name in distinct(calls.name[done])
    }
    members = evidence.case.groups[int(calls.group[row])].members
    met = {members[peer] for peer in peers if 0 <= peer < len(members)}
    named, expected = (int(evidence.ranks.numbers[rank]) for rank in (int(pairs.peer[at]), usual))
    return expected in met and named not in met


def _is_habit(situation: Situation, wrong: WrongPeer) -> bool:
    """Whether the rank has exchanged with the one that waits for it several times before."""
    evidence, pairs = situation.evidence, situation.pairs
    calls, row = evidence.case.calls, int(pairs.row[wrong.call])
    numbers = evidence.ranks.numbers[
        [int(pairs.owner[wrong.call]), int(pairs.owner[wrong.expecting])]
    ]
    group = evidence.case.groups[int(calls.group[row])]
    me, usual = (group.members.index(int(n)) if int(n) in group.members else -1 for n in numbers)
    sending = bool(pairs.sending[wrong.call])
    ends = (me, usual) if sending else (usual, me)
    own = np.arange(evidence.case.dumps[int(calls.dump[row])].start, row)
    own = own[(calls.group[own] == calls.group[row]) & evidence.finished[own]]
    names = (evidence.case.names[int(name)] for name in calls.name[own])
    return sum((name.src, name.dst) == ends for name in names) > 1


def _went_on(situation: Situation, rank: int, row: int) -> bool:
    """Whether a rank made a collective call after another rank's call, by their group's count."""
    calls = situation.evidence.case.calls
    channel = int(situation.evidence.channel(np.asarray([row]))[0])
    at = int(situation.standing.at(np.asarray([rank], np.int64), channel)[0])
    return at >= 0 and int(situation.standing.reach[at]) > int(calls.seq[row]) >= 0


def explain_wrong_peer(situation: Situation, wrong: WrongPeer) -> Claim:
    """Explain a rank that addresses the wrong peer."""
    pairs, names = situation.pairs, situation.evidence.case.names
    both = [int(pairs.waiting_call[wrong.call]), int(pairs.waiting_call[wrong.expecting])]
    nodes = situation.graph.n_ranks + np.asarray(both, np.int64)
    reached = situation.victims(situation.graph.reaching(nodes))
    rows = np.asarray([pairs.row[wrong.call], pairs.row[wrong.expecting]], np.int64)
    crossed = _crossed(situation, wrong)
    return Claim(
        kind=P2P_MISMATCH,
        about=crossed,
        culprits=(crossed.rank,),
        victims=tuple(rank for rank in reached if rank != crossed.rank),
        group=situation.group_ref(both[0]),
        op=names[int(situation.evidence.case.calls.name[rows[0]])].op,
        calls=(
            *situation.sides_by_row(rows[:1], "culprit"),
            *situation.sides_by_row(rows[1:], "victim"),
        ),
        sites=(
            *situation.book.sites_of_rows(rows[:1], "culprit"),
            *situation.book.sites_of_rows(rows[1:], "victim"),
        ),
        doubts=(Doubt.BY_HABIT,) if _is_habit(situation, wrong) else (Doubt.ONCE_ONLY,),
    )


def _crossed(situation: Situation, wrong: WrongPeer) -> PeersCrossed:
    pairs, numbers = situation.pairs, situation.evidence.ranks.numbers
    waiting = int(pairs.owner[wrong.expecting])
    return PeersCrossed(
        rank=int(numbers[pairs.owner[wrong.call]]),
        named=int(numbers[pairs.peer[wrong.call]]),
        waiting=int(numbers[waiting]),
        sends=bool(pairs.sending[wrong.call]),
        met_by_queued=bool(pairs.counterpart[wrong.expecting] >= 0),
        by_habit=_out_of_habit(situation, wrong.call, waiting),
    )


@words_for(PairDisagrees)
def _verdict_of_pair_disagrees(about: PairDisagrees, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    if about.tags is not None:
        return _tags(about, *about.tags)
    return Words(
        f"Rank {about.sender} sends to rank {about.receiver} what rank {about.receiver} does not "
        f"receive: they disagree about the {about.what}.",
        (
            "Both calls are in flight and belong together.",
            "There are only two sides, so neither is blamed.",
        ),
    )


def _tags(about: PairDisagrees, sent: int, received: int) -> Words:
    return Words(
        f"Send and receive between ranks {about.sender} and {about.receiver} disagree about the "
        f"tag: {sent} and {received}.",
        (
            "Both calls are in flight, and neither meets a call with its own tag.",
            "There are only two sides, so neither is blamed.",
        ),
        alternatives=(
            "One side may have skipped an exchange, or made one too many, before this one.",
        ),
        actions=("Print the tag and what it is computed from just before both lines.",),
    )


@words_for(PeersCrossed)
def _verdict_of_peers_crossed(about: PeersCrossed, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    rank, named, waiting = about.rank, about.named, about.waiting
    verb = "sends to" if about.sends else "receives from"
    met = (
        f"Only a call that rank {rank} has queued behind it meets that of rank {waiting}."
        if about.met_by_queued
        else "Neither has a counterpart."
    )
    why = (
        f"Rank {rank} met rank {waiting} here in earlier steps, and never rank {named}."
        if about.by_habit
        else f"Ranks {rank} and {named} have gone on to later calls of the group."
    )
    return Words(
        f"Rank {rank} {verb} rank {named}, which has no call for it, while rank {waiting} waits "
        f"for rank {rank}: the wrong peer.",
        (f"The calls of ranks {rank} and {waiting} have the same size.", met, why),
    )
