"""Calls side by side: the last ones of each rank, aligned by group and number, equal ranks folded.

Whether a call has finished, or was not made, is what the analysis says. The groups that the causes
are about have columns of their own. All other groups of one description and size share columns, so
that ranks of different tensor-parallel groups can be compared; they are not told to differ.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from unhang.analysis.picture.alignment import (
    ROWS_AT_MOST,
    Made,
    Turn,
    in_order,
    kept,
    last_rows,
    state_of,
)
from unhang.analysis.picture.waits import call_of_verdict
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.columns import Ints
from unhang.analysis.state.progress import Stage
from unhang.model import Group
from unhang.picture import Cell, CellState, Lane, Slot
from unhang.report import Finding, GroupRef, Report
from unhang.stacks.ownership import shown_frame
from unhang.wording import count_of, rank_phrase

_MOST_CALLS = 60
_MOST_LANES = 24
_STATUS_ORDER = ("culprit", "silent", "unreadable", "behind", "ahead", "unknown", "waiting")


class _Mark(NamedTuple):
    """The call of the verdict: its turn, and its group by index."""

    turn: Turn
    group: int


_Folded: TypeAlias = tuple[tuple[str, tuple[Made, ...]], list[int]]


class _Frame(NamedTuple):
    """What cells are compared with.

    Attributes:
        at: The column of each turn that is drawn.
        kin: By group.
        mark: The call of the verdict: of each member of its group it is drawn what it did there.
        usual: Name and signature that most members of a group have at a number.
        blamed: Groups that causes are about: only in these a call is marked as unlike others.
        lacks: Whether there is a cause: else a call that was not made is none that is missed.
    """

    at: Mapping[Turn, int]
    kin: Sequence[int]
    mark: Turn | None
    usual: Mapping[tuple[int, int], tuple[int, int]]
    blamed: frozenset[int]
    lacks: bool


def lanes(
    situation: Situation, report: Report, status: Mapping[int, str]
) -> tuple[tuple[Slot, ...], tuple[Lane, ...], str]:
    """Align the last calls of all ranks.

    Returns:
        Columns in program order, a lane for ranks that made the same calls, and what is left out.
    """
    kin, labels = _kin(situation, _told_groups(situation, report.findings[:1]))
    marked = _marked(situation, report, kin)
    mark = marked.turn if marked else None
    folded, rows_of = _folded(situation, status, kin, marked)
    ordered = sorted(folded.items(), key=lambda item: _place(item, report, mark))
    shown = ordered[:_MOST_LANES]
    turns = in_order([made for (_, made), _ in shown])
    if mark is not None and mark not in turns:
        turns.append(mark)
    drawn = kept(turns, mark)
    frame = _Frame(
        at={turn: place for place, turn in enumerate(drawn)},
        kin=kin,
        mark=mark,
        usual=_usual(situation, shown, rows_of),
        blamed=_told_groups(situation, report.causes),
        lacks=bool(report.causes),
    )
    columns = tuple(Slot(labels[t.kin], t.number, t == mark, t.p2p) for t in drawn)
    found = tuple(_drawn(situation, shown, rows_of, frame))
    rest = sum(len(ranks) for _, ranks in ordered[_MOST_LANES:])
    rest += sum(len(lane.ranks) for lane in found[_MOST_LANES:])
    said = f"Lanes of {count_of(rest, 'more rank')} are not drawn." if rest else ""
    return columns, found[:_MOST_LANES], said


def _folded(
    situation: Situation, status: Mapping[int, str], kin: Sequence[int], mark: _Mark | None
) -> tuple[dict[tuple[str, tuple[Made, ...]], list[int]], dict[int, list[int]]]:
    """Ranks of one status that made the same calls, and the rows of the first of each."""
    ranks = situation.evidence.ranks
    last = max(min(_MOST_CALLS, ROWS_AT_MOST // max(len(ranks), 1)), 8)
    folded: dict[tuple[str, tuple[Made, ...]], list[int]] = defaultdict(list)
    rows_of: dict[int, list[int]] = {}
    numbers = ranks.numbers.tolist()
    meant = _rows_at(situation, mark) if mark else {}
    for index, window in last_rows(situation, last):
        rank, at = numbers[index], meant.get(index, -1)
        rows = window if at < 0 or at in window else [at, *window]
        head = int(situation.heads.row[index])
        made = tuple(_made(situation, row, kin, head) for row in rows)
        own = folded[status.get(rank, ""), made]
        if not own:
            rows_of[rank] = rows
        own.append(rank)
    return folded, rows_of


def _rows_at(situation: Situation, mark: _Mark) -> dict[int, int]:
    """The row of the verdict's call, by index of the rank: it may lie before the last ones."""
    evidence = situation.evidence
    calls = evidence.case.calls
    here = (calls.group == mark.group) & (calls.seq == mark.turn.number) & evidence.collective
    rows = np.flatnonzero(here)
    rows = rows[evidence.counts[calls.dump[rows]]]
    return dict(zip(evidence.owner_of(rows).tolist(), rows.tolist(), strict=True))


def _place(lane: _Folded, report: Report, mark: Turn | None) -> tuple[object, ...]:
    """Culprits of the verdict first, then those who are in its call, then who waits behind.

    Where no rank is at fault, the loop that the report tells comes first.
    """
    (state, made), ranks = lane
    first = report.findings[0] if report.findings else None
    culprits = set(first.culprits or first.loop) if first else set()
    victims = set(first.victims) if first else set()
    inside = any(each.turn == mark and each.state != "finished" for each in made)
    return (
        culprits.isdisjoint(ranks), not inside, _order(state), victims.isdisjoint(ranks),
        -len(ranks), ranks,
    )  # fmt: skip


def _told_groups(situation: Situation, findings: Sequence[Finding]) -> frozenset[int]:
    """The groups that findings and their calls name, by index."""
    return frozenset(
        at
        for finding in findings
        for ref, ranks in _refs(finding)
        for at, group in enumerate(situation.evidence.case.groups)
        if _is_meant(group, ref, ranks)
    )


def _refs(finding: Finding) -> Iterator[tuple[GroupRef, set[int]]]:
    """The groups that a finding names, each with ranks that are in it."""
    for side in finding.calls:
        if side.group is not None and side.op:
            yield side.group, set(side.ranks)
    if finding.group is not None and not any(side.group for side in finding.calls):
        yield finding.group, {*finding.culprits, *finding.victims}


def _is_meant(group: Group, ref: GroupRef, ranks: set[int]) -> bool:
    """Whether it is this group: old torch gives groups of one kind one name on all ranks."""
    return GroupRef.of(group) == ref and not ranks.isdisjoint(group.members)


def _order(status: str) -> int:
    return _STATUS_ORDER.index(status) if status in _STATUS_ORDER else len(_STATUS_ORDER)


def _kin(situation: Situation, told: frozenset[int]) -> tuple[list[int], list[str]]:
    """A number for each group, the same for groups of one description and size; their names.

    Groups of `told` have one of their own: who is not a member has no part in their calls.
    """
    found: dict[tuple[str, int, int], int] = {}
    groups = situation.evidence.case.groups
    keys = [
        (_kind_of(group), group.size, at if at in told else -1) for at, group in enumerate(groups)
    ]
    kin = [found.setdefault(key, len(found)) for key in keys]
    alone = Counter(kin)
    shared = Counter(group.label for group in groups)

    def full(group: Group) -> str:
        """A label that no other group has."""
        if shared[group.label] == 1:
            return group.label
        return f"{group.label}, {rank_phrase(group.members)}"

    label = {number: full(group) for number, group in zip(kin, groups, strict=True)}
    apart = {key[:2] for key in keys if key[2] >= 0}
    names = [
        label[number]
        if alone[number] == 1
        else f"{'other ' if (name, size) in apart else ''}{name} ({size} ranks)"
        for (name, size, _), number in found.items()
    ]
    return kin, names


def _kind_of(group: Group) -> str:
    """Groups of one kind are compared; those of two backends have numbers of their own."""
    return (group.description or group.name) + f" on {group.backend}" * group.has_twin


def _made(situation: Situation, row: int, kin: Sequence[int], head: int) -> Made:
    evidence = situation.evidence
    calls = evidence.case.calls
    p2p = not evidence.collective[row]
    number = int(calls.p2p_seq[row] if p2p else calls.seq[row])
    name = int(calls.name[row])
    return Made(
        Turn(kin[int(calls.group[row])], bool(p2p), number),
        name,
        int(calls.signature[row]),
        "pending" if _is_pending(situation, row, head) else state_of(situation, row),
    )


def _is_pending(situation: Situation, row: int, head: int) -> bool:
    """Whether a call has not finished and is not what its rank waits in, as the map has it.

    Calls of one number are a batch; sends and receives next to those waited in may be of theirs.
    """
    if head < 0 or state_of(situation, row) != "open":
        return False
    calls, collective = situation.evidence.case.calls, situation.evidence.collective
    one = calls.group[row] == calls.group[head] and calls.seq[row] == calls.seq[head]
    return bool((collective[row] or collective[head]) and not one)


def _marked(situation: Situation, report: Report, kin: Sequence[int]) -> _Mark | None:
    """The call of the first finding: the one that ranks wait in, where its group has a double."""
    first = report.findings[0] if report.findings else None
    if first is None or first.group is None or first.seq is None:
        return None
    evidence = situation.evidence
    ranks = {rank for ref, own in _refs(first) if ref == first.group for rank in own}
    ranks = ranks or {*first.culprits, *first.victims}  # all sides are in other calls by now
    waiting = [int(situation.heads.channel[c]) for c in call_of_verdict(situation, report)]
    groups = list(enumerate(evidence.case.groups))
    own = [at for at, each in groups if _is_meant(each, first.group, set(first.culprits))]
    others = [at for at, each in groups if _is_meant(each, first.group, ranks)]
    meant = [evidence.group_of(channel) for channel in waiting]
    # Of groups of one name the culprit's is meant: in the others it never makes the call.
    meant = [at for at in meant if at in own] or own or meant or others
    return _Mark(Turn(kin[meant[0]], p2p=False, number=first.seq), meant[0]) if meant else None


def _usual(
    situation: Situation, shown: Sequence[_Folded], rows_of: Mapping[int, Sequence[int]]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Name and signature that most ranks have, by group and number of a collective."""
    group = situation.evidence.case.calls.group
    votes: dict[tuple[int, int], Counter[tuple[int, int]]] = defaultdict(Counter)
    for (_, made), ranks in shown:
        for each, row in zip(made, rows_of[ranks[0]], strict=True):
            if not each.turn.p2p:
                votes[int(group[row]), each.turn.number][each.name, each.signature] += len(ranks)
    return {turn: counted.most_common(1)[0][0] for turn, counted in votes.items()}


def _drawn(
    situation: Situation,
    shown: Sequence[_Folded],
    rows_of: Mapping[int, Sequence[int]],
    frame: _Frame,
) -> Iterator[Lane]:
    """Lanes with all their cells; ranks of one lane lack the same calls, too."""
    ranks = [rank for _, own in shown for rank in own]
    lacked = dict(zip(ranks, _unmade(situation, ranks, frame), strict=True))
    for (state, made), own in shown:
        cells = tuple(_cells(situation, made, rows_of[own[0]], frame))
        seen = {cell.column for cell in cells}
        apart: dict[tuple[Cell, ...], list[int]] = defaultdict(list)
        for rank in own:
            apart[tuple(cell for cell in lacked[rank] if cell.column not in seen)].append(rank)
        for unmade, same in apart.items():
            yield Lane(tuple(same), state, cells + unmade)


def _cells(
    situation: Situation, made: Sequence[Made], rows: Sequence[int], frame: _Frame
) -> Iterator[Cell]:
    """The cells of the calls that a lane shows, by the example of one of its ranks."""
    seen: set[Turn] = set()
    for each, row in zip(made, rows, strict=True):
        if each.turn not in frame.at or each.turn in seen:
            continue
        seen.add(each.turn)
        call = situation.evidence.case.call(row)
        shapes = call.signature.input_sizes or call.signature.output_sizes
        kinds = call.signature.input_dtypes or call.signature.output_dtypes
        where = shown_frame(call.frames)
        yield Cell(
            column=frame.at[each.turn],
            op=call.name.op or call.name.raw,
            state=each.state,
            words=f"{[list(s) for s in shapes[:2]]} {'/'.join(dict.fromkeys(kinds[:2]))}".strip(),
            place=f"{where.file}:{where.line}" if where else "",
            odd=_is_odd(situation, each, row, frame),
        )


def _is_odd(situation: Situation, made: Made, row: int, frame: _Frame) -> bool:
    """Whether it is another call than most members made, of a group that a cause is about."""
    group = int(situation.evidence.case.calls.group[row])
    if made.turn.p2p or group not in frame.blamed:
        return False
    return frame.usual.get((group, made.turn.number)) != (made.name, made.signature)


def _unmade(situation: Situation, ranks: Sequence[int], frame: _Frame) -> Iterator[list[Cell]]:
    """Of each rank: cells for calls that its dump does not show, as the analysis has them.

    A call is missed where another member of the rank's own group has made it: groups of one kind
    share columns, and need not be at one number. What was finished before the dump begins is left
    out, but in the verdict's call.
    """
    found: dict[int, list[Cell]] = {rank: [] for rank in ranks}
    index = situation.evidence.ranks.index_of(ranks)
    for turn, at in sorted(frame.at.items()):
        if turn.p2p or turn.number < 0:
            continue
        for rank, state in zip(ranks, _states(situation, index, turn, frame), strict=True):
            if state:
                found[rank].append(Cell(at, "", state, "", ""))
    yield from (found[rank] for rank in ranks)


def _states(
    situation: Situation, index: Ints, turn: Turn, frame: _Frame
) -> Iterator[CellState | None]:
    """What is known of each rank at a call that its dump does not show."""
    group = _group_of(situation, index, turn, frame)
    backends = len(situation.evidence.backends)
    channels = [group * backends + each for each in range(backends)]
    stages = np.stack([situation.standing.stages(index, c, turn.number)[0] for c in channels])
    furthest = np.stack([situation.furthest_made[channel] for channel in channels]).max(axis=0)
    for member, own, made in zip(group >= 0, stages.T.tolist(), furthest.tolist(), strict=True):
        if not member:
            yield None
        elif Stage.OPEN in own or Stage.FINISHED in own:
            before: CellState = "open" if Stage.OPEN in own else "finished"
            yield before if turn == frame.mark else None
        elif Stage.NOT_CALLED not in own:
            yield "unknown"
        else:
            yield "missing" if made >= turn.number and frame.lacks else None


def _group_of(situation: Situation, index: Ints, turn: Turn, frame: _Frame) -> Ints:
    """The group of a turn's kin that each rank is a member of; -1 for none."""
    group = np.full(len(index), -1, np.int64)
    for at, each in enumerate(situation.evidence.case.groups):
        if frame.kin[at] == turn.kin:
            group[np.isin(index, situation.evidence.ranks.index_of(each.members))] = at
    return group
