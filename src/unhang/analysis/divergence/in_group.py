"""The first call in which a rank parted from its peers, perhaps a thousand calls before the hang.

A call that a rank left out makes all later calls meet the wrong ones; what is seen at the end is a
mismatch of sizes, or a last call that the rank never makes. Its calls in the group are aligned with
those of its peers inside the window that both show. The majority is right; two ranks are none, and
of them the one that kept to what had always come next is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.divergence.align import Edit, edits
from unhang.analysis.divergence.programs import RankProgram, RankPrograms
from unhang.analysis.divergence.rhythm import keeps_its_order
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.progress import Stage

_MAX_PEERS = 16
_A_HABIT = 2
"""Calls of a rank in a group before one that looks like none of them."""
_TWO = 2


class Divergence(Struct, frozen=True):
    """Where ranks parted from their peers.

    Attributes:
        kind: "missing": the ranks lack a call; "extra": they have one too many.
        ranks: Indices of ranks that parted; none where it cannot be said which side is wrong.
        peers: Indices of ranks that agree with each other.
        row: The call in question: a peer's where it is missing, the rank's own where it is extra.
        instead: The rank's next call where one is missing, a peer's where it is extra; -1 if none.
        shift: By how many calls the two sides differ in the end.
        before_window: It is the first call that both show, so it may have been earlier.
        suspects: The ranks that were compared, blamed or not.
        by_habit: No majority tells who parted, but what each had always called next.
    """

    kind: str
    ranks: tuple[int, ...]
    peers: tuple[int, ...]
    row: int
    instead: int
    shift: int
    before_window: bool
    suspects: tuple[int, ...]
    by_habit: bool = False


def divergence_of(
    programs: RankPrograms, channel: int, suspects: Sequence[int]
) -> Divergence | None:
    """Compare the members of a channel with each other.

    Args:
        programs: Of the case.
        channel: Where ranks are suspected.
        suspects: Indices of ranks that are surely compared; of the others a bounded number is.

    Returns:
        The earliest difference, or None where there is none in the window, or where the channel's
        group may be several.
    """
    if programs.situation.may_be_several(channel):
        return None
    own = [program for rank in suspects if len((program := programs.of(rank, channel)).rows)]
    peers = programs.peers(channel, suspects, _MAX_PEERS)
    if not own or not peers:
        return None
    members = [*own, *peers]
    reference, agreeing = _reference(programs, members)
    if 2 * len(agreeing) > len(members):
        return _parted(programs, members, reference, agreeing, blame=True)
    kin = [p for other in programs.kin(channel) for p in programs.peers(other, (), _MAX_PEERS)]
    kin = kin[:_MAX_PEERS]
    if len(kin) > 1:
        reference, agreeing = _reference(programs, kin)
        if 2 * len(agreeing) > len(kin):
            return _against_kin(programs, members, reference)
    habit = _of_two(programs, members) if len(members) == _TWO else None
    return habit or _parted(programs, own, peers[0], (peers[0].rank,), blame=False)


def made_alone(programs: RankPrograms, waiting_call: int) -> Divergence | None:
    """A call that one rank alone has made, and whose like no rank made before, as one too many.

    Only where one of the others has gone on without it, or where nothing at all was seen of them.
    Those that are seen stand in their own code, before that call as far as anything tells: a lock,
    a key, a long evaluation keeps all but one rank as well as it keeps one. They are late, however
    many they are.
    """
    situation = programs.situation
    inside = situation.heads.inside(waiting_call)
    members, stages = situation.stages(waiting_call)
    absent = members[stages == Stage.NOT_CALLED]
    if len(inside) != 1 or len(absent) < _A_HABIT or len(absent) != len(members) - 1:
        return None
    rank, channel = int(inside[0]), int(situation.heads.channel[waiting_call])
    mine = programs.of(rank, channel)
    at = int(np.searchsorted(mine.rows, situation.heads.row[rank]))
    calls = programs.calls(mine).strict
    others = [programs.calls(programs.of(other, channel)).strict for other in absent[:_MAX_PEERS]]
    if at == 0 or any(calls[at] in known for known in (calls[:at], *others)):
        return None
    unseen = not (situation.evidence.case.samples or situation.placed_now(absent)[0])
    if not (unseen and at >= _A_HABIT) and not _is_passed(situation, rank, absent):
        return None
    row, peers = int(mine.rows[at]), tuple(absent.tolist())
    return Divergence("extra", (rank,), peers, row, -1, -1, before_window=False, suspects=(rank,))


def _is_passed(situation: Situation, rank: int, absent: Ints) -> bool:
    """Whether a rank went on without a call that one rank alone is in, and cannot be just late.

    It waits for that rank elsewhere, or has met it in what that rank made behind the call.
    """
    distance = situation.graph.reaching(np.asarray([rank], np.int64))
    if (distance[absent] > 0).any():
        return True
    evidence, head = situation.evidence, int(situation.heads.row[rank])
    calls = evidence.case.calls
    rows = np.arange(head + 1, evidence.case.dumps[int(calls.dump[head])].stop)
    rows = rows[evidence.finished[rows]]
    numbers = set(evidence.ranks.numbers[absent].tolist())
    met = (_met_in(situation, int(row)) for row in rows)
    return any(numbers & ranks for ranks in met)


def _met_in(situation: Situation, row: int) -> set[int]:
    """Global ranks without which a call of a rank would not have finished."""
    case = situation.evidence.case
    name = case.names[int(case.calls.name[row])]
    members = case.groups[int(case.calls.group[row])].members
    if situation.evidence.collective[row]:
        return (
            set(members) if situation.evidence.names.synchronising[case.calls.name[row]] else set()
        )
    return {members[at] for at in (name.src, name.dst) if 0 <= at < len(members)}


def _reference(
    programs: RankPrograms, members: Sequence[RankProgram]
) -> tuple[RankProgram, tuple[int, ...]]:
    """The member with the widest window among the largest set that agrees, and that set."""
    best: tuple[RankProgram, tuple[int, ...]] = members[0], ()
    tried: set[int] = set()
    for candidate in sorted(members, key=lambda program: (int(program.seqs[0]), program.rank)):
        if candidate.rank in tried or len(tried) > _MAX_PEERS:
            continue
        agreeing = tuple(
            program.rank for program in members if not _differences(programs, program, candidate)[0]
        )
        tried.update(agreeing)
        if len(agreeing) > len(best[1]):
            best = candidate, agreeing
        if 2 * len(agreeing) > len(members):
            break
    return best


def _differences(
    programs: RankPrograms, mine: RankProgram, theirs: RankProgram
) -> tuple[list[Edit], RankProgram, RankProgram]:
    """Edits between two programs from the first call that both windows show."""
    start = max(int(mine.seqs[0]), int(theirs.seqs[0]))
    mine, theirs = mine.since(start), theirs.since(start)
    found = edits(programs.calls(mine), programs.calls(theirs))
    return [edit for edit in found if edit.kind != "changed"], mine, theirs


class _Parting(Struct, frozen=True):
    edit: Edit
    row: int
    instead: int
    shift: int
    before_window: bool


def _first(programs: RankPrograms, mine: RankProgram, theirs: RankProgram) -> _Parting | None:
    found, mine, theirs = _differences(programs, mine, theirs)
    if not found:
        return None
    edit = found[0]
    shift = sum(1 if each.kind == "missing" else -1 for each in found)
    own = int(mine.rows[edit.mine]) if edit.mine < len(mine.rows) else -1
    other = int(theirs.rows[edit.theirs]) if edit.theirs < len(theirs.rows) else -1
    row, instead = (other, own) if edit.kind == "missing" else (own, other)
    wrapped = int(mine.seqs[0]) > 1 and edit.mine == 0 and edit.theirs == 0
    return _Parting(edit, row, instead, shift, wrapped)


def _parted(
    programs: RankPrograms,
    members: Sequence[RankProgram],
    reference: RankProgram,
    agreeing: tuple[int, ...],
    *,
    blame: bool,
) -> Divergence | None:
    """The first difference of any member to the reference."""
    found = [(p.rank, _first(programs, p, reference)) for p in members if p.rank not in agreeing]
    parted = [(rank, parting) for rank, parting in found if parting is not None]
    if not parted:
        return None
    first = min(parted, key=lambda item: (item[1].edit.theirs, item[0]))[1]
    same = tuple(sorted(rank for rank, parting in parted if parting.edit == first.edit))
    return Divergence(
        kind=first.edit.kind,
        ranks=same if blame else (),
        peers=agreeing,
        row=first.row,
        instead=first.instead,
        shift=first.shift,
        before_window=first.before_window,
        suspects=same,
    )


def _of_two(programs: RankPrograms, members: Sequence[RankProgram]) -> Divergence | None:
    """The first difference of two, where one of them alone left the order that both had kept."""
    found, *sides = _differences(programs, *members)
    if not found:
        return None
    places = (found[0].mine, found[0].theirs)
    calls = [programs.calls(side).strict for side in sides]
    kept = [keeps_its_order(*each) for each in zip(calls, places, strict=True)]
    if None in kept or kept[0] == kept[1]:
        return None
    left, right = members if kept[1] else members[::-1]
    parted = _parted(programs, [left], right, (right.rank,), blame=True)
    return replace(parted, by_habit=True) if parted is not None else None


def _against_kin(
    programs: RankPrograms, members: Sequence[RankProgram], reference: RankProgram
) -> Divergence | None:
    """Let the kin of a group decide which of its few members parted from the program."""
    straight = tuple(p.rank for p in members if _first(programs, p, reference) is None)
    return _parted(programs, members, reference, straight, blame=True) if straight else None
