"""Workers of torch's RPC that wait for each other by name, or for one that does not answer.

Dumps hold nothing of RPC. The recorder tells which workers a process waits for, and the stacks
whether a worker runs something of its own, for itself or for another, or waits in turn. Who waits
is followed to who does not: that one is awaited. A circle in which all wait never opens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from unhang.analysis.claims import Claim, Doubt
from unhang.analysis.lives.elsewhere import ranks_in, sites_of, subjects_of
from unhang.analysis.lives.life import Lives
from unhang.analysis.sites import StackBook
from unhang.analysis.sources.stacks import RankLook
from unhang.kinds import NEVER_JOINED, WAIT_CYCLE
from unhang.report import Wait

__all__ = ["AwaitedWorkers", "CircleOfWorkers", "WorkerWait", "between_workers"]

SHUTDOWN = "rpc.shutdown"
_LONGEST = 40
"""Bytes of its own name that a heartbeat has room for."""


class WorkerWait(Struct, frozen=True):
    """A worker that waits for another: their names and numbers, in which call, for what."""

    rank: int
    worker: str
    target: int
    awaited: str
    op: str
    function: str = ""


class AwaitedWorkers(Struct, frozen=True):
    """Workers that others wait for, and that wait for none themselves.

    Attributes:
        looks: Where they stand.
        links: Who waits, the first ones.
        ending: All that wait have come to the end of RPC, where these are missed.
    """

    looks: tuple[RankLook, ...]
    links: tuple[WorkerWait, ...]
    ending: bool


class CircleOfWorkers(Struct, frozen=True):
    """Workers each of which waits for the next.

    Attributes:
        links: In order.
        full: Those of which all threads that serve others wait, too, and how many these are.
    """

    links: tuple[WorkerWait, ...]
    full: tuple[tuple[str, int], ...]


def between_workers(lives: Lives, book: StackBook) -> list[Claim]:
    """Claims about workers that wait for workers; none where none does, or one was not seen."""
    looks = {r: look for r, look in lives.sampled.items() if look.sample.worker and not look.gone}
    if not looks or any(look.unseen for look in looks.values()):
        return []
    links = {rank: list(_links(look, looks)) for rank, look in looks.items()}
    awaited = sorted({link.target for each in links.values() for link in each})
    lost = {rank for rank, look in looks.items() if look.waits and look.sample.asks}
    sinks = [rank for rank in awaited if not links[rank] and rank not in lost]
    if sinks:
        return [_awaited([looks[rank] for rank in sinks], links, looks, book)]
    circle = _circle(links)
    if not circle or any(looks[link.rank].moved is not False for link in circle):
        return []
    return [_in_circle(circle, looks, book)]


def _links(look: RankLook, looks: Mapping[int, RankLook]) -> Iterator[WorkerWait]:
    """Whom a worker waits for that is there; none while a thread of it runs something."""
    sample = look.sample
    if not look.waits or not sample.asks_in:
        return
    names = [name.strip() for name in sample.asks.split(",") if name.strip()]
    for rank, other in looks.items():
        whole = any(name[:_LONGEST] == other.sample.worker for name in names)
        missed = sample.asks_in == SHUTDOWN and not names and not _is_ending(other)
        if rank != look.rank and (whole or missed):
            told = other.sample.worker
            yield WorkerWait(look.rank, sample.worker, rank, told, sample.asks_in, sample.asks_for)


def _is_ending(look: RankLook) -> bool:
    """Whether it waits at the end of RPC, and for no worker by name."""
    return look.waits and look.sample.asks_in == SHUTDOWN and not look.sample.asks


def _awaited(
    sinks: Sequence[RankLook],
    links: Mapping[int, Sequence[WorkerWait]],
    looks: Mapping[int, RankLook],
    book: StackBook,
) -> Claim:
    own = frozenset(look.rank for look in sinks)
    waiting = [link for each in links.values() for link in each if link.rank not in own]
    victims = [looks[rank] for rank in sorted({link.rank for link in waiting})]
    moving = ranks_in(look for look in sinks if look.moves)
    still = all(look.moved is False for look in (*sinks, *victims))
    return Claim(
        kind=NEVER_JOINED,
        rests_on="stacks",
        about=AwaitedWorkers(
            tuple(sinks),
            tuple(link for link in waiting if link.target in own),
            all(link.op == SHUTDOWN for link in waiting),
        ),
        culprits=ranks_in(sinks),
        victims=ranks_in(victims),
        subjects=subjects_of(sinks),
        sites=(*sites_of(sinks, "culprit", book), *sites_of(victims, "victim", book)),
        waits=tuple(Wait(link.rank, link.target, link.op) for link in waiting),
        doubts=tuple(_doubts(sinks, moving, still=still)),
        moving=moving,
    )


def _doubts(sinks: Sequence[RankLook], moving: Sequence[int], *, still: bool) -> Iterator[Doubt]:
    """A worker that waits for RPC in no thread may still answer: what it runs need be no Python."""
    if moving:
        yield Doubt.MOVES
    if not still:
        yield Doubt.LOOKS_UNCLEAR
    if any(look.waits for look in sinks):
        yield Doubt.NOTHING_SEEN
    yield Doubt.STACKS_ONLY


def _circle(links: Mapping[int, Sequence[WorkerWait]]) -> list[WorkerWait]:
    """A circle of links, from its smallest number on; empty where there is none."""
    for start in sorted(links):
        path: list[WorkerWait] = []
        at = start
        while links[at] and all(link.rank != at for link in path):
            path.append(links[at][0])
            at = path[-1].target
        if path and (closing := [i for i, link in enumerate(path) if link.rank == at]):
            return path[closing[0] :]
    return []


def _in_circle(
    circle: Sequence[WorkerWait], looks: Mapping[int, RankLook], book: StackBook
) -> Claim:
    members = [looks[link.rank] for link in circle]
    full = tuple(
        (look.sample.worker, look.sample.serving)
        for look in members
        if 0 < look.sample.serving <= look.served
    )
    return Claim(
        kind=WAIT_CYCLE,
        rests_on="stacks",
        about=CircleOfWorkers(tuple(circle), full),
        victims=ranks_in(members),
        sites=sites_of(members, "victim", book),
        waits=tuple(Wait(link.rank, link.target, link.op) for link in circle),
        doubts=() if full else (Doubt.STACKS_ONLY,),
    )
