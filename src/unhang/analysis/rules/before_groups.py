"""Ranks that do not get as far as a process group: who has not come, and who went elsewhere.

Before `init_process_group` has returned there are no calls to compare. What is compared is what
each rank was given (how many there are, where they meet, which it is) and how far it has come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import ranks_in, sites_of, subjects_of
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.not_progressing import PARTLY_FINISHED
from unhang.analysis.rules.telling import Words, subject, waits, words_for
from unhang.analysis.rules.told_apart import ASKED, ended_apart, told_apart, twice
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.sources.launchers import LauncherLook
from unhang.analysis.sources.stacks import RankLook
from unhang.wording import all_ranks, count_of, printable, rank_phrase

_JOINING = "initialising"
_INIT_RPC = "init_rpc"
_BEFORE = ("starting", "imported")


class NotAtMeeting(Struct, frozen=True):
    """Ranks that have not come to where the others wait to make the first group.

    Attributes:
        size: How many there should be.
        waiting: Who has come.
        away: Those whose process is there and does something else.
        unseen: Those without a process.
        call: In which the others wait.
    """

    size: int
    waiting: tuple[int, ...]
    away: tuple[RankLook, ...]
    unseen: tuple[int, ...]
    call: str = "init_process_group"


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


def before_groups(lives: Lives, book: StackBook) -> list[Claim]:
    """Claims about ranks that wait to make the first group; none where no rank does."""
    if lives.launchers and not lives.ranks:
        return list(_nodes_away(lives.launchers, book))
    looks = [look for look in lives.sampled.values() if not look.gone]
    joining = [look for look in looks if _joins(look)]
    if len({look.host for look in looks}) > 1:
        return []
    if not joining:
        return ended_apart(lives, book)
    busy = [look for look in looks if _asks_first(look, joining)]
    joined = [look for look in looks if look.sample.phase == "ready" and look not in busy]
    if doubles := list(twice(lives, joining, book)):
        return doubles
    for asked in ASKED:
        told = told_apart(asked, [*joining, *joined], book)
        if told is not None:
            return [told]
    away = [look for look in looks if look.sample.phase in _BEFORE and not _joins(look)]
    missing = list(_missing(lives, (*away, *busy), joining, book))
    return missing or list(_half_made(joining, joined, book))


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


def _asks_first(look: RankLook, joining: Sequence[RankLook]) -> bool:
    """Whether it is ready as a worker of RPC, and waits for another before it makes a group.

    All of them were workers before; what it has returned from by then is `init_rpc`.
    """
    workers = all(each.sample.worker for each in joining)
    return workers and bool(look.sample.asks) and not look.sample.last_call


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


def _missing(
    lives: Lives, away: tuple[RankLook, ...], joining: Sequence[RankLook], book: StackBook
) -> Iterator[Claim]:
    size = max(look.sample.told_size for look in joining)
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
    if any(look.sample.asks for look in away):
        yield Doubt.STACKS_ONLY
    if any(look.moved is not False for look in (*away, *joining)):
        yield Doubt.ONE_MOMENT


@words_for(NotAtMeeting)
def _verdict_of_not_at_meeting(about: NotAtMeeting, claim: Claim) -> Words:
    verb = "has" if len(claim.culprits) == 1 else "have"
    who = subject(claim.culprits)
    where = ""
    if len(about.away) == 1:
        where = f"; {rank_phrase([about.away[0].rank])} is {about.away[0].says}"
    if not about.away:
        where = "; no such process was found here"
    told = [f"{subject([look.rank])} is {look.says}." for look in about.away]
    return Words(
        f"{who} {verb} not reached {about.call}: {waits(about.waiting)} there "
        f"for {count_of(about.size, 'rank')}"
        f"{where}.",
        (
            *told,
            *([f"There is no process of {rank_phrase(about.unseen)}."] if about.unseen else []),
        ),
        (
            "It may only be late: it may still read or build something before it joins.",
            "It may run on a node that unhang did not look at.",
        ),
        ("Compare WORLD_SIZE with the number of processes that started on all nodes.",)
        if not about.away
        else ("Inspect the line where it is; join the group first and prepare data afterwards.",),
    )


@words_for(HalfMade)
def _verdict_of_half_made(about: HalfMade, claim: Claim) -> Words:  # noqa: ARG001
    have = "has" if len(about.inside) == 1 else "have"
    return Words(
        f"{all_ranks(about.size)} reached init_process_group; {rank_phrase(about.out)} "
        f"returned from it, and {rank_phrase(about.inside)} {have} not.",
        ("All ranks are there; the connections of the group were not established.",),
        (
            "The store may still hold addresses of an earlier attempt: a restart may suffice.",
            "A firewall may block them, or an address may be unreachable: unhang doctor net.",
        ),
        (
            "Read what these ranks print about connections: unhang logs.",
            "Where torchrun restarts ranks: --standalone or --rdzv-backend c10d keeps no old keys.",
        ),
    )


@words_for(NodesAway)
def _verdict_of_nodes_away(about: NodesAway, claim: Claim) -> Words:
    here = count_of(len(about.here), "launcher")
    verb = "waits" if len(about.here) == 1 else "wait"
    meetings = sorted({each.meeting for each in about.here})
    if about.away <= 0:
        told = " and ".join(printable(meeting) for meeting in meetings)
        summary = f"{here} {verb} at different endpoints ({told}), and no rank has started."
    else:
        whose = f" ({rank_phrase(claim.culprits)})" if claim.culprits else ""
        summary = (
            f"{count_of(about.away, 'node')} of {about.nodes}{whose} "
            f"{'has' if about.away == 1 else 'have'} not arrived: {here} {verb} at the rendezvous, "
            "and no rank has started."
        )
    return Words(
        summary,
        tuple(
            f"pid {each.pid} meets its peers at {printable(each.meeting)}." for each in about.here
        ),
        ("The other nodes may still be queued or starting.",),
        (
            "Check that the launcher runs on all nodes, with the same endpoint and id.",
            "Check that every node reaches that endpoint: unhang doctor net.",
        ),
    )
