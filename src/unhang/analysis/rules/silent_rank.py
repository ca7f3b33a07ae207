"""Ranks that others wait for and that left no usable dump; or too many of them to name any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from unhang.analysis.matching.roots import Root
from unhang.analysis.rules.telling import Words, subject, waits, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.analysis.sources.nodes import unheard
from unhang.analysis.state.columns import Ints
from unhang.case import IN_MEMORY, Dump
from unhang.kinds import ABSENT, INSUFFICIENT_EVIDENCE, Kind, Trait
from unhang.model import AskedNode, DumpStatus, Note
from unhang.wording import count_of, printable, rank_phrase

SILENT_RANK: Final = Kind(
    "UH103",
    "silent-rank",
    "absent",
    "The rank that others wait for left no usable dump.",
    traits=ABSENT | Trait.FROM_BAD_NODE | Trait.LAST_RESORT,
    alternatives=(
        (
            "The rank may be alive and merely unable to write its dump (full disk, GIL held, dump"
            " written to a folder of its own host)."
        ),
    ),
    actions=(
        (
            "Check whether the process lives: its exit code, the kernel log (dmesg | grep -i "
            "oom), the launcher's log."
        ),
        "Collect the missing dump from its host: unhang collect.",
    ),
)

_MOST_SHOWN = 8
_TWO = 2
"""Of two members who wait for each other, one who waits names the other."""
_MOST_OF_MANY = 2
_ASK_AGAIN = "Ask again the nodes that did not answer: unhang collect --resume CASE."
_MOST_NAMES, _LONGEST_NAME, _LONGEST_WHY = 8, 60, 200
_LOOK_THERE = (
    "Look at all nodes at once: unhang collect --hosts, --slurm, --kubectl or --hostfile.",
    "Let the nodes of a job share a case: unhang run --case on a disk that all of them see.",
)


class LostDump(Struct, frozen=True):
    """What became of the dump of a silent rank; `status` None: there is none."""

    rank: int
    source: str = ""
    status: DumpStatus | None = None
    usable: bool = False


class SilentRanks(Struct, frozen=True):
    """Ranks without a usable dump, the only ones whose place is unknown.

    Attributes:
        call: Name of the call from which no other rank is missing.
        inside, size: How many are seen in it, of how many members.
    """

    call: str
    dumps: tuple[LostDump, ...]
    inside: int
    size: int


class MostlySilent(Struct, frozen=True):
    """Most dumps of a group are missing: that they are is no evidence against any rank."""

    call: str
    silent: tuple[int, ...]
    dumps: tuple[LostDump, ...]


class NotLookedAt(Struct, frozen=True):
    """Ranks of nodes that were not searched: that they left nothing says nothing about them.

    Attributes:
        silent: Others that may be missing, whose nodes were looked at.
        nodes: That were asked for them, and from which nothing came.
    """

    call: str
    ranks: tuple[int, ...]
    silent: tuple[int, ...]
    nodes: tuple[AskedNode, ...] = ()


class DumpsOutdated(Struct, frozen=True):
    """The only dumps of those who may be missing are old: what they lack proves nothing."""

    call: str
    outdated: tuple[int, ...]


def explain_silent(situation: Situation, root: Root) -> Claim:
    """Explain ranks about which no dump tells where they are."""
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
        calls=situation.waiting_sides(call),
        waits=situation.chain(distance),
        sites=situation.sites_of_wait((), call),
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
    """Whether there is one dump alone, and no trace of another: there may be more elsewhere."""
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
    """That ranks wait in a call, and that no rank can be named for it."""
    return Claim(
        kind=INSUFFICIENT_EVIDENCE,
        about=about,
        victims=victims,
        group=situation.group_ref(call),
        seq=situation.seq(call),
        op=situation.op(call),
        calls=situation.waiting_sides(call),
        sites=situation.sites_of_wait((), call),
        doubts=(Doubt.NOBODY_NAMED,),
    )


@words_for(SilentRanks)
def _verdict_of_silent_ranks(about: SilentRanks, claim: Claim) -> Words:
    it = "it is" if len(claim.culprits) == 1 else "they are"
    summary = (
        f"{subject(claim.culprits)} left no usable dump, and no other rank is missing from "
        f"{about.call}: {it} dead, or unable to write."
    )
    wait = "waits" if about.inside == 1 else "wait"
    seen = f"{about.inside:,} of {count_of(about.size, 'rank')} {wait} in the call."
    return Words(summary, (*map(_lost, about.dumps), seen))


def _lost(dump: LostDump) -> str:
    if dump.status is None:
        return f"There is no dump of rank {dump.rank}."
    state = "cut short" if dump.usable else dump.status.value
    return f"The dump of rank {dump.rank} ({dump.source}) is {state}."


@words_for(MostlySilent)
def _verdict_of_mostly_silent(about: MostlySilent, claim: Claim) -> Words:
    summary = (
        f"Not enough evidence: {waits(claim.victims)}, and too few of the ranks that may be "
        f"missing from {about.call} left a usable dump."
    )
    lost = map(_lost, about.dumps[:_MOST_OF_MANY])
    evidence = (f"No usable dump of {rank_phrase(about.silent)}.", *lost)
    return Words(summary, evidence, actions=SILENT_RANK.actions)


@words_for(NotLookedAt)
def _verdict_of_not_looked_at(about: NotLookedAt, claim: Claim) -> Words:
    missing, were = rank_phrase(about.ranks), "was" if len(about.ranks) == 1 else "were"
    where = f"on {_names_of(about.nodes)}" if about.nodes else "of other nodes"
    summary = (
        f"Not enough evidence: {waits(claim.victims)} in {about.call}, and {missing} {where} "
        f"{were} not inspected."
    )
    evidence = (
        f"No node has reported {missing}, which may work, wait or be dead.",
        *((f"No usable dump of {rank_phrase(about.silent)} either.",) if about.silent else ()),
    )
    missed = any(node.state == "not-reached" for node in about.nodes)
    return Words(summary, evidence, actions=(_ASK_AGAIN,) if missed else _LOOK_THERE)


def _names_of(nodes: Sequence[AskedNode], *, with_ranks: bool = False) -> str:
    """Nodes by name: "n2 (ranks 4-7), n3 and 5 more"."""
    named = [
        f"{printable(node.node, _LONGEST_NAME)}"
        + (f" ({rank_phrase(node.ranks)})" if with_ranks and node.ranks else "")
        for node in nodes[:_MOST_NAMES]
    ]
    more = len(nodes) - len(named)
    return ", ".join(named) + (f" and {more:,} more" if more else "")


def _unheard_words(nodes: Sequence[AskedNode]) -> Iterator[str]:
    """Nodes without an answer, and why: nodes with the same reason in one sentence."""
    alike: dict[tuple[str, str], list[AskedNode]] = {}
    for node in nodes:
        alike.setdefault((node.state, node.why), []).append(node)
    for (state, why), some in alike.items():
        names, verb = _names_of(some, with_ranks=True), "was" if len(some) == 1 else "were"
        says = f"{verb} not reached" if state == "not-reached" else "had given nothing yet"
        told = f": {printable(why, _LONGEST_WHY)}" if why else ""
        by = " (its ranks are those of no other node)" if any(n.inferred for n in some) else ""
        yield f"{names} {says}{told}{by}"


def notes_on_nodes(nodes: Iterable[AskedNode]) -> tuple[Note, ...]:
    """That nodes of the job gave nothing: every verdict stands without them."""
    silent = [node for node in nodes if node.state != "answered"]
    return tuple(Note("warning", "nodes", text) for text in _unheard_words(silent))


@words_for(DumpsOutdated)
def _verdict_of_dumps_outdated(about: DumpsOutdated, claim: Claim) -> Words:
    summary = (
        f"Not enough evidence: {waits(claim.victims)} in {about.call}, and the only dumps of "
        f"{rank_phrase(about.outdated)} are older than that."
    )
    return Words(
        summary,
        ("Their peers finished calls that need all members and that these dumps lack.",),
        alternatives=("The dumps may come from two incidents, or from moments far apart.",),
        actions=("Take all dumps at one moment: unhang dump, or run under unhang run.",),
    )
