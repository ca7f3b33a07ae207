"""Ranks that were told different things before their first group: how many, where, or which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence

from msgspec import Struct

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import ranks_in, sites_of, subjects_of
from unhang.analysis.rules.membership_mismatch import MEMBERSHIP_MISMATCH
from unhang.analysis.rules.telling import Words, subject, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.sources.stacks import RankLook
from unhang.wording import printable, rank_phrase

_ABORTED = 128 + 6


class ToldApart(Struct, frozen=True):
    """Ranks that were told different things: what, and by value who."""

    what: str
    sides: tuple[tuple[str, tuple[int, ...]], ...]


class RankTwice(Struct, frozen=True):
    """A rank that several processes say they are, and the ranks that no process is."""

    rank: int
    pids: tuple[int, ...]
    nobody: tuple[int, ...]


class Asked(Struct, frozen=True):
    """What ranks were told, by process, as a rule compares it."""

    what: str
    of: Callable[[RankLook], Hashable]


ASKED = (
    Asked("meet at different addresses", lambda look: look.sample.rendezvous),
    Asked("were told different numbers of ranks", lambda look: look.sample.told_size),
)


def ended_apart(lives: Lives, book: StackBook) -> list[Claim]:
    """Ranks that were told other numbers of ranks than most, where Gloo has ended one for it."""
    looks = [life.look for life in lives.ranks.values() if life.look is not None]
    if not any(look.gone and look.sample.exit_status == _ABORTED for look in looks):
        return []
    told = told_apart(ASKED[1], looks, book)
    return [] if told is None else [told.doubted([Doubt.END_UNCLEAR])]


def twice(lives: Lives, joining: Sequence[RankLook], book: StackBook) -> Iterator[Claim]:
    """Ranks that several living processes say they are."""
    size = max(look.sample.told_size for look in joining)
    for rank, looks in sorted(lives.doubles.items()):
        nobody = tuple(sorted(set(range(size)) - set(lives.ranks)))
        yield Claim(
            kind=MEMBERSHIP_MISMATCH,
            rests_on="stacks",
            about=RankTwice(rank, tuple(look.pid for look in looks), nobody),
            culprits=(rank,),
            victims=tuple(r for r in ranks_in(joining) if r != rank),
            subjects=subjects_of(looks),
            sites=sites_of(looks, "culprit", book),
        )


def told_apart(asked: Asked, looks: Sequence[RankLook], book: StackBook) -> Claim | None:
    """Those who were told something else than most; both sides where there is no majority."""
    sides: defaultdict[Hashable, list[RankLook]] = defaultdict(list)
    for look in looks:
        if value := asked.of(look):
            sides[value].append(look)
    if len(sides) < 2:  # noqa: PLR2004 - a comparison
        return None
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), str(side[0])))
    clear = len(ordered[0][1]) * 2 > len(looks)
    odd = [look for _, side in ordered[1:] for look in side] if clear else []
    rest = [look for look in looks if look not in odd]
    return Claim(
        kind=MEMBERSHIP_MISMATCH,
        rests_on="stacks",
        about=ToldApart(asked.what, tuple((str(v), ranks_in(who)) for v, who in ordered)),
        culprits=ranks_in(odd),
        victims=ranks_in(rest),
        subjects=subjects_of(odd),
        sites=(*sites_of(odd, "culprit", book), *sites_of(rest, "victim", book)),
        doubts=() if clear else (Doubt.NO_MAJORITY,),
    )


@words_for(ToldApart)
def _verdict_of_told_apart(about: ToldApart, claim: Claim) -> Words:
    sides = "; ".join(f"{rank_phrase(who)}: {printable(value)}" for value, who in about.sides)
    who = subject(claim.culprits or claim.victims)
    return Words(
        f"{who} {'and the others ' if claim.culprits else ''}{about.what} ({sides}), so they never "
        "form a group.",
        (f"What they gave init_process_group: {sides}.",),
        ("The program itself may have changed the variables.",),
        ("Give all ranks the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE.",),
    )


@words_for(RankTwice)
def _verdict_of_rank_twice(about: RankTwice, claim: Claim) -> Words:  # noqa: ARG001
    nobody = f", and no process is {rank_phrase(about.nobody)}" if about.nobody else ""
    pids = " and ".join(f"pid {pid}" for pid in about.pids)
    return Words(
        f"Two processes say that they are rank {about.rank}{nobody}, so the others wait.",
        (f"{pids} gave init_process_group rank {about.rank}.",),
        ("A process of an earlier launch may still run and use the same address.",),
        ("Give every process a RANK of its own; end what an earlier launch left behind.",),
    )
