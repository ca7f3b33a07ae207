"""Words for ranks that do not meet: before a group, in sizes that do not fit, or over RPC."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from unhang.analysis.claims import Claim, Weighed
from unhang.analysis.lives.before_groups import (
    HalfMade,
    LeftOver,
    NodesAway,
    NotAtMeeting,
    RankTwice,
    ToldApart,
)
from unhang.analysis.lives.last_calls import GroupsApart, LinesApart, RootsApart, SizesApart
from unhang.analysis.lives.splits import PartUnfit
from unhang.analysis.lives.workers import AwaitedWorkers, CircleOfWorkers, WorkerWait
from unhang.analysis.rules.telling import Words, adding_for, subject, words_for
from unhang.wording import count_of, printable, rank_phrase

__all__: list[str] = []

_MOST_WORKERS = 6


@words_for(NotAtMeeting)
def _verdict_of_not_at_meeting(about: NotAtMeeting, claim: Claim) -> Words:
    verb = "has" if len(claim.culprits) == 1 else "have"
    who, waiting = subject(claim.culprits), rank_phrase(about.waiting)
    where = f", and is {about.away[0].says}" if len(about.away) == 1 else ""
    if not about.away:
        where = ": there is no such process here"
    told = [f"{subject([look.rank])} is {look.says}." for look in about.away]
    return Words(
        f"{who} {verb} not come to {about.call}, where {waiting} "
        f"{'waits' if len(about.waiting) == 1 else 'wait'} for {count_of(about.size, 'rank')}"
        f"{where}.",
        (
            *told,
            *([f"There is no process of {rank_phrase(about.unseen)}."] if about.unseen else []),
        ),
        (
            "It may only be late: what a rank reads or builds before it joins takes its time.",
            "It may run on a node that was not looked at.",
        ),
        ("Compare WORLD_SIZE with the number of processes that were started, on all nodes.",)
        if not about.away
        else ("Look at the line where it stands; join the group first and prepare data after it.",),
    )


@words_for(HalfMade)
def _verdict_of_half_made(about: HalfMade, claim: Claim) -> Words:  # noqa: ARG001 - all words have the same parameters
    verb = "has" if len(about.out) == 1 else "have"
    still = "does" if len(about.inside) == 1 else "do"
    return Words(
        f"All {about.size:,} ranks have come to init_process_group; {rank_phrase(about.out)} "
        f"{verb} come out of it, and {rank_phrase(about.inside)} {still} not.",
        ("Nobody is missing: what has not come about is the connections of the group.",),
        (
            "Addresses of an attempt before, in a store that outlives it: a restart may do.",
            "A firewall, or an address that the others do not reach: unhang doctor net.",
        ),
        (
            "Look at what these ranks print of connections: unhang logs.",
            "After a restart by torchrun: --standalone, or --rdzv-backend c10d, has no old keys.",
        ),
    )


@adding_for(LeftOver)
def _adding_left_over(seen: LeftOver, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001 - all have these parameters
    place = printable(seen.place, 200)
    said = (
        f"{subject(seen.ranks)} {'meets' if len(seen.ranks) == 1 else 'meet'} the others at the "
        f"file {place}, which had been there for {count_of(seen.age_s, 'second')} when this run "
        "began: addresses of an earlier run are in it."
    )
    remedy = f"Delete {place} before each run, or let the launcher name the place: env://."
    return replace(
        words,
        evidence=(said, *words.evidence),
        actions=(remedy, *(words.actions if words.actions is not None else claim.kind.actions)),
    )


@words_for(ToldApart)
def _verdict_of_told_apart(about: ToldApart, claim: Claim) -> Words:
    sides = "; ".join(f"{rank_phrase(who)}: {printable(value)}" for value, who in about.sides)
    who = subject(claim.culprits or claim.victims)
    return Words(
        f"{who} {'and the others ' if claim.culprits else ''}{about.what} ({sides}), so that they "
        "never make a group.",
        (f"What they gave init_process_group: {sides}.",),
        ("The variables may have been changed by the program itself.",),
        ("Give all ranks the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE.",),
    )


@words_for(RankTwice)
def _verdict_of_rank_twice(about: RankTwice, claim: Claim) -> Words:  # noqa: ARG001 - all words have the same parameters
    nobody = f", and nobody is {rank_phrase(about.nobody)}" if about.nobody else ""
    pids = " and ".join(f"pid {pid}" for pid in about.pids)
    return Words(
        f"Two processes say that they are rank {about.rank}{nobody}, so that the others wait.",
        (f"{pids} gave init_process_group rank {about.rank}.",),
        ("A process of an earlier launch may be left, which still uses the same address.",),
        ("Give every process a RANK of its own; end what an earlier launch left behind.",),
    )


@words_for(NodesAway)
def _verdict_of_nodes_away(about: NodesAway, claim: Claim) -> Words:
    here = count_of(len(about.here), "launcher")
    verb = "waits" if len(about.here) == 1 else "wait"
    meetings = sorted({each.meeting for each in about.here})
    if about.away <= 0:
        told = " and ".join(printable(meeting) for meeting in meetings)
        summary = f"{here} {verb} at different places ({told}), and no rank has been started."
    else:
        whose = f" ({rank_phrase(claim.culprits)})" if claim.culprits else ""
        summary = (
            f"{count_of(about.away, 'node')} of {about.nodes}{whose} "
            f"{'has' if about.away == 1 else 'have'} not come: {here} {verb} at the rendezvous, "
            "and no rank has been started."
        )
    return Words(
        summary,
        tuple(
            f"pid {each.pid} meets its peers at {printable(each.meeting)}." for each in about.here
        ),
        ("The other nodes may be on their way: they may be queued or still starting.",),
        (
            "Check that the launcher runs on all nodes, with the same endpoint and id.",
            "Check that every node reaches that endpoint: unhang doctor net.",
        ),
    )


@words_for(LinesApart)
def _verdict_of_lines_apart(about: LinesApart, claim: Claim) -> Words:
    sides = "; ".join(
        f"{rank_phrase(who)}: {printable(Path(line).name)}" for line, who in about.sides
    )
    return Words(
        f"{subject(claim.culprits)} made {about.op} at another line than the others, and the data "
        "do not fit.",
        (
            f"The last call of each rank, by its heartbeat: {sides}.",
            "Gloo ended a process that got more or less than it asked for.",
        ),
    )


@words_for(PartUnfit)
def _verdict_of_part_unfit(about: PartUnfit, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    senders = rank_phrase(about.senders)
    one_of = senders if len(about.senders) == 1 else f"one of {senders}"
    return Words(
        f"Splits of {about.op} do not fit: {one_of} sent rank {about.receiver} "
        f"{count_of(about.sent, 'byte')}, and that expected {about.room:,}.",
        (
            f"Gloo told so when it ended rank {about.receiver}, which received.",
            "Its sizes may rightly differ by rank, so none is odd; either side may be wrong.",
        ),
        actions=(
            "Print both splits before this line: what i sends to j must be what j expects from i.",
        ),
    )


@words_for(SizesApart)
def _verdict_of_sizes_apart(about: SizesApart, claim: Claim) -> Words:
    unit = "element" if about.ended is None else "byte"
    sides = "; ".join(f"{rank_phrase(who)}: {count_of(n, unit)}" for n, who in about.sides)
    who = subject(claim.culprits) if claim.culprits else "The ranks"
    verb = "disagrees" if len(claim.culprits) == 1 else "disagree"
    whom = " with the others" if claim.culprits else ""
    told = f"The last call of each rank, by its heartbeat: {sides}."
    if about.ended is not None:
        told = (
            f"What came and what was expected, as Gloo told when it ended rank {about.ended}, "
            f"fits parts of the calls in which the others wait: {sides}."
        )
    return Words(
        f"{who} {verb}{whom} about the size of {about.op}: {sides}.",
        (
            told,
            (
                "Gloo ended a process that got more or less than it asked for, which need not be "
                "the one that is wrong."
            ),
        ),
    )


@words_for(RootsApart)
def _verdict_of_roots_apart(about: RootsApart, claim: Claim) -> Words:
    sides = "; ".join(f"{rank_phrase(who)}: root {root}" for root, who in about.sides)
    who = subject(claim.culprits) if claim.culprits else "The ranks"
    verb = "names" if len(claim.culprits) == 1 else "name"
    whom = "another root than the others" if claim.culprits else "different roots"
    op = about.op or "a call"
    return Words(
        f"{who} {verb} {whom} in {op}: {sides}.",
        (
            f"By their heartbeats, as ranks of the group: {sides}.",
            "A root sends to, or receives from, peers that deal with another one."
            if claim.culprits
            else "No side has a majority, so neither is blamed.",
        ),
        actions=(
            "Give every rank the same src (or dst): print it just before this line on all ranks.",
        ),
    )


@words_for(GroupsApart)
def _verdict_of_groups_apart(about: GroupsApart, claim: Claim) -> Words:
    name = printable(about.name)
    told = (f"{rank_phrase(who)} of ranks {printable(which)}" for which, who in about.sides)
    sides = "; ".join(told)
    odd = claim.culprits
    who = f" ({rank_phrase(odd)} against the others)" if odd else ""
    return Words(
        f"Ranks do not make the same new group {name}{who}: {sides}.",
        (
            "So their heartbeats tell; whoever is in it waits for members that make another one.",
            "All ranks have to make the same groups in the same order, be they in them or not.",
        ),
    )


@words_for(AwaitedWorkers)
def _verdict_of_awaited_workers(about: AwaitedWorkers, claim: Claim) -> Words:
    names = ", ".join(printable(look.sample.worker, 40) for look in about.looks[:_MOST_WORKERS])
    who, waiting = f"{subject(claim.culprits)} ({names})", rank_phrase(claim.victims)
    wait = "waits" if len(claim.victims) == 1 else "wait"
    verb = "has" if len(about.looks) == 1 else "have"
    summary = f"{who} {verb} not come to rpc.shutdown, in which {waiting} {wait}."
    if about.aside:
        verb = "stands" if len(about.looks) == 1 else "stand"
        summary = (
            f"{who} {verb} in its own program, and {waiting} {wait} in RPC for a worker that runs "
            "nothing: it may need that rank's call."
        )
    elif not about.ending:
        verb = "does" if len(about.looks) == 1 else "do"
        summary = f"{who} {verb} not answer, and {waiting} {wait} for that in RPC."
    return Words(
        summary,
        (
            *(f"Rank {look.rank} is {look.says}." for look in about.looks[:_MOST_WORKERS]),
            *(_link(link) for link in about.links[:_MOST_WORKERS]),
        ),
        ("It may only be slow, and answer: nothing tells how long such a call takes.",),
        (
            "Look at its line: it runs there what another worker asked for, or its own program.",
            "Give calls a time-out: rpc_sync(…, timeout=60), or rpc_timeout of the options.",
        ),
    )


@words_for(CircleOfWorkers)
def _verdict_of_circle_of_workers(about: CircleOfWorkers, claim: Claim) -> Words:
    links = "; ".join(_clause(link) for link in about.links[:_MOST_WORKERS])
    told = tuple(
        f"{printable(name, 40)} has {count_of(threads, 'thread')} that "
        f"{'serves' if threads == 1 else 'serve'} others, and none is free: what it is asked for "
        "next is never begun."
        for name, threads in about.full[:_MOST_WORKERS]
    )
    return Words(
        f"{subject(claim.victims)} wait for each other in a circle of RPCs: {links}.",
        (*told, "No thread of these workers runs anything else, in two looks."),
        ("An answer may have been lost on the way: look at what the workers print of RPC.",),
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
