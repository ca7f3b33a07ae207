"""Splits of an exchange that do not fit, by what Gloo told as it ended the process that received.

What a rank sends and receives in an all_to_all may differ from rank to rank and from call to call,
and splits are recorded nowhere: so no rank is odd for its size. Gloo tells how many bytes came from
one peer and for how many there was room. Either side may have computed its splits wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from unhang.analysis.claims import Claim, Doubt
from unhang.analysis.lives.ended import Ends
from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import sites_of
from unhang.analysis.rules.call_mismatch import SPLIT_MISMATCH
from unhang.analysis.rules.telling import Words, words_for
from unhang.analysis.sites import StackBook
from unhang.analysis.sources.exits import SIGNAL_BASE
from unhang.analysis.sources.logs import Message
from unhang.analysis.state.ops import rule_of
from unhang.wording import count_of, rank_phrase

__all__ = ["aborted", "bytes_told", "may_differ", "splits_apart"]

_ABORTED = SIGNAL_BASE + 6


class PartUnfit(Struct, frozen=True):
    """A part of an exchange, in bytes: as it came from some peer, and as its receiver expected it.

    Attributes:
        receiver: The rank that Gloo ended.
        senders: The ranks one of which sent it.
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
