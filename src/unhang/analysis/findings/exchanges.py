"""Findings about sends and receives that do not meet, or that disagree.

A send or a receive without a counterpart (UH302), or with one of other size, dtype or peer (UH304).
Circles of them are told by `unhang.analysis.findings.deadlock`. With two sides only there is no
majority, so a mismatch blames neither.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unhang.analysis.matching.roots import Root
from unhang.analysis.matching.wait_graph import Edge
from unhang.analysis.situation import Situation
from unhang.analysis.state.ops import elements, rule_of
from unhang.analysis.state.progress import Known
from unhang.analysis.words import ACTIONS, ALTERNATIVES, subject, waiting_for
from unhang.report import CallSide, Finding
from unhang.wording import rank_phrase

__all__ = [
    "PairMismatch",
    "WrongPeer",
    "explain_pair_mismatch",
    "explain_unpaired",
    "explain_wrong_peer",
    "pair_mismatches",
    "wrong_peers",
]


@dataclass(frozen=True, slots=True)
class PairMismatch:
    """A send and a receive that meet and disagree.

    Attributes:
        waiting_calls: Of the sender and of the receiver.
        rows: Of the send and of the receive.
        what: "size", "dtype" or "peer".
    """

    waiting_calls: tuple[int, int]
    rows: tuple[int, int]
    what: str


def pair_mismatches(situation: Situation) -> list[PairMismatch]:
    """Find sends and receives, both in flight as heads, that disagree about size or dtype."""
    pairs, case = situation.pairs, situation.evidence.case
    found = []
    sends = np.flatnonzero(pairs.sending & (pairs.waiting_call >= 0) & (pairs.counterpart >= 0))
    for at in sends.tolist():
        send, receive = int(pairs.row[at]), int(pairs.counterpart[at])
        other = pairs.at_row(receive)
        if other < 0 or pairs.waiting_call[other] < 0:
            continue
        left = case.signatures[int(case.calls.signature[send])]
        right = case.signatures[int(case.calls.signature[receive])]
        counts = elements(left.input_sizes), elements(right.output_sizes)
        dtypes = set(left.input_dtypes), set(right.output_dtypes)
        what = ""
        if None not in counts and counts[0] != counts[1]:
            what = "size"
        elif all(dtypes) and dtypes[0] != dtypes[1]:
            what = "dtype"
        if what:
            waiting_calls = int(pairs.waiting_call[at]), int(pairs.waiting_call[other])
            found.append(PairMismatch(waiting_calls, (send, receive), what))
    return found


def explain_pair_mismatch(situation: Situation, mismatch: PairMismatch) -> Finding:
    """Explain a send and a receive that disagree."""
    nodes = situation.graph.n_ranks + np.asarray(mismatch.waiting_calls, np.int64)
    victims = situation.victims(situation.graph.reaching(nodes))
    rows = np.asarray(mismatch.rows, np.int64)
    ranks = situation.evidence.case.calls.rank[rows].tolist()
    return Finding(
        id="",
        code="UH304",
        role="cause",
        confidence="medium",
        summary=(
            f"Rank {ranks[0]} sends to rank {ranks[1]} what that does not receive: they disagree "
            f"about the {mismatch.what}."
        ),
        victims=victims,
        group=situation.group_ref(mismatch.waiting_calls[0]),
        op="send",
        calls=situation.sides_by_row(rows, "peer"),
        sites=situation.book.sites_of_rows(rows, "victim"),
        evidence=(
            "Both calls are in flight and are each other's counterpart.",
            "There are two sides only, so neither is blamed.",
        ),
        alternatives=ALTERNATIVES["UH304"],
        actions=ACTIONS["UH304"],
    )


@dataclass(frozen=True, slots=True)
class WrongPeer:
    """A send or receive that names the wrong peer.

    Attributes:
        call: Position in `Pairs` of the call that nobody meets.
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
        _group_peer(situation, int(name), sending=sending) for name in np.unique(calls.name[done])
    }
    members = evidence.case.groups[int(calls.group[row])].members
    met = {members[peer] for peer in peers if 0 <= peer < len(members)}
    named, expected = (int(evidence.ranks.numbers[rank]) for rank in (int(pairs.peer[at]), usual))
    return expected in met and named not in met


def _group_peer(situation: Situation, name: int, *, sending: bool) -> int:
    """Group rank at the other end of calls of a name and direction; -1 for others."""
    op = situation.evidence.case.names[name]
    if rule_of(op.op).family != ("send" if sending else "recv"):
        return -1
    return op.dst if sending else op.src


def _went_on(situation: Situation, rank: int, row: int) -> bool:
    """Whether a rank made a collective call after another rank's call, by their group's count."""
    calls = situation.evidence.case.calls
    channel = int(situation.evidence.channel(np.asarray([row]))[0])
    at = int(situation.standing.at(np.asarray([rank], np.int64), channel)[0])
    return at >= 0 and int(situation.standing.reach[at]) > int(calls.seq[row]) >= 0


def explain_wrong_peer(situation: Situation, wrong: WrongPeer) -> Finding:
    """Explain a rank that addresses the wrong peer."""
    pairs, numbers = situation.pairs, situation.evidence.ranks.numbers
    culprit, named = int(numbers[pairs.owner[wrong.call]]), int(numbers[pairs.peer[wrong.call]])
    waiting = int(numbers[pairs.owner[wrong.expecting]])
    waiting_calls = [int(pairs.waiting_call[wrong.call]), int(pairs.waiting_call[wrong.expecting])]
    reached = situation.victims(
        situation.graph.reaching(situation.graph.n_ranks + np.asarray(waiting_calls, np.int64))
    )
    rows = np.asarray([pairs.row[wrong.call], pairs.row[wrong.expecting]], np.int64)
    verb, word = ("sends", "to") if pairs.sending[wrong.call] else ("receives", "from")
    return Finding(
        id="",
        code="UH304",
        role="cause",
        confidence="medium",
        summary=(
            f"Rank {culprit} {verb} {word} rank {named}, which has no call for it, while rank "
            f"{waiting} waits for rank {culprit}: the wrong peer."
        ),
        culprits=(culprit,),
        victims=tuple(rank for rank in reached if rank != culprit),
        group=situation.group_ref(waiting_calls[0]),
        op=situation.evidence.case.names[int(situation.evidence.case.calls.name[rows[0]])].op,
        calls=(
            *situation.sides_by_row(rows[:1], "culprit"),
            *situation.sides_by_row(rows[1:], "victim"),
        ),
        sites=(
            *situation.book.sites_of_rows(rows[:1], "culprit"),
            *situation.book.sites_of_rows(rows[1:], "victim"),
        ),
        evidence=(
            f"The call of rank {culprit} and that of rank {waiting} are of one size.",
            *_how_seen(situation, wrong, culprit, named),
        ),
        alternatives=ALTERNATIVES["UH304"],
        actions=ACTIONS["UH304"],
    )


def _how_seen(situation: Situation, wrong: WrongPeer, culprit: int, named: int) -> tuple[str, ...]:
    waiting = int(situation.pairs.owner[wrong.expecting])
    habit = _out_of_habit(situation, wrong.call, waiting)
    number = int(situation.evidence.ranks.numbers[waiting])
    if situation.pairs.counterpart[wrong.expecting] >= 0:
        met = (f"That of rank {number} is met only by what rank {culprit} has queued behind it.",)
    else:
        met = ("Neither has a counterpart.",)
    if habit:
        return (*met, f"Before, rank {culprit} met rank {number} here, and never rank {named}.")
    return (*met, f"Ranks {culprit} and {named} have gone on to later calls of the group.")


def explain_unpaired(situation: Situation, root: Root) -> Finding:
    """Explain ranks that never made the send or receive that others wait for."""
    blame = situation.graph.blame
    here = np.isin(blame.rank, root.ranks) & np.isin(blame.kind, (Edge.UNPAIRED, Edge.ANY_SOURCE))
    waiting_calls = sorted({int(waiting_call) for waiting_call in blame.waiting_call[here]})
    distance = situation.graph.reaching(np.asarray(root.ranks, np.int64))
    ranks = situation.named(root.ranks)
    any_source = root.edge == Edge.ANY_SOURCE and len(root.ranks) > 1
    waiting = situation.named(situation.heads.owner[waiting_calls])
    rows = situation.heads.row[situation.heads.owner[waiting_calls]]
    waiting_call = waiting_calls[0]
    asked = "the sends and receives" if len(waiting_calls) > 1 else _asked(situation, waiting_call)
    verb = "wait" if len(waiting) > 1 else "waits"
    return Finding(
        id="",
        code="UH302",
        role="cause",
        confidence="high" if root.known >= Known.SURE else "medium",
        summary=f"{subject(ranks)} never made {asked} for which {rank_phrase(waiting)} {verb}.",
        culprits=() if any_source else ranks,
        victims=situation.victims(distance),
        group=situation.group_ref(waiting_call),
        op=situation.op(waiting_call),
        calls=(
            *situation.sides_by_row(rows, "victim"),
            CallSide(ranks=ranks, role="culprit"),
        ),
        waits=situation.chain(distance),
        sites=(
            *situation.sites_of_absent(root.ranks),
            *situation.book.sites_of_rows(rows, "victim"),
        ),
        evidence=(
            *_counts(situation, waiting_calls),
            *situation.whose_lines(root.ranks),
            waiting_for(len(situation.victims(distance))),
        ),
        alternatives=ALTERNATIVES["UH302"],
        actions=ACTIONS["UH302"],
    )


def _asked(situation: Situation, waiting_call: int) -> str:
    calls = situation.pairs.of_waiting_call(waiting_call)
    return "the receive" if situation.pairs.sending[calls].all() else "the send"


def _counts(situation: Situation, waiting_calls: list[int]) -> list[str]:
    """What each waiting side has called, and that nothing meets it."""
    sentences = []
    for waiting_call in waiting_calls[:4]:
        owner = int(situation.evidence.ranks.numbers[int(situation.heads.owner[waiting_call])])
        calls = situation.pairs.of_waiting_call(waiting_call)
        lonely = calls[situation.pairs.counterpart[calls] < 0]
        sure = bool(situation.pairs.sure[lonely].all())
        how = "" if sure else " (counted from the first unfinished one: the windows lack the start)"
        sentences.append(
            f"Rank {owner} is in {situation.label(waiting_call)}; nothing meets it{how}."
        )
    return sentences
