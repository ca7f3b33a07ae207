"""Claims about calls that were left out or made once too often.

They replace what is seen at the end: a call that a rank never joins, or that does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from unhang.analysis.divergence.in_group import Divergence
from unhang.analysis.rules.p2p_unmatched import P2P_UNMATCHED
from unhang.analysis.rules.telling import Words, subject, words_for, words_of
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.kinds import Kind, Remedy, Trait
from unhang.report import CallSide, GroupRef, Site
from unhang.stacks.ownership import bare_name, shown_frame
from unhang.wording import count_of, rank_phrase

SKIPPED_CALL: Final = Kind(
    "UH102",
    "skipped-call",
    "absent",
    "A rank skipped a call that its peers made, or made one too many, some time before the hang.",
    traits=Trait.FROM_FAILURE | Trait.ONE_MISTAKE | Trait.OF_NOW,
    remedy=Remedy.CODE,
    alternatives=(
        "A branch taken by one rank only, or loops of different lengths over uneven data.",
    ),
    actions=(
        (
            "Compare the code around both lines for conditions that depend on the rank or on its "
            "data."
        ),
        "Reproduce with TORCH_DISTRIBUTED_DEBUG=DETAIL, which checks each call on all ranks.",
    ),
)


class CallAt(Struct, frozen=True):
    """A call by its name, and its line; `file` is "" where no stack says it."""

    name: str
    file: str = ""
    line: int = 0
    function: str = ""


class Parting(Struct, frozen=True):
    """Where some ranks parted from their peers: the mistake itself, however it shows in the end.

    Attributes:
        call: The call in question.
        missing: The suspects lack it; else they have it and their peers do not.
        suspects, peers: The two sides, in the group of the call unless `elsewhere`.
        blamed: The suspects are wrong; else two sides alone cannot tell.
        elsewhere: The two have no group in common in which the call could be made.
        at_another_time: Who lacks it has a call of its name and number, made at another time.
    """

    call: CallAt
    missing: bool
    suspects: tuple[int, ...]
    peers: tuple[int, ...]
    blamed: bool
    elsewhere: bool
    at_another_time: bool = False


class SkippedCall(Struct, frozen=True):
    """A call that was left out or made once too often, some time before the hang.

    Attributes:
        instead: With what the other side went on.
        apart: By how many calls the two sides differ from there on.
        before_window: It is the first call that both windows show.
        symptom: What is seen in the end.
    """

    parting: Parting
    instead: CallAt | None
    apart: int
    before_window: bool
    symptom: Claim


def explain_divergence(
    situation: Situation, divergence: Divergence, at: int, symptom: Claim, nodes: Sequence[int]
) -> Claim:
    """Explain ranks that parted from their peers.

    Args:
        situation: All that is known.
        divergence: Where they parted.
        at: The waiting call in which it is seen.
        symptom: What would be said without it.
        nodes: Nodes of the wait-for graph that stand for the symptom.
    """
    distance = situation.graph.reaching(np.asarray(nodes, np.int64))
    culprits = situation.named(divergence.ranks)
    reached = {*situation.victims(distance), *situation.named(situation.heads.inside(at))}
    reached |= set(situation.named(divergence.suspects))
    reached |= set(situation.named(node for node in nodes if node < situation.graph.n_ranks))
    case, row = situation.evidence.case, divergence.row
    collective = bool(situation.evidence.collective[row])
    parting = _parting(situation, divergence)
    return Claim(
        kind=SKIPPED_CALL if collective else P2P_UNMATCHED,
        about=SkippedCall(
            parting=parting,
            instead=call_at(situation, divergence.instead) if divergence.instead >= 0 else None,
            apart=abs(divergence.shift),
            before_window=divergence.before_window,
            symptom=symptom,
        ),
        culprits=culprits,
        victims=tuple(sorted(reached - set(culprits))),
        group=_group_of(situation, row),
        seq=int(case.calls.seq[row]) if collective else None,
        op=case.names[int(case.calls.name[row])].op,
        calls=tuple(_sides(situation, divergence)),
        waits=situation.chain(distance),
        sites=tuple(_sites(situation, divergence)),
        doubts=tuple(_doubts(situation, divergence, at)),
        mistake=parting,
    )


def _group_of(situation: Situation, row: int) -> GroupRef:
    """The group of the call in question: what is waited in by now may be of another one."""
    group = situation.evidence.case.groups[int(situation.evidence.case.calls.group[row])]
    return GroupRef.of(group)


def call_at(situation: Situation, row: int, *, numbered: bool = True) -> CallAt:
    """A call with its line."""
    case, calls = situation.evidence.case, situation.evidence.case.calls
    collective = bool(situation.evidence.collective[row])
    number = f" #{int(calls.seq[row])}" if collective and numbered else ""
    group = case.groups[int(calls.group[row])].label
    name = f"{case.names[int(calls.name[row])].op}{number} of {group}"
    frame = shown_frame(situation.frames(row))
    return CallAt(name, frame.file, frame.line, frame.function) if frame else CallAt(name)


def _parting(situation: Situation, divergence: Divergence) -> Parting:
    elsewhere = bool(divergence.ranks) and _elsewhere(situation, divergence)
    in_group = divergence.ranks and not elsewhere
    return Parting(
        call=call_at(situation, divergence.row),
        missing=divergence.kind == "missing",
        suspects=situation.named(divergence.suspects),
        peers=_in_its_group(situation, divergence)[1]
        if in_group
        else situation.named(divergence.peers),
        blamed=bool(divergence.ranks),
        elsewhere=elsewhere,
        at_another_time=_numbered_alike(situation, divergence),
    )


def _numbered_alike(situation: Situation, divergence: Divergence) -> bool:
    """Whether the side that lacks the call has one of its name under its number all the same.

    After a call that was left out, later ones take its number; in another order, it comes later.
    """
    evidence, row = situation.evidence, divergence.row
    calls = evidence.case.calls
    if not evidence.collective[row]:
        return False
    lacking = divergence.suspects if divergence.kind == "missing" else divergence.peers
    same = (calls.group == calls.group[row]) & (calls.seq == calls.seq[row])
    same &= calls.name == calls.name[row]
    return bool(np.isin(calls.rank[same], situation.named(lacking)).any())


def _elsewhere(situation: Situation, divergence: Divergence) -> bool:
    """Whether suspects and peers have no group in common in which the call could be made."""
    return not all(_in_its_group(situation, divergence))


def _in_its_group(
    situation: Situation, divergence: Divergence
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Suspects and peers (global) that are members of the group of the call in question."""
    case = situation.evidence.case
    members = set(case.groups[int(case.calls.group[divergence.row])].members)
    suspects, peers = situation.named(divergence.suspects), situation.named(divergence.peers)
    return (
        tuple(rank for rank in suspects if rank in members),
        tuple(rank for rank in peers if rank in members),
    )


def _sides(situation: Situation, divergence: Divergence) -> list[CallSide]:
    role = "culprit" if divergence.ranks else "peer"
    if _elsewhere(situation, divergence):
        return _sides_elsewhere(situation, divergence, role)
    suspects, peers = _in_its_group(situation, divergence)
    if divergence.kind == "missing":
        return [
            *_lacking(situation, divergence, suspects, role),
            situation.side(peers, divergence.row, "peer"),
        ]
    return [
        situation.side(suspects, divergence.row, role),
        *_lacking(situation, divergence, peers, "peer"),
    ]


def _lacking(
    situation: Situation, divergence: Divergence, ranks: tuple[int, ...], role: str
) -> list[CallSide]:
    """The side without the call; what it called instead, where a call of that number is there."""
    if not _numbered_alike(situation, divergence):
        return [situation.never_called(ranks, divergence.row, role)]
    if divergence.instead < 0:
        return []
    return [situation.side(ranks, divergence.instead, role)]


def _sides_elsewhere(situation: Situation, divergence: Divergence, role: str) -> list[CallSide]:
    """What each side called there, each in its own group."""
    suspects = set(situation.named(divergence.suspects))
    rank_of = situation.evidence.case.calls.rank
    rows = [row for row in (divergence.row, divergence.instead) if row >= 0]
    ranks = [int(rank_of[row]) for row in rows]
    return [
        situation.side((rank,), row, role if rank in suspects else "peer")
        for rank, row in sorted(zip(ranks, rows, strict=True), key=lambda p: p[0] not in suspects)
    ]


def _sites(situation: Situation, divergence: Divergence) -> list[Site]:
    """The line of the call in question, and the line at which the other side went on."""
    suspects, peers = situation.named(divergence.suspects), situation.named(divergence.peers)
    own, other = (
        (divergence.instead, divergence.row)
        if divergence.kind == "missing"
        else (divergence.row, divergence.instead)
    )
    found = []
    for ranks, role, row in ((suspects, "culprit", own), (peers, "victim", other)):
        if row >= 0:
            shown = role if divergence.ranks else "victim"
            found.append(situation.book.site(ranks, shown, situation.frames(row)))
    return [site for site in found if site is not None]


def _doubts(situation: Situation, divergence: Divergence, at: int) -> list[Doubt]:
    calls = situation.evidence.case.calls
    found = {
        Doubt.LINE_UNKNOWN: int(calls.stack[divergence.row]) < 0,
        Doubt.BEFORE_WINDOW: divergence.before_window,
        Doubt.MEMBERS_INFERRED: situation.group(at).inferred,
        Doubt.NO_MAJORITY: not divergence.ranks,
        Doubt.BY_HABIT: divergence.by_habit,
    }
    return [doubt for doubt, so in found.items() if so]


@words_for(SkippedCall)
def _verdict_of_skipped_call(about: SkippedCall, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    undecided = ("One side skipped the call, or the other made one too many.",)
    return Words(
        _parted(about.parting),
        tuple(_skip_evidence(about)),
        alternatives=(*(() if about.parting.blamed else undecided), *SKIPPED_CALL.alternatives),
        actions=SKIPPED_CALL.actions,
    )


def _skip_evidence(about: SkippedCall) -> list[str]:
    found = []
    if about.instead is not None:
        parting = about.parting
        other = subject(parting.suspects if parting.missing else parting.peers)
        found.append(f"{other} went on with {shown_call(about.instead)} instead.")
    if about.before_window:
        found.append("The dumps begin there, so the first difference may be earlier.")
    found.append(f"From there on the two sides differ by {count_of(about.apart, 'call')}.")
    seen = words_of(about.symptom.about, about.symptom).summary
    return [*found, f"The final symptom: {seen}"]


def shown_call(call: CallAt) -> str:
    """A call with its line: "all_gather #41 of tp (2) (train.py:88 in f)"."""
    if not call.line and not call.file and not call.function:
        return call.name
    file = call.file.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{call.name} ({file}:{call.line} in {bare_name(call.function)})"


def _parted(parting: Parting) -> str:
    who, peers, call = (
        subject(parting.suspects),
        rank_phrase(parting.peers),
        shown_call(parting.call),
    )
    if not parting.blamed:
        has, lacks = (peers, who) if parting.missing else (who, peers)
        return (
            f"{has[:1].upper()}{has[1:]} made {call} and {lacks[:1].lower()}{lacks[1:]} did not; "
            "there are only two sides, so either may be wrong."
        )
    if parting.elsewhere:
        same = f"{peers}, with the same part in the program,"
        if parting.missing:
            return f"{who} did not make {call}; {same} did."
        return f"{who} made {call}; {same} made none there."
    then = "all later calls meet wrong ones"
    if parting.at_another_time:
        lacking = parting.suspects if parting.missing else parting.peers
        it = "it" if len(lacking) == 1 else "they"
        then = f"{it} used that number for another call, or at another time"
    if parting.missing:
        return f"{who} did not make {call}, which {peers} made; {then}."
    return f"{who} made {call}, which {peers} did not; {then}."
