"""Claims about ranks that keep others waiting and wait for nobody themselves.

Never joined, silent, stuck inside the enqueue. Whether a rank that never joined skipped a call long
before is for `unhang.analysis.divergence.in_group`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from unhang.analysis.claims import Claim, Doubt
from unhang.analysis.findings.exchanges import explain_unpaired
from unhang.analysis.findings.unmade_groups import may_make_a_group
from unhang.analysis.matching.no_trace import may_be_in_a_batch
from unhang.analysis.matching.roots import Root
from unhang.analysis.matching.wait_graph import Edge
from unhang.analysis.situation import Situation
from unhang.analysis.sources.nodes import unheard
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.progress import Known, Stage
from unhang.case import IN_MEMORY, Dump
from unhang.kinds import INSIDE_ENQUEUE, INSUFFICIENT_EVIDENCE, NEVER_JOINED, SILENT_RANK
from unhang.model import AskedNode, DumpStatus
from unhang.report import CallSide, Site

__all__ = [
    "DumpsOutdated",
    "InsideEnqueue",
    "LostDump",
    "MostlySilent",
    "NeverJoined",
    "NotLookedAt",
    "SilentRanks",
    "explain_absent",
]

_MOST_SHOWN = 8
_TWO = 2
"""Of two members who wait for each other, one who waits names the other."""


class NeverJoined(Struct, frozen=True):
    """Ranks that never made a call in which others wait.

    Attributes:
        call: Name of the call.
        waiting: Global ranks that are in it.
        last: Rank and the number of its last call in the group (-1: it shows none), of the first.
        last_lines: Ranks of which the last call's line is known, and not where they stand.
        known: How it is known.
        making: They, where one may wait for another to make a group, which no dump would show.
    """

    call: str
    waiting: tuple[int, ...]
    last: tuple[tuple[int, int], ...]
    last_lines: tuple[int, ...]
    known: Known
    making: tuple[int, ...] = ()


class LostDump(Struct, frozen=True):
    """What became of the dump of a silent rank; `status` None: there is none."""

    rank: int
    source: str = ""
    status: DumpStatus | None = None
    usable: bool = False


class SilentRanks(Struct, frozen=True):
    """Ranks without a usable dump, of which alone nobody knows where they are.

    Attributes:
        call: Name of the call from which nobody else is missing.
        inside, size: How many are seen in it, of how many members.
    """

    call: str
    dumps: tuple[LostDump, ...]
    inside: int
    size: int


class MostlySilent(Struct, frozen=True):
    """Most dumps of a group are missing: that they are is no evidence against anybody."""

    call: str
    silent: tuple[int, ...]
    dumps: tuple[LostDump, ...]


class NotLookedAt(Struct, frozen=True):
    """Ranks of nodes at which nobody has looked: that they left nothing tells nothing of them.

    Attributes:
        silent: Others that may be missing, whose nodes were looked at.
        nodes: That were asked for them, and of which nothing came.
    """

    call: str
    ranks: tuple[int, ...]
    silent: tuple[int, ...]
    nodes: tuple[AskedNode, ...] = ()


class DumpsOutdated(Struct, frozen=True):
    """The only dumps of those who may be missing are old: what they lack proves nothing."""

    call: str
    outdated: tuple[int, ...]


class InsideEnqueue(Struct, frozen=True):
    """Ranks that recorded a call and never launched it."""

    call: str
    seq: int | None


def explain_absent(situation: Situation, root: Root) -> Claim:
    """Explain a root made of ranks that wait for nobody."""
    if root.edge == Edge.UNKNOWN:
        return _silent(situation, root)
    if root.edge == Edge.NOT_LAUNCHED:
        return _inside_enqueue(situation, root)
    if root.edge in (Edge.UNPAIRED, Edge.ANY_SOURCE):
        return explain_unpaired(situation, root)
    return _never_joined(situation, root)


def _never_joined(situation: Situation, root: Root) -> Claim:
    call = root.waiting_calls[0]
    culprits = situation.named(root.ranks)
    distance = situation.graph.reaching(np.asarray(root.ranks, np.int64))
    may_make = may_make_a_group(situation, root.ranks, situation.heads.inside(call))
    several = len(culprits) > 1 or may_make.others
    making = culprits if may_make.ranks and several else ()  # one may wait for another
    hidden = _may_hide(situation, root.ranks, call)
    role = "peer" if making or hidden else "culprit"
    never = situation.never_called(culprits, situation.row(call), role)
    return Claim(
        kind=NEVER_JOINED,
        about=NeverJoined(
            call=situation.label(call),
            waiting=situation.named(situation.heads.inside(call)),
            last=_last_calls(situation, root.ranks, call),
            last_lines=situation.last_lines(root.ranks),
            known=Known(root.known),
            making=making,
        ),
        culprits=() if making or hidden or _is_alone(situation, root) else culprits,
        victims=situation.victims(distance),
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=situation.op(call),
        calls=(never, *_waiting_sides(situation, call)),
        waits=situation.chain(distance),
        sites=_sites(situation, root.ranks, call),
        doubts=(
            *_doubts(situation, root),
            *((Doubt.MAKES_A_GROUP,) if may_make.ranks else ()),
            *((Doubt.LEAVES_NO_TRACE,) if hidden else ()),
        ),
    )


def _may_hide(situation: Situation, ranks: tuple[int, ...], call: int) -> bool:
    """Whether some of these ranks may be in a batch of which their dumps show nothing."""
    group = situation.evidence.group_of(int(situation.heads.channel[call]))
    inside = situation.heads.inside(call)[:_MOST_SHOWN].tolist()
    few = ranks[:_MOST_SHOWN]
    return any(may_be_in_a_batch(situation.evidence, rank, inside, group) for rank in few)


def _waiting_sides(situation: Situation, call: int) -> tuple[CallSide, ...]:
    return situation.sides_by_row(situation.heads.row[situation.heads.inside(call)], "victim")


def _sites(situation: Situation, culprits: tuple[int, ...], call: int) -> tuple[Site, ...]:
    waiting = situation.heads.row[situation.heads.inside(call)]
    return (
        *situation.sites_of_absent(culprits),
        *situation.book.sites_of_rows(waiting, "victim"),
    )


def _last_calls(
    situation: Situation, ranks: tuple[int, ...], call: int
) -> tuple[tuple[int, int], ...]:
    """The last call of each culprit in the group, by number; -1 where it shows none."""
    shown = np.asarray(ranks[:_MOST_SHOWN], np.int64)
    at = situation.standing.at(shown, int(situation.heads.channel[call]))
    numbers = situation.evidence.ranks.numbers[shown]
    last = [int(situation.standing.reach[row]) if row >= 0 else -1 for row in at.tolist()]
    return tuple(zip(numbers.tolist(), last, strict=True))


def _doubts(situation: Situation, root: Root) -> tuple[Doubt, ...]:
    """Sure only where everybody's dump is there and covers the moment."""
    call = root.waiting_calls[0]
    unsure = () if root.known >= Known.SURE else (Doubt.COUNT_UNSURE,)
    few = (Doubt.FEW_CALLED,) if _few_called(situation, call) else ()
    return (*unsure, *few, *situation.doubts_of_members(call))


def _is_alone(situation: Situation, root: Root) -> bool:
    """Whether one member alone made a call that is new to it, and nothing tells of the others.

    Either it made one too many, or they stand still before it: nobody is named.
    """
    call = root.waiting_calls[0]
    if call >= situation.heads.n_collective or situation.evidence.case.samples:
        return False
    if situation.placed_now(root.ranks)[0] or _is_usual(situation, situation.row(call)):
        return False
    members, stages = situation.stages(call)
    absent = members[stages == Stage.NOT_CALLED]
    return len(absent) == len(members) - 1 > 1 and set(absent.tolist()) <= set(root.ranks)


def _is_usual(situation: Situation, row: int) -> bool:
    """Whether its rank has made this call from the same place before."""
    calls = situation.evidence.case.calls
    earlier = slice(situation.evidence.case.dumps[int(calls.dump[row])].start, row)
    alike = (calls.group[earlier] == calls.group[row]) & (calls.name[earlier] == calls.name[row])
    return bool((alike & (calls.stack[earlier] == calls.stack[row])).any())


def _few_called(situation: Situation, call: int) -> bool:
    """Whether fewer members are known to have made a call than not to have made it."""
    if call >= situation.heads.n_collective:
        return False
    stages = situation.stages(call)[1]
    return int((stages >= Stage.OPEN).sum()) < int((stages == Stage.NOT_CALLED).sum())


# ------------------------------------------------------------------ silent ranks


def _silent(situation: Situation, root: Root) -> Claim:
    call = root.waiting_calls[0]
    culprits = situation.named(root.ranks)
    ranks = np.asarray(root.ranks, np.int64)
    distance = situation.graph.reaching(ranks)
    victims = situation.victims(distance)
    label, size = situation.label(call), situation.group(call).size
    if np.isin(ranks, situation.outdated).all():
        return _nobody_named(situation, call, victims, DumpsOutdated(label, culprits))
    unvisited = tuple(sorted({*culprits}.intersection(situation.evidence.case.unvisited)))
    if unvisited:
        silent = tuple(rank for rank in culprits if rank not in unvisited)
        asked = unheard(situation.evidence.case.nodes, unvisited)
        return _nobody_named(situation, call, victims, NotLookedAt(label, unvisited, silent, asked))
    dumps = _lost_dumps(situation, culprits)
    lone = _is_lone(situation.evidence.case.dumps)
    if _mostly_silent(situation, call, ranks) or (lone and (size > _TWO or _is_handed(situation))):
        return _nobody_named(situation, call, victims, MostlySilent(label, culprits, dumps))
    return Claim(
        kind=SILENT_RANK,
        about=SilentRanks(label, dumps, len(situation.heads.inside(call)), size),
        culprits=culprits,
        victims=victims,
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=situation.op(call),
        calls=_waiting_sides(situation, call),
        waits=situation.chain(distance),
        sites=_sites(situation, (), call),
        doubts=(
            Doubt.NOTHING_SEEN,
            *((Doubt.SEVERAL_SILENT,) if len(culprits) > 1 else ()),
            *((Doubt.LONE_DUMP,) if lone else ()),
        ),
    )


def _mostly_silent(situation: Situation, call: int, ranks: Ints) -> bool:
    """Whether as many are silent as not, of the call's members or of the job: perhaps a node's.

    One alone is named, though it is half of a pair.
    """
    of_call = np.isin(situation.members(call), ranks)
    return any(2 * who.sum() >= len(who) and who.sum() > 1 for who in (of_call, situation.silent))


def _is_lone(dumps: Sequence[Dump]) -> bool:
    """Whether there is one dump alone, and no trace of another: perhaps nobody looked for more."""
    return len(dumps) == 1


def _is_handed(situation: Situation) -> bool:
    """Whether a program handed over what it had: it may never have asked the other rank."""
    return situation.evidence.case.dumps[0].source.startswith(f"{IN_MEMORY}/")


def _lost_dumps(situation: Situation, ranks: tuple[int, ...]) -> tuple[LostDump, ...]:
    """What became of the dumps of the first of these ranks."""
    cut = {d.rank: d for d in situation.evidence.dumps if d.status is DumpStatus.TRUNCATED}
    broken = {d.rank: d for d in situation.evidence.case.dumps if not d.usable}
    found = []
    for rank in ranks[:_MOST_SHOWN]:
        dump = broken.get(rank, cut.get(rank))
        known = dump and LostDump(rank, dump.source, dump.status, usable=dump.usable)
        found.append(known or LostDump(rank))
    return tuple(found)


def _nobody_named(
    situation: Situation,
    call: int,
    victims: tuple[int, ...],
    about: MostlySilent | NotLookedAt | DumpsOutdated,
) -> Claim:
    """That ranks wait in a call, and that nobody can be named for it."""
    return Claim(
        kind=INSUFFICIENT_EVIDENCE,
        about=about,
        victims=victims,
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=situation.op(call),
        calls=_waiting_sides(situation, call),
        sites=_sites(situation, (), call),
        doubts=(Doubt.NOBODY_NAMED,),
    )


# ------------------------------------------------------------------ inside the enqueue


def _inside_enqueue(situation: Situation, root: Root) -> Claim:
    call = root.waiting_calls[0]
    culprits = situation.named(root.ranks)
    distance = situation.graph.reaching(np.asarray(root.ranks, np.int64))
    rows: Ints = situation.heads.row[np.asarray(root.ranks, np.int64)]
    inside = situation.heads.inside(call)
    others: Ints = situation.heads.row[inside[~np.isin(inside, root.ranks)]]
    waiting = _waiting_sides(situation, call)
    return Claim(
        kind=INSIDE_ENQUEUE,
        about=InsideEnqueue(situation.label(call), situation.seq(call)),
        culprits=culprits,
        victims=situation.victims(distance),
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=situation.op(call),
        calls=(
            *situation.sides_by_row(rows, "culprit"),
            *(side for side in waiting if not set(side.ranks) <= set(culprits)),
        ),
        waits=situation.chain(distance),
        sites=(
            *situation.book.sites_of_rows(rows, "culprit"),
            *situation.book.sites_of_rows(others, "victim"),
        ),
        doubts=_doubts(situation, root),
    )
