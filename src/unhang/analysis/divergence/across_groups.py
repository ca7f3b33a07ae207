"""The first call in which a rank parted from ranks of its role, over all of its groups together.

A call left out in one group shows at once in another: the rank goes on to calls that its peers
have not reached. Inside each group the numbers still agree then, so whole programs are compared,
with ranks that run the same program (the same kinds of groups, the same sends and receives). What
waiting peers would call next is taken from what came next before, since programs are loops. Two
calls that changed places are a matter of order and no call left out, and so is what several ranks
did alike: then the order of their groups is crossed, and no rank is to blame. A rank's last call is
one too many where it is the call before it once more, and no rank makes that call twice in a row.

Ranks of one role in different groups need not make the same calls: one group may rebalance where
another does not. A rank parted only if those who had to make the call with it did not do so too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from unhang.analysis.divergence.align import CallSequence, Edit, continued, edits
from unhang.analysis.divergence.in_group import Divergence
from unhang.analysis.divergence.programs import RankProgram, RankPrograms

_MAX_PEERS = 8
_MAX_LOOKED_AT = 256
_GONE_ON = {"missing": 3, "extra": 2}
"""Calls of a rank from the difference on that show that it went on without, or after, the call."""
_BLOCKED = {"missing": 1, "extra": 1}
"""The same of a rank about which it is known that it left the order of all others."""


def divergence_from_role(
    programs: RankPrograms, suspects: Sequence[int], *, blocked: bool = False
) -> Divergence | None:
    """The first of some ranks (indices) that parted from most ranks of its role; None for none.

    Args:
        programs: Of the case.
        suspects: Indices of ranks.
        blocked: They cannot have gone on, and are known to have left the order of the others.
    """
    gone_on = _BLOCKED if blocked else _GONE_ON
    for rank in suspects:
        mine = programs.whole(rank)
        if mine is None or not len(mine.rows):
            continue
        peers = _of_same_role(programs, rank)
        partings = [(peer, _parting(programs, mine, peer, gone_on)) for peer in peers]
        against = [(peer, parting) for peer, parting in partings if parting is not None]
        if len(peers) > 1 and 2 * len(against) > len(peers) + 1:
            reference, first = against[0]
            if _done_by_its_group(programs, mine, reference, first):
                continue
            alike = [peer for peer, parting in partings if parting is None]
            if _done_by_another(programs, mine, alike, against[0]):
                continue
            return _divergence(mine, reference, first, tuple(peer.rank for peer, _ in against))
    return None


def _of_same_role(programs: RankPrograms, rank: int) -> list[RankProgram]:
    role = programs.role(rank)
    found: list[RankProgram] = []
    count = len(programs.situation.evidence.ranks)
    for other in range(min(count, _MAX_LOOKED_AT)):
        if other != rank and len(found) < _MAX_PEERS and programs.role(other) == role:
            program = programs.whole(other)
            if program is not None:
                found.append(program)
    return found


def _parting(
    programs: RankPrograms,
    mine: RankProgram,
    theirs: RankProgram,
    gone_on: Mapping[str, int] = _GONE_ON,
) -> Edit | None:
    """The first call left out or made too often, unless calls merely changed places."""
    calls, others = programs.calls(mine), programs.calls(theirs)
    if _ends_in_repetition(calls, others) and not _made_by_a_fellow(programs, mine):
        return Edit("extra", len(calls) - 1, len(calls) - 1)
    left, right = continued(calls), continued(others)
    found = [edit for edit in edits(left, right) if edit.kind != "changed"]
    if not found or found[0].mine >= len(mine.rows) or found[0].theirs >= len(theirs.rows):
        return None
    first = found[0]

    def call(edit: Edit) -> int:
        return int(left.loose[edit.mine] if edit.kind == "extra" else right.loose[edit.theirs])

    moved = any(edit.kind != first.kind and call(edit) == call(first) for edit in found[1:])
    moved |= _reordered(calls, others, first)
    if first.kind == "extra" and not programs.situation.evidence.collective[mine.rows[first.mine]]:
        return None  # a send too many may as well be one to the wrong peer
    enough = len(mine.rows) - first.mine >= gone_on[first.kind]
    return first if enough and not moved else None


def _reordered(mine: CallSequence, theirs: CallSequence, first: Edit) -> bool:
    """Whether both sides have made the same calls since, in another order: none lacks any."""
    most = min(len(mine) - first.mine, len(theirs) - first.theirs)
    left = np.sort(mine.strict[first.mine : first.mine + most])
    right = np.sort(theirs.strict[first.theirs : first.theirs + most])
    return bool(np.array_equal(left, right))


def _done_by_another(
    programs: RankPrograms,
    mine: RankProgram,
    alike: list[RankProgram],
    against: tuple[RankProgram, Edit],
) -> bool:
    """Whether another rank, of its role or its group, parted from the reference where it did."""
    reference, first = against
    group = int(programs.situation.evidence.case.calls.group[_row(mine, reference, first)])
    fellows = map(programs.whole, _fellows(programs, mine.rank, group))
    for other in (*alike, *(each for each in fellows if each is not None)):
        edit = _parting(programs, other, reference)
        if edit is not None and (edit.kind, edit.mine) == (first.kind, first.mine):
            return True
    return False


def _ends_in_repetition(mine: CallSequence, theirs: CallSequence) -> bool:
    """Whether the last call repeats the one before it, where the peer went on to another one."""
    last = len(mine) - 1
    if not 0 < last < len(theirs) or not np.array_equal(mine.strict[:last], theirs.strict[:last]):
        return False
    again = mine.strict[last]
    twice = [(calls.strict[1:] == again) & (calls.strict[:-1] == again) for calls in (mine, theirs)]
    usual = twice[0][:-1].any() or twice[1].any()
    return bool(twice[0][-1] and not usual and theirs.loose[last] != mine.loose[last])


def _made_by_a_fellow(programs: RankPrograms, mine: RankProgram) -> bool:
    """Whether another member of its group has made a rank's last call too, under its number.

    Without lines, its own call of that number may be another one.
    """
    evidence, row = programs.situation.evidence, int(mine.rows[-1])
    if not evidence.collective[row] or evidence.case.calls.stack[row] < 0:
        return False
    channel, seq = _identity(programs, row)
    call = programs.calls(mine).strict[-1]
    members = evidence.members(channel)
    for other in members[(members >= 0) & (members != mine.rank)][:_MAX_PEERS].tolist():
        theirs = programs.of(other, channel)
        if call in programs.calls(theirs).strict[theirs.seqs == seq]:
            return True
    return False


def _done_by_its_group(
    programs: RankPrograms, mine: RankProgram, theirs: RankProgram, first: Edit
) -> bool:
    """Whether most members of the group of a collective call parted in it as this rank did."""
    evidence = programs.situation.evidence
    row = _row(mine, theirs, first)
    if not evidence.collective[row]:
        return False
    fellows = _fellows(programs, mine.rank, int(evidence.case.calls.group[row]))
    known = [program for rank in fellows if (program := programs.whole(rank)) is not None]
    call = _identity(programs, row)
    same = 1  # the rank itself
    for program in known:
        other = _parting(programs, program, theirs)
        if other is not None and other.kind == first.kind:
            same += _identity(programs, _row(program, theirs, other)) == call
    return 2 * same > 1 + len(known)


def _row(mine: RankProgram, theirs: RankProgram, edit: Edit) -> int:
    """The call in question: a peer's where it is missing, the rank's own where it is extra."""
    return int(theirs.rows[edit.theirs] if edit.kind == "missing" else mine.rows[edit.mine])


def _identity(programs: RankPrograms, row: int) -> tuple[int, int]:
    """Channel and number of a collective call."""
    evidence = programs.situation.evidence
    channel = int(evidence.channel(np.asarray([row]))[0])
    return channel, int(evidence.case.calls.seq[row])


def _fellows(programs: RankPrograms, rank: int, group: int) -> list[int]:
    """Some other members (indices) of the groups of one kind that a rank is in."""
    evidence = programs.situation.evidence
    groups = evidence.case.groups
    kind, number = groups[group], int(evidence.ranks.numbers[rank])
    members = {
        member
        for each in groups
        if (each.description, each.size) == (kind.description, kind.size) and number in each.members
        for member in each.members
    }
    indices = evidence.ranks.index_of(sorted(members - {number}))
    found: list[int] = indices[indices >= 0].tolist()
    return found[:_MAX_PEERS]


def _divergence(
    mine: RankProgram, theirs: RankProgram, first: Edit, peers: tuple[int, ...]
) -> Divergence:
    missing = first.kind == "missing"
    own, other = int(mine.rows[first.mine]), int(theirs.rows[first.theirs])
    return Divergence(
        kind=first.kind,
        ranks=(mine.rank,),
        peers=peers,
        row=other if missing else own,
        instead=own if missing else other,
        shift=1 if missing else -1,
        before_window=False,
        suspects=(mine.rank,),
    )
