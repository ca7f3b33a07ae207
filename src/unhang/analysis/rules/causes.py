"""One claim for each root of the waiting, and for each call about which its members disagree.

What is seen at the end may be the late effect of a call left out long before: then that call is the
claim. Roots that say the same are reported together: silent ranks in one claim, and calls that do
not move although all members are in them in one claim, since several communicators stuck at once
are one trouble.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from unhang.analysis.divergence.across_groups import divergence_from_role
from unhang.analysis.divergence.by_step import step_break_of
from unhang.analysis.divergence.counterparts import is_asked_for, would_meet
from unhang.analysis.divergence.in_group import Divergence, divergence_of, made_alone
from unhang.analysis.divergence.programs import RankPrograms
from unhang.analysis.divergence.rhythm import Break, break_of, break_without, turn_break_of
from unhang.analysis.findings.flight import in_flight
from unhang.analysis.lives.life import Lives
from unhang.analysis.matching.collectives import Disagreement
from unhang.analysis.matching.roots import Root
from unhang.analysis.matching.wait_graph import Edge
from unhang.analysis.rules.by_stacks import other_meeting
from unhang.analysis.rules.call_mismatch import explain_disagreement
from unhang.analysis.rules.device_behind import has_stopped_device
from unhang.analysis.rules.inside_enqueue import explain_inside_enqueue
from unhang.analysis.rules.left_order import explain_left_order
from unhang.analysis.rules.lock_circle import closed_by_lock
from unhang.analysis.rules.membership_mismatch import Membership, explain_membership, memberships
from unhang.analysis.rules.never_joined import explain_never_joined
from unhang.analysis.rules.not_progressing import NotMoving, explain_joined
from unhang.analysis.rules.p2p_mismatch import (
    PairMismatch,
    explain_pair_mismatch,
    explain_wrong_peer,
    pair_mismatches,
    wrong_peers,
)
from unhang.analysis.rules.p2p_unmatched import explain_unpaired
from unhang.analysis.rules.roots_apart import roots_apart
from unhang.analysis.rules.silent_rank import explain_silent
from unhang.analysis.rules.skipped_call import explain_divergence
from unhang.analysis.rules.wait_cycle import Circle, explain_cycle
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.spans import distinct, without

_MAX_IN_CIRCLE = 64
_TWO = 2
_MAX_COMPARED = 16
"""Ranks of one root whose calls are aligned with their peers'."""


def claims_of(situation: Situation, lives: Lives) -> list[Claim]:
    """Explain everything that keeps a rank waiting, in no particular order."""
    programs = RankPrograms(situation)
    versions = _stuck_versions(situation)
    mixed = _calls_of(situation, versions)
    roots = [root for root in situation.roots if not in_flight(situation, root)]
    wrong, unlike = wrong_peers(situation), _told(pair_mismatches(situation), roots)
    pairs = situation.pairs.waiting_call
    explained = {call for mismatch in unlike for call in mismatch.waiting_calls} | mixed
    explained |= {int(pairs[at]) for each in wrong for at in (each.call, each.expecting)}
    splits = [d for d in situation.disagreements.values() if d.waiting_call not in mixed]
    roots = [root for root in roots if not explained.intersection(root.waiting_calls)]
    roots += _stopped(situation, roots)
    explained |= set(situation.disagreements)
    joined = [
        root
        for root in roots
        if root.kind == "call" and not explained.intersection(root.waiting_calls)
    ]
    found = [
        *(explain_membership(situation, version) for version in versions),
        *(_of_disagreement(situation, programs, each, lives) for each in splits),
        *(explain_wrong_peer(situation, each) for each in wrong),
        *(explain_pair_mismatch(situation, mismatch) for mismatch in unlike),
        *(_of_cycle(situation, programs, root) for root in roots if root.kind == "cycle"),
        *(
            closed_by_lock(other_meeting(claim, lives, situation.book), lives, situation.book)
            for root in _absent(situation, roots)
            for claim in _of_absent(situation, programs, root)
        ),
    ]
    if found:  # what is known to be wrong may block a rank that lost its newest calls, too
        joined = [root for root in joined if not _may_be_queued(situation, root)]
    return [*found, *_of_joined(situation, programs, joined, lives)]


def _of_joined(
    situation: Situation, programs: RankPrograms, roots: Sequence[Root], lives: Lives
) -> Iterator[Claim]:
    """Calls that do not move, the different roots that ranks named, or the call left out before."""
    still: list[Root] = []
    for root in roots:
        call = root.waiting_calls[0]
        parted = _parting(situation, programs, call, _at_other_lines(situation, programs, call))
        symptoms = explain_joined(situation, [root], lives) if parted is not None else []
        if parted is None or not (parted.ranks and parted.shift) or len(symptoms) != 1:
            still.append(root)
        elif not isinstance(symptoms[0].about, NotMoving):
            yield symptoms[0]
        else:
            nodes = [situation.graph.n_ranks + call]
            claim = explain_divergence(situation, parted, call, symptoms[0], nodes)
            yield claim.doubted([Doubt.BY_ORDER])
    for claim in explain_joined(situation, still, lives):
        about = claim.about if isinstance(claim.about, NotMoving) else None
        yield roots_apart(claim, lives, situation.book, about) if about else claim


def _at_other_lines(situation: Situation, programs: RankPrograms, call: int) -> list[int]:
    """Of ranks in one call, the few that make it from another line than most.

    What may differ in size from rank to rank, as an all_to_all does, shows by that alone that it
    is another call.
    """
    if call >= situation.heads.n_collective:
        return []
    inside = situation.heads.inside(call)
    lines = programs.lines_of(situation.heads.row[inside])
    kinds, times = np.unique(lines, return_counts=True)
    if 2 * times.max() <= len(inside):
        return []
    few: list[int] = inside[lines != kinds[times.argmax()]].tolist()
    return few


def _told(unlike: Iterable[PairMismatch], roots: Iterable[Root]) -> list[PairMismatch]:
    """Sends and receives that disagree; about tags only where both sides wait for no other.

    What was made in advance has another tag until its counterpart comes.
    """
    held = {call for root in roots if root.kind != "ranks" for call in root.waiting_calls}
    return [each for each in unlike if each.what != "tag" or held.issuperset(each.waiting_calls)]


def _may_be_queued(situation: Situation, root: Root) -> bool:
    """Whether a member of a call has a dump that was cut short, so that its head is unknown."""
    call = root.waiting_calls[0]
    if call >= situation.heads.n_collective:
        return False
    rest = without(situation.members(call), situation.heads.inside(call))
    return bool(situation.cut[rest].any())


def _stuck_versions(situation: Situation) -> list[Membership]:
    """Disagreements about members of groups in which a rank waits."""
    waiting = {situation.evidence.group_of(c) for c in situation.heads.channel.tolist()}
    return [each for each in memberships(situation.evidence) if waiting.intersection(each.groups)]


def _calls_of(situation: Situation, versions: Sequence[Membership]) -> set[int]:
    """Waiting calls of groups about whose members ranks disagree."""
    groups = {number for version in versions for number in version.groups}
    channels = enumerate(situation.heads.channel.tolist())
    return {call for call, channel in channels if situation.evidence.group_of(channel) in groups}


def _stopped(situation: Situation, roots: Iterable[Root]) -> Iterator[Root]:
    """Calls that wait for ranks without a dump, in which a rank is whose device has stopped.

    It is behind what its peers have finished elsewhere: it is the reason, not those who are silent.
    """
    silent = [r for root in roots if root.edge == Edge.UNKNOWN for r in root.ranks]
    blame = situation.graph.blame
    waiting = blame.waiting_call[np.isin(blame.rank, silent) & (blame.kind == Edge.UNKNOWN)]
    for call in distinct(waiting).tolist():
        inside = tuple(situation.heads.inside(call).tolist())
        if has_stopped_device(situation, inside):
            yield Root("call", inside, (call,))


def _of_disagreement(
    situation: Situation, programs: RankPrograms, found: Disagreement, lives: Lives
) -> Claim:
    """A call that does not fit, or the earlier one that made it so."""
    odd = found.odd_ranks or [rank for side in found.sides[1:] for rank in side.ranks]
    symptom = explain_disagreement(situation, found)
    suspects = situation.evidence.ranks.index_of(odd).tolist()
    divergence = _parting(situation, programs, found.waiting_call, suspects)
    if divergence is None or not divergence.shift:
        divergence = divergence_from_role(programs, suspects[:_MAX_COMPARED])
    if divergence is None or not divergence.shift:
        if not found.majority:
            symptom = _of_tie(situation, programs, found, symptom)
        unknown = found.roots is not None and not symptom.culprits
        return roots_apart(symptom, lives, situation.book) if unknown else symptom
    node = situation.graph.n_ranks + found.waiting_call
    return explain_divergence(situation, divergence, found.waiting_call, symptom, [node])


def _of_tie(
    situation: Situation, programs: RankPrograms, found: Disagreement, symptom: Claim
) -> Claim:
    """A call about which two ranks disagree, or the one of them that left its own order there."""
    ranks = [rank for side in found.sides for rank in side.ranks]
    breaks = [
        break_of(programs, rank) for rank in situation.evidence.ranks.index_of(ranks).tolist()
    ]
    left = [each for each in breaks if each is not None]
    if len(ranks) != _TWO or len(left) != 1:
        return symptom
    if left[0].instead != situation.heads.row[left[0].rank] or _is_same_call(situation, left[0]):
        return symptom
    call = found.waiting_call
    if not is_asked_for(situation, left[0].usual, call):
        call = _other_that_asks(situation, left[0])
    if call < 0:
        return symptom
    claim = explain_left_order(situation, left[0], call, symptom, queued=False)
    return claim.doubted([Doubt.MADE_ALONE] if left[0].is_new else [])


def _is_same_call(situation: Situation, left: Break) -> bool:
    """Whether it made the usual call with other sizes: so it left out none and made none more."""
    calls = situation.evidence.case.calls
    usual, instead = left.usual, left.instead
    columns = calls.name, calls.stack, calls.group
    return all(bool(column[usual] == column[instead]) for column in columns)


def _other_that_asks(situation: Situation, left: Break) -> int:
    """The call of another group in which others wait for the one that a rank used to make; or -1.

    Who calls on the wrong group disturbs the one, and is missing in the other.
    """
    for call in range(situation.heads.n_collective):
        missing = left.rank in situation.members(call).tolist()
        missing = missing and left.rank not in situation.heads.inside(call).tolist()
        if missing and is_asked_for(situation, left.usual, call):
            return call
    return -1


def _of_absent(situation: Situation, programs: RankPrograms, root: Root) -> Iterator[Claim]:
    """Ranks that others wait for: those that left out a call before, and the rest."""
    left, call = root, root.waiting_calls[0]
    if root.edge == Edge.NOT_CALLED:
        divergence = _parting(situation, programs, call, root.ranks)
        waiting = situation.heads.inside(call).tolist()
        if divergence is None and len(waiting) < len(root.ranks):
            # Few wait for many: perhaps the few made a call too many.
            divergence = divergence_from_role(programs, waiting[:_MAX_COMPARED])
        alone = divergence is None or not divergence.shift
        if alone:
            divergence = made_alone(programs, call)
        if divergence is not None and divergence.shift:
            symptom = _explain_absent(situation, root)
            claim = explain_divergence(situation, divergence, call, symptom, root.ranks)
            yield claim.doubted([Doubt.MADE_ALONE] if alone else [])
            waiting_parted = not set(root.ranks) & set(divergence.suspects)
            parted = root.ranks if waiting_parted else divergence.suspects
            left = replace(root, ranks=tuple(r for r in root.ranks if r not in parted))
    if left.ranks:
        told = _explain_absent(situation, left)
        if not told.culprits:
            yield from _in_other_calls(situation, left)
        yield told


def _explain_absent(situation: Situation, root: Root) -> Claim:
    """Explain a root made of ranks that wait for no other rank."""
    if root.edge == Edge.UNKNOWN:
        return explain_silent(situation, root)
    if root.edge == Edge.NOT_LAUNCHED:
        return explain_inside_enqueue(situation, root)
    if root.edge in (Edge.UNPAIRED, Edge.ANY_SOURCE):
        return explain_unpaired(situation, root)
    return explain_never_joined(situation, root)


def _in_other_calls(situation: Situation, root: Root) -> Iterator[Claim]:
    """Who of the ranks that one call does not blame is missing in another one."""
    blame = situation.graph.blame
    here = np.isin(blame.rank, root.ranks) & (blame.kind == Edge.NOT_CALLED)
    here &= ~np.isin(blame.waiting_call, root.waiting_calls)
    for call in distinct(blame.waiting_call[here]).tolist()[:_MAX_COMPARED]:
        ranks = tuple(distinct(blame.rank[here & (blame.waiting_call == call)]).tolist())
        claim = _explain_absent(situation, replace(root, ranks=ranks, waiting_calls=(call,)))
        if claim.culprits:
            yield claim


def _of_cycle(situation: Situation, programs: RankPrograms, root: Root) -> Claim:
    """A circle, or the call left out by one of its ranks that closed it."""
    symptom = explain_cycle(situation, root)
    blame = situation.graph.blame
    inside = np.isin(blame.waiting_call, root.waiting_calls) & np.isin(blame.rank, root.ranks)
    inside &= blame.kind == Edge.NOT_CALLED
    for at in np.flatnonzero(inside)[:_MAX_COMPARED].tolist():
        call, rank = int(blame.waiting_call[at]), int(blame.rank[at])
        divergence = _parting(situation, programs, call, [rank])
        if divergence is not None and divergence.shift:
            return explain_divergence(situation, divergence, call, symptom, root.ranks)
    parted = divergence_from_role(programs, root.ranks[:_MAX_IN_CIRCLE])
    if parted is not None:
        return explain_divergence(situation, parted, root.waiting_calls[0], symptom, root.ranks)
    return _of_breaking(situation, programs, root, _of_order(situation, programs, root, symptom))


def _of_breaking(situation: Situation, programs: RankPrograms, root: Root, told: Claim) -> Claim:
    """The call that a rank passed over which alone is in every loop of a circle, if peers show it.

    Where several are in all, as two are who wait for each other, the only one that passed over a
    call by the order of most ranks of its role. Whether it would have made the call later, its
    host, which waits, does not tell.
    """
    if not isinstance(told.about, Circle):
        return told
    few = told.about.ranks if len(told.about.ranks) <= _MAX_COMPARED else ()
    ranks = situation.evidence.ranks.index_of(list(told.about.breaking or few)).tolist()
    parted = [divergence_from_role(programs, [rank], blocked=True) for rank in ranks]
    found = [each for each in parted if each is not None]
    if len(found) != 1:
        return told
    claim = explain_divergence(situation, found[0], root.waiting_calls[0], told, root.ranks)
    return claim.doubted([Doubt.BY_ORDER])


def _of_order(situation: Situation, programs: RankPrograms, root: Root, symptom: Claim) -> Claim:
    """A circle, or the one of its ranks that left its own order where another waits for it."""
    blame = situation.graph.blame
    inside = np.isin(blame.waiting_call, root.waiting_calls) & np.isin(blame.rank, root.ranks)
    inside &= np.isin(blame.kind, (Edge.NOT_CALLED, Edge.UNPAIRED, Edge.QUEUED))
    if len(root.ranks) > _MAX_COMPARED:
        return symptom
    if (short := _of_counts(situation, programs, np.flatnonzero(inside).tolist())) is not None:
        left, at = short
        queued = bool(blame.kind[at] == Edge.QUEUED)
        return explain_left_order(
            situation, left, int(blame.waiting_call[at]), symptom, queued=queued
        )
    for left in _breaks(programs, root, distinct(blame.rank[inside]).tolist()):
        for at in np.flatnonzero(inside & (blame.rank == left.rank)).tolist():
            call = int(blame.waiting_call[at])
            if is_asked_for(situation, left.usual, call):
                queued = bool(blame.kind[at] == Edge.QUEUED)
                return explain_left_order(situation, left, call, symptom, queued=queued)
    inside &= blame.kind == Edge.UNPAIRED
    calls = [(int(blame.rank[at]), int(blame.waiting_call[at])) for at in np.flatnonzero(inside)]
    passed = [(_passed_over(situation, programs, rank, call), call) for rank, call in calls]
    found = [(each, call) for each, call in passed if each is not None]
    if len({each.rank for each, _ in found}) != 1:
        return symptom
    # Where its peers have left their order, too, the program has gone on to another part.
    peers = [rank for rank, _ in calls if rank != found[0][0].rank]
    if any(break_of(programs, rank) is not None for rank in peers):
        return symptom
    return explain_left_order(situation, *found[0], symptom, queued=False)


def _of_counts(
    situation: Situation, programs: RankPrograms, edges: Sequence[int]
) -> tuple[Break, int] | None:
    """The only rank that made fewer exchanges in a step than ever, or more.

    With an edge of the waiting in which another waits for it.
    """
    blame = situation.graph.blame
    counted = [
        (step_break_of(programs, int(blame.rank[at]), int(blame.waiting_call[at])), at)
        for at in edges
    ]
    found = [(left, at) for left, at in counted if left is not None]
    if len({left.rank for left, _ in found}) != 1:
        return None
    left = found[0][0]
    kept = (at for at in (found[0][1], *edges) if int(blame.rank[at]) == left.rank)
    return next(((left, at) for at in kept), None)


def _passed_over(
    situation: Situation, programs: RankPrograms, rank: int, call: int
) -> Break | None:
    """Where a rank has not made the send or receive for which another waits, as it always had."""
    return break_without(programs, rank, lambda row: would_meet(situation, row, call))


def _breaks(programs: RankPrograms, root: Root, ranks: Sequence[int]) -> Iterator[Break]:
    """Where the only one of a circle left its order: by its habit, or by iterations of its loop."""
    breaks = [each for rank in ranks if (each := break_of(programs, rank)) is not None]
    if len(breaks) == 1:
        yield breaks[0]
    turns = turn_break_of(programs, root.ranks)
    if turns is not None and (turns.times > 1 or not breaks):
        yield turns


def _parting(
    situation: Situation, programs: RankPrograms, call: int, suspects: Sequence[int]
) -> Divergence | None:
    if not suspects or call >= situation.heads.n_collective:
        return None
    channel = int(situation.heads.channel[call])
    return divergence_of(programs, channel, suspects[:_MAX_COMPARED])


def _absent(situation: Situation, roots: Iterable[Root]) -> list[Root]:
    """Roots made of ranks, the silent ones together: the call that most of them keep waiting."""
    absent = [root for root in roots if root.kind == "ranks"]
    silent = [root for root in absent if root.edge == Edge.UNKNOWN]
    outdated = [root for root in silent if set(root.ranks) <= set(situation.outdated.tolist())]
    gone = [root for root in silent if root not in outdated]
    rest = [root for root in absent if root.edge != Edge.UNKNOWN]
    return rest + [_together(roots) for roots in (gone, outdated) if roots]


def _together(roots: list[Root]) -> Root:
    """One root for all: the call that waits for most of them first."""
    ordered = sorted(roots, key=lambda root: (-len(root.ranks), root.waiting_calls[0]))
    ranks = sorted({rank for root in roots for rank in root.ranks})
    calls = dict.fromkeys(call for root in ordered for call in root.waiting_calls)
    return Root("ranks", tuple(ranks), tuple(calls), ordered[0].edge, ordered[0].known)
