"""Splits of an exchange that do not fit, by heartbeats, or by what Gloo told as it ended a process.

What a rank sends and receives in an all_to_all may differ from rank to rank and from call to call:
so no rank is odd for its size. What i sends to j has to be what j expects from i. Heartbeats have
both; without them Gloo tells how many bytes came from one peer and for how many there was room. Of
one pair either side may have computed its splits wrongly; who is in all of several is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from unhang.analysis.lives.ended import Ends
from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import sites_of
from unhang.analysis.rules.call_mismatch import SPLIT_MISMATCH
from unhang.analysis.rules.telling import Words, words_for
from unhang.analysis.shared.claims import Because, Claim, Doubt, Reason
from unhang.analysis.shared.reason import Among, Explanation
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.sources.exits import SIGNAL_BASE
from unhang.analysis.sources.logs import Message
from unhang.analysis.sources.stacks import RankLook
from unhang.analysis.state.ops import rule_of
from unhang.wording import count_of, rank_phrase

_ABORTED = SIGNAL_BASE + 6
_MOST_PAIRS, _FIELDS = 8, 4
Pair: TypeAlias = tuple[int, int, int, int]
Parts: TypeAlias = tuple[Sequence[int], Sequence[int]]
_STANDS: Final = Explanation(
    Because.OWN,
    Among.WITHIN,
    "What comes after an exchange that does not fit waits in it, fails, or does not fit either.",
)


class PartUnfit(Struct, frozen=True):
    """A part of an exchange, in bytes: as it came from some peer, and as its receiver expected it.

    Attributes:
        receiver: The rank that Gloo ended.
        senders: The ranks that may have sent it.
    """

    op: str
    receiver: int
    senders: tuple[int, ...]
    sent: int
    room: int


def may_differ(op: str) -> bool:
    """Whether the sizes that ranks give to one call of this kind prove nothing by differing."""
    rule = rule_of(op)
    return rule.known and rule.compared in ("totals", "nothing")


def aborted(ends: Ends) -> tuple[int, ...]:
    """Ranks that were the first to end, by SIGABRT."""
    return tuple(end.rank for end in ends.first if end.status == _ABORTED)


def bytes_told(message: Message) -> tuple[int, int] | None:
    """How many bytes came and for how many there was room, as Gloo told them."""
    fields = message.group.first.fields
    return (int(fields["sent"]), int(fields["room"])) if {"sent", "room"} <= fields.keys() else None


class PartsUnfit(Struct, frozen=True):
    """Parts of an exchange that do not fit: sender, receiver, and the elements by each of them."""

    op: str
    seq: int
    parts: tuple[Pair, ...]


def splits_told(lives: Lives, book: StackBook) -> Iterator[Claim]:
    """The first exchange in which what ranks send is not what their peers expect.

    By the last calls in their heartbeats. Gloo lets one that gets less than it expects go on.
    """
    looks = {rank: life.look for rank, life in lives.ranks.items() if life.look is not None}
    calls: defaultdict[tuple[tuple[int, ...], int], dict[int, Parts]] = defaultdict(dict)
    for rank, look in looks.items():
        for (seq,), members, sends, expects in filter(_is_told, look.sample.splits):
            calls[members, seq][rank] = sends, expects
    for (members, seq), parts in sorted(calls.items(), key=lambda call: call[0][1]):
        if unfit := _unfit(members, parts):
            inside = {rank: looks[rank] for rank in parts}
            yield _of_splits(unfit, seq, inside, book)
            return


def _is_told(call: Sequence[Sequence[int]]) -> bool:
    """Whether it is whole: a number, and as many parts as members."""
    return len(call) == _FIELDS and len(call[0]) == 1 and len({*map(len, call[1:])}) == 1


def _unfit(members: Sequence[int], parts: Mapping[int, Parts]) -> tuple[Pair, ...]:
    """Of each pair whose sides are known and differ: sender, receiver, sent, expected."""
    places = [(place, rank) for place, rank in enumerate(members) if rank in parts]
    pairs = (
        (sender, receiver, parts[sender][0][to], parts[receiver][1][at])
        for at, sender in places
        for to, receiver in places
    )
    return tuple(pair for pair in pairs if pair[2] != pair[3])


def _of_splits(
    unfit: tuple[Pair, ...], seq: int, inside: Mapping[int, RankLook], book: StackBook
) -> Claim:
    shared = set.intersection(*({sender, receiver} for sender, receiver, *_ in unfit))
    clear = len(unfit) > 1 and len(shared) == 1
    odd = tuple(shared) if clear else tuple({receiver for _, receiver, *_ in unfit})
    odd = odd if len(odd) == 1 else ()
    looks = list(inside.values())
    return Claim(
        kind=SPLIT_MISMATCH,
        rests_on="stacks",
        about=PartsUnfit(looks[0].sample.last_op, seq, unfit),
        culprits=odd,
        victims=tuple(sorted({*inside} - {*odd})),
        op=looks[0].sample.last_op,
        seq=seq,
        sites=(
            *sites_of([inside[rank] for rank in odd], "culprit", book),
            *sites_of([look for look in looks if look.rank not in odd], "victim", book),
        ),
        doubts=() if clear else (Doubt.EITHER_SIDE if odd else Doubt.NO_MAJORITY,),
        reasons=(
            Reason(Because.CALLS_APART),
            Reason(Because.OWN, frozenset(inside), (_STANDS,)),
        ),
    )


def splits_apart(message: Message, ends: Ends, lives: Lives, book: StackBook) -> Iterator[Claim]:
    """The exchange in which all ranks were and one was ended; no side of it is blamed."""
    looks = [life.look for life in lives.ranks.values() if life.look is not None]
    ops, ended, told = {look.sample.last_op for look in looks}, aborted(ends), bytes_told(message)
    if len(ops) != 1 or len(ended) != 1 or told is None or told[0] == told[1]:
        return
    (op,), (receiver,) = ops, ended
    ranks = tuple(sorted(look.rank for look in looks))
    if rule_of(op).compared != "totals" or receiver not in ranks:
        return
    senders = tuple(rank for rank in ranks if rank != receiver)
    yield Claim(
        kind=SPLIT_MISMATCH,
        rests_on="stacks",
        about=PartUnfit(op, receiver, senders, *told),
        victims=ranks,
        op=op,
        sites=tuple(sites_of(lives.looks_at(ranks), "victim", book)),
        doubts=(Doubt.NO_MAJORITY,),
    )


@words_for(PartUnfit)
def _verdict_of_part_unfit(about: PartUnfit, claim: Claim) -> Words:  # noqa: ARG001
    senders = rank_phrase(about.senders)
    one_of = senders if len(about.senders) == 1 else f"one of {senders}"
    return Words(
        f"Splits of {about.op} do not match: {one_of} sent rank {about.receiver} "
        f"{count_of(about.sent, 'byte')}, and rank {about.receiver} expected {about.room:,}.",
        (
            f"Gloo reported this when it ended rank {about.receiver}, the receiver.",
            "Sizes may rightly differ by rank, so no rank stands out; either side may be wrong.",
        ),
        actions=(
            "Print both splits before this line: what i sends to j must be what j expects from i.",
        ),
    )


@words_for(PartsUnfit)
def _verdict_of_parts_unfit(about: PartsUnfit, claim: Claim) -> Words:
    sender, receiver, sent, expected = about.parts[0]
    more = len(about.parts) - 1
    others = f", and {count_of(more, 'other pair')} do not fit either" if more else ""
    either = "" if more and claim.culprits else " Either side may be wrong."
    return Words(
        f"Splits of {about.op} #{about.seq} do not fit: rank {sender} sends rank {receiver} "
        f"{count_of(sent, 'element')}, and rank {receiver} expects {expected:,} from it{others}.",
        (*map(_told_pair, about.parts[:_MOST_PAIRS]), f"The heartbeats of both tell so.{either}"),
        actions=(
            "Print both splits before this line: what i sends to j must be what j expects from i.",
            "A rank learns what it is to expect from its peers: exchange the counts in each step.",
        ),
    )


def _told_pair(part: Pair) -> str:
    sender, receiver, sent, expected = part
    return f"Rank {sender} sends rank {receiver} {sent:,}, which expects {expected:,}."
