"""Workers of torch's RPC that wait for each other by name, or for one that does not answer.

Dumps hold nothing of RPC. The recorder tells which workers a process waits for, and the stacks
whether a worker runs something of its own, for itself or for another, or waits in turn. Who waits
is followed to who does not: that one is awaited. A circle in which all wait never opens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import doubts_of_looks, ranks_in, sites_of, subjects_of
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.rule import Rule, Unless, When
from unhang.analysis.rules.telling import Words, subject, waits, words_for
from unhang.analysis.rules.wait_cycle import WAIT_CYCLE
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.sources.stacks import RankLook
from unhang.report import Wait
from unhang.wording import count_of, printable, rank_phrase

SHUTDOWN = "rpc.shutdown"
_MOST_WORKERS = 6
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
        aside: They are asked for nothing: who is asked runs nothing, and waits for their calls, as
            functions of RPC do that return a future.
    """

    looks: tuple[RankLook, ...]
    links: tuple[WorkerWait, ...]
    ending: bool
    aside: bool = False


class CircleOfWorkers(Struct, frozen=True):
    """Workers that each wait for the next.

    Attributes:
        links: In order.
        full: Those whose threads that serve others all wait, too, and how many these are.
    """

    links: tuple[WorkerWait, ...]
    full: tuple[tuple[str, int], ...]


def _between_workers(lives: Lives, book: StackBook) -> list[Claim]:
    """Claims about workers that wait for workers; none where none does, or one was not seen."""
    looks = {r: look for r, look in lives.sampled.items() if look.sample.worker and not look.gone}
    if not looks or any(look.unseen for look in looks.values()):
        return []
    links = {rank: list(_asked(look, looks)) for rank, look in looks.items()}
    if not any(links.values()):  # who waits at the end of RPC serves until all have come
        links = {rank: list(_missed(look, looks)) for rank, look in looks.items()}
    awaited = sorted({link.target for each in links.values() for link in each})
    lost = {rank for rank, look in looks.items() if look.waits and look.sample.asks}
    sinks = [rank for rank in awaited if not links[rank] and rank not in lost]
    if sinks:
        away = [rank for rank, look in looks.items() if not look.waits]
        aside = bool(away) and all(looks[rank].waits for rank in sinks)
        named = [looks[rank] for rank in (away if aside else sinks)]
        return [_awaited(named, links, looks, book, aside=aside)]
    circle = _circle(links)
    if not circle or any(looks[link.rank].moved is not False for link in circle):
        return []
    return [_in_circle(circle, looks, book)]


RULE: Final = Rule(
    when=When.STACKS,
    unless=Unless.CAUSE,
    tells=lambda facts: _between_workers(facts.lives, facts.book),
)


def _asked(look: RankLook, looks: Mapping[int, RankLook]) -> Iterator[WorkerWait]:
    """Whom a worker waits for by name; none while a thread of it runs something."""
    names = [name.strip()[:_LONGEST] for name in look.sample.asks.split(",")]
    for rank, other in looks.items():
        if look.waits and rank != look.rank and other.sample.worker in names:
            yield _wait_of(look, other)


def _missed(look: RankLook, looks: Mapping[int, RankLook]) -> Iterator[WorkerWait]:
    """Whom a worker that has come to the end of RPC waits for there."""
    if _is_ending(look):
        yield from (_wait_of(look, other) for other in looks.values() if not _is_ending(other))


def _wait_of(look: RankLook, other: RankLook) -> WorkerWait:
    told, awaited = look.sample, other.sample
    return WorkerWait(
        told.rank, told.worker, awaited.rank, awaited.worker, told.asks_in, told.asks_for
    )


def _is_ending(look: RankLook) -> bool:
    """Whether it waits at the end of RPC, and for no worker by name."""
    return look.waits and look.sample.asks_in == SHUTDOWN and not look.sample.asks


def _awaited(
    sinks: Sequence[RankLook],
    links: Mapping[int, Sequence[WorkerWait]],
    looks: Mapping[int, RankLook],
    book: StackBook,
    *,
    aside: bool,
) -> Claim:
    own = frozenset(look.rank for look in sinks)
    waiting = [link for each in links.values() for link in each if link.rank not in own]
    victims = [looks[rank] for rank in sorted({link.rank for link in waiting})]
    moving = ranks_in(look for look in sinks if look.moves or (look.waits and look.works))
    ending = all(link.op == SHUTDOWN for link in waiting)
    return Claim(
        kind=NEVER_JOINED,
        rests_on="stacks",
        about=AwaitedWorkers(
            tuple(sinks),
            tuple(link for link in waiting if link.target in own),
            ending,
            aside,
        ),
        culprits=ranks_in(sinks),
        victims=ranks_in(victims),
        subjects=subjects_of(sinks),
        sites=(*sites_of(sinks, "culprit", book), *sites_of(victims, "victim", book)),
        waits=tuple(Wait(link.rank, link.target, link.op) for link in waiting),
        doubts=tuple(_doubts(sinks, victims, moving, ending=ending)),
        moving=moving,
    )


def _doubts(
    sinks: Sequence[RankLook],
    victims: Sequence[RankLook],
    moving: Sequence[int],
    *,
    ending: bool,
) -> Iterator[Doubt]:
    """A worker that waits for RPC in no thread may still answer: what it runs need be no Python.

    Workers that only serve come to the end of RPC at once, and wait there for as long as the
    program of another lasts: that may have no work.
    """
    if ending and all(look.may_get_work for look in sinks):
        yield Doubt.SERVES
    if moving:
        yield Doubt.MOVES
    looks = (*sinks, *victims)
    if any(look.moved is not False for look in looks) or any(look.waits for look in sinks):
        yield from doubts_of_looks(looks)
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


@words_for(AwaitedWorkers)
def _verdict_of_awaited_workers(about: AwaitedWorkers, claim: Claim) -> Words:
    names = ", ".join(printable(look.sample.worker, 40) for look in about.looks[:_MOST_WORKERS])
    who, waiting = f"{subject(claim.culprits)} ({names})", waits(claim.victims)
    verb = "has" if len(about.looks) == 1 else "have"
    summary = f"{who} {verb} not reached rpc.shutdown, in which {waiting}."
    if about.aside:
        one = len(about.looks) == 1
        verb = "is in its" if one else "are in their"
        summary = (
            f"{who} {verb} own program, and {waiting} in RPC for a worker that runs nothing: "
            f"that worker may wait for a call of {rank_phrase(claim.culprits)}."
        )
    elif not about.ending:
        verb = "does" if len(about.looks) == 1 else "do"
        summary = f"{who} {verb} not answer, and {waiting} for the answer in RPC."
    return Words(
        summary,
        (
            *(f"Rank {look.rank} is {look.says}." for look in about.looks[:_MOST_WORKERS]),
            *(_link(link) for link in about.links[:_MOST_WORKERS]),
        ),
        ("It may only be slow and still answer: nothing shows how long such a call takes.",),
        (
            "Inspect its line: there it runs what another worker asked for, or its own program.",
            "Give calls a time-out: rpc_sync(…, timeout=60), or rpc_timeout of the options.",
        ),
    )


@words_for(CircleOfWorkers)
def _verdict_of_circle_of_workers(about: CircleOfWorkers, claim: Claim) -> Words:
    links = "; ".join(_clause(link) for link in about.links[:_MOST_WORKERS])
    told = tuple(
        f"{printable(name, 40)} has {count_of(threads, 'thread')} that "
        f"{'serves' if threads == 1 else 'serve'} others, and none is free: it never starts the "
        "next request."
        for name, threads in about.full[:_MOST_WORKERS]
    )
    return Words(
        f"{subject(claim.victims)} wait for each other in a circle of RPCs: {links}.",
        (*told, "No thread of these workers runs anything else, in two looks."),
        ("An answer may have been lost on the way: read what the workers print about RPC.",),
        (
            "Return a future of a function that waits (@rpc.functions.async_execution).",
            "Or raise num_worker_threads: each RPC that waits takes one.",
        ),
    )


def _clause(link: WorkerWait) -> str:
    what = f" to run {printable(link.function, 40)}" if link.function else ""
    return (
        f"{printable(link.worker, 40)} waits in {link.op} for {printable(link.awaited, 40)}{what}"
    )


def _link(link: WorkerWait) -> str:
    text = _clause(link)
    return f"{text[:1].upper()}{text[1:]}."
