"""Ranks that do not get as far as a process group: who has not come, and who went elsewhere.

Before `init_process_group` has returned there are no calls to compare. What is compared is what
each rank was told (how many there are, where they meet, which it is) and how far it has come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence

from msgspec import Struct

from unhang.analysis.claims import Bearing, Claim, Doubt, Observation, Seeing
from unhang.analysis.lives.elsewhere import ranks_in, sites_of, subjects_of
from unhang.analysis.lives.life import Lives
from unhang.analysis.sites import StackBook
from unhang.analysis.sources.launchers import LauncherLook
from unhang.analysis.sources.stacks import RankLook
from unhang.kinds import MEMBERSHIP_MISMATCH, NEVER_JOINED, PARTLY_FINISHED

__all__ = [
    "Asked",
    "HalfMade",
    "LeftOver",
    "NodesAway",
    "NotAtMeeting",
    "RankTwice",
    "ToldApart",
    "before_groups",
    "left_over",
]

_JOINING = "initialising"
_ABORTED = 128 + 6
_INIT_RPC = "init_rpc"
_BEFORE = ("starting", "imported")


class NotAtMeeting(Struct, frozen=True):
    """Ranks that have not come to where the others wait to make the first group.

    Attributes:
        size: How many there should be.
        waiting: Who has come.
        away: Those whose process is there and does something else.
        unseen: Those of which there is no process.
        call: In which the others wait.
    """

    size: int
    waiting: tuple[int, ...]
    away: tuple[RankLook, ...]
    unseen: tuple[int, ...]
    call: str = "init_process_group"


class ToldApart(Struct, frozen=True):
    """Ranks that were told different things: what, and by value who."""

    what: str
    sides: tuple[tuple[str, tuple[int, ...]], ...]


class RankTwice(Struct, frozen=True):
    """A rank that several processes say they are, and those that nobody is."""

    rank: int
    pids: tuple[int, ...]
    nobody: tuple[int, ...]


class NodesAway(Struct, frozen=True):
    """Launchers that wait for those of other nodes, and have started no rank."""

    here: tuple[LauncherLook, ...]
    nodes: int
    away: int


class HalfMade(Struct, frozen=True):
    """The first group, for which all have come: who has come out of making it, and who has not."""

    size: int
    out: tuple[int, ...]
    inside: tuple[int, ...]


class LeftOver(Observation, frozen=True, kw_only=True):
    """The file at which ranks meet is one of an earlier run: keys of that are in it.

    Attributes:
        place: The file.
        age_s: For how long it had been there when the run began.
    """

    place: str
    age_s: int


class Asked(Struct, frozen=True):
    """What ranks were told, by process, as a rule compares it."""

    what: str
    of: Callable[[RankLook], Hashable]


_ASKED = (
    Asked("meet at different places", lambda look: look.sample.rendezvous),
    Asked("were told different numbers of ranks", lambda look: look.sample.told_size),
)


def before_groups(lives: Lives, book: StackBook) -> list[Claim]:
    """Claims about ranks that wait to make the first group; none where nobody does."""
    if lives.launchers and not lives.ranks:
        return list(_nodes_away(lives.launchers, book))
    looks = [look for look in lives.sampled.values() if not look.gone]
    joining = [look for look in looks if _joins(look)]
    if len({look.host for look in looks}) > 1:
        return []
    if not joining:
        return _ended_apart(lives, book)
    joined = [look for look in looks if look.sample.phase == "ready"]
    if twice := list(_twice(lives, joining, book)):
        return twice
    for asked in _ASKED:
        told = _told_apart(asked, [*joining, *joined], book)
        if told is not None:
            return [told]
    missing = list(_missing(lives, looks, joining, book))
    return missing or list(_half_made(joining, joined, book))


def left_over(claim: Claim, lives: Lives) -> Iterator[Seeing]:  # noqa: ARG001 - of all claims alike
    """That ranks have not come out of making the first group, at a file of an earlier run."""
    looks = [life.look for life in lives.ranks.values() if life.look is not None]
    old = [look for look in looks if look.sample.leftover_s and look.sample.phase == _JOINING]
    if old:
        first = max(old, key=lambda look: look.sample.leftover_s).sample
        yield (
            LeftOver(
                source="stacks",
                ranks=ranks_in(old),
                place=first.rendezvous,
                age_s=first.leftover_s,
            ),
            Bearing.LEFT_OVER,
        )


def _half_made(
    joining: Sequence[RankLook], joined: Sequence[RankLook], book: StackBook
) -> Iterator[Claim]:
    size = max(look.sample.told_size for look in joining)
    still = all(look.moved is False for look in joining)
    if not joined or not still or len({*ranks_in(joining), *ranks_in(joined)}) != size:
        return
    yield Claim(
        kind=PARTLY_FINISHED,
        rests_on="stacks",
        about=HalfMade(size, ranks_in(joined), ranks_in(joining)),
        victims=ranks_in((*joining, *joined)),
        sites=(*sites_of(joining, "victim", book), *sites_of(joined, "victim", book)),
        doubts=(Doubt.NOBODY_ABSENT,),
    )


def _joins(look: RankLook) -> bool:
    """Whether it sets up its first group: by its mark, or by its stack, which is younger."""
    return look.sample.phase == _JOINING or (
        look.sample.phase in _BEFORE and look.meaning.kind == "init"
    )


def _ended_apart(lives: Lives, book: StackBook) -> list[Claim]:
    """Ranks that were told other numbers of ranks than most, where Gloo has ended one for it."""
    looks = [life.look for life in lives.ranks.values() if life.look is not None]
    if not any(look.gone and look.sample.exit_status == _ABORTED for look in looks):
        return []
    told = _told_apart(_ASKED[1], looks, book)
    return [] if told is None else [told.doubted([Doubt.END_UNCLEAR])]


def _nodes_away(launchers: Sequence[LauncherLook], book: StackBook) -> Iterator[Claim]:
    """Which nodes have not come, and which ranks they would start, as far as they are numbered."""
    first = launchers[0]
    meetings = {each.meeting for each in launchers}
    away = first.nodes - len(launchers)
    if first.nodes < 2 or (away <= 0 and len(meetings) == 1):  # noqa: PLR2004 - another node
        return
    known = {each.node_rank for each in launchers}
    numbered = -1 not in known and first.ranks_each > 0 and len(meetings) == 1
    nodes = sorted(set(range(first.nodes)) - known) if numbered else []
    each = first.ranks_each
    sites = (book.site((), "victim", launcher.frames) for launcher in launchers)
    yield Claim(
        kind=NEVER_JOINED,
        rests_on="stacks",
        about=NodesAway(tuple(launchers), first.nodes, away),
        culprits=tuple(rank for node in nodes for rank in range(node * each, (node + 1) * each)),
        sites=tuple(site for site in sites if site is not None),
        doubts=(Doubt.NOTHING_SEEN,),
    )


def _twice(lives: Lives, joining: Sequence[RankLook], book: StackBook) -> Iterator[Claim]:
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


def _told_apart(asked: Asked, looks: Sequence[RankLook], book: StackBook) -> Claim | None:
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


def _missing(
    lives: Lives, looks: Sequence[RankLook], joining: Sequence[RankLook], book: StackBook
) -> Iterator[Claim]:
    size = max(look.sample.told_size for look in joining)
    away = tuple(look for look in looks if look.sample.phase in _BEFORE and not _joins(look))
    unseen = tuple(rank for rank in range(size) if rank not in lives.sampled)
    culprits = ranks_in(away) or unseen
    if not culprits or size <= len(joining):
        return
    moving = ranks_in(look for look in away if look.moves)
    yield Claim(
        kind=NEVER_JOINED,
        rests_on="stacks",
        about=NotAtMeeting(size, ranks_in(joining), away, unseen, _meeting_of(joining)),
        culprits=culprits,
        victims=ranks_in(joining),
        subjects=subjects_of(away),
        sites=(*sites_of(away, "culprit", book), *sites_of(joining, "victim", book)),
        doubts=tuple(_doubts(away, unseen, joining, moving)),
        moving=moving,
    )


def _meeting_of(joining: Sequence[RankLook]) -> str:
    """The call in which they wait: RPC is set up without a group."""
    by_rpc = all(any(f.function == _INIT_RPC for f in look.frames) for look in joining)
    return _INIT_RPC if by_rpc else "init_process_group"


def _doubts(
    away: Sequence[RankLook],
    unseen: Sequence[int],
    joining: Sequence[RankLook],
    moving: Sequence[int],
) -> Iterator[Doubt]:
    if moving:
        yield Doubt.MOVES
    if unseen or not away:
        yield Doubt.NOTHING_SEEN
    if any(look.moved is not False for look in (*away, *joining)):
        yield Doubt.ONE_MOMENT
