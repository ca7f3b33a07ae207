"""The calls of a case as one program a rank: what each would have to call again.

What a dump does not tell is filled in the plain way: who is the root (the group's first member),
how values are reduced (sums), and when an asynchronous call was waited for (a call that did not
end and has calls behind it was not waited for; nor are sends and receives that ended).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final, TypeAlias

import numpy as np

from unhang.analysis.state.index import gather
from unhang.batches import is_closing
from unhang.case import Case
from unhang.model import Call, Frame, Group, Shape
from unhang.stacks.ownership import user_frame

Unit: TypeAlias = tuple[int, ...]
"""What goes or stays together: a collective of a group, or a send and its receive."""

_COLLECTIVE: Final = 2
"""Length of a collective's unit: group and number."""
_ROOTED: Final = frozenset({"broadcast", "reduce", "gather", "scatter"})
_LISTED: Final = frozenset({"gather", "scatter"})
_RECEIVES: Final = "recv"
_SENDS: Final = "send"
_ALIKE: Final = re.compile("_|base$|into_tensor|tensor|single|coalesced$")
"""Parts of names under which recorders write the same operation."""
_OF_ONE: Final = re.compile("base|tensor|single")
"""Parts of names of operations whose parts lie in one tensor, not in a list."""
_BY_MEMBER: Final = {
    "allgather": ("outputs",), "gather": ("outputs",), "reducescatter": ("inputs",),
    "scatter": ("inputs",), "alltoall": ("inputs", "outputs"),
}  # fmt: skip
"""Which tensors have a part for each member of the group."""
_SMALL: Final = 8
"""Elements of a tensor whose size does not matter."""
_SAID: Final = re.compile(r"(\w+)\((root|reduction) (\w+)\)")
"""How the dumps of a rehearsal tell a root or a reduction about which ranks disagree."""


@dataclass(frozen=True, slots=True)
class Move:
    """One call of one rank.

    Attributes:
        group: Place in `Programs.groups`.
        peer, root: Ranks in the group; -1 for none.
        waits: The rank goes on only when it has ended.
        ended: It had ended.
        unit: What it belongs to.
    """

    group: int
    op: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    dtype: str
    peer: int = -1
    tag: int = 0
    root: int = -1
    reduction: str = "SUM"
    waits: bool = True
    ended: bool = False
    frame: Frame | None = None
    unit: Unit = ()


@dataclass(frozen=True, slots=True)
class Programs:
    """What every rank calls, in order.

    Attributes:
        groups: Their members are ranks of these programs.
        moves: By rank, ascending.
        names: By rank, which rank of the job it is.
    """

    groups: tuple[Group, ...]
    moves: Mapping[int, tuple[Move, ...]]
    names: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many calls there are."""
        return sum(map(len, self.moves.values()))

    def only(self, units: Iterable[Unit]) -> Programs:
        """With the calls of some units alone."""
        kept = frozenset(units)
        moves = {r: tuple(m for m in each if m.unit in kept) for r, each in self.moves.items()}
        return replace(self, moves=moves)


def programs_of(case: Case) -> Programs:
    """The programs of all ranks that left a dump; what only some members still have is left out."""
    ranks = case.ranks_with_dump
    place = {rank: n for n, rank in enumerate(ranks)}
    groups = tuple(
        replace(g, members=tuple(place[m] for m in g.members if m in place)) for g in case.groups
    )
    tags, finished, groups_of = _tags(case), gather(case).finished, case.calls.group.tolist()
    moves = {}
    for rank in ranks:
        rows = np.flatnonzero(case.calls.rank == rank)
        rows = rows[np.argsort(case.calls.created_ns[rows], kind="stable")]
        calls = [case.call(int(row)) for row in rows]
        made = [
            _move(call, place, groups_of[call.row], tags, ended=bool(finished[call.row]))
            for call in calls
            if not is_closing(call.name)
        ]
        moves[place[rank]] = _with_exchanges(_with_waits(made), groups, place[rank])
    return Programs(groups, _within_all_windows(_with_roots(moves)), tuple(ranks))


def _tags(case: Case) -> dict[int, int]:
    """Tags of sends and receives that wait, by row."""
    return {dump.start + number: tag for dump in case.dumps for number, tag in dump.open_tags or ()}


def _move(
    call: Call, place: Mapping[int, int], group: int, tags: Mapping[int, int], *, ended: bool
) -> Move:
    name, signature = call.name, call.signature
    said = _SAID.fullmatch(name.op)
    op = said[1] if said else name.op.partition("(")[0]
    dtypes = signature.input_dtypes or signature.output_dtypes
    members = [member for member in call.group.members if member in place]
    peer, root, reduction = -1, 0 if op in _ROOTED else -1, "SUM"
    if op.startswith((_SENDS, _RECEIVES)):
        op = _SENDS if op.startswith(_SENDS) else _RECEIVES
        peer = _place_of(name.dst if op == _SENDS else name.src, call, members)
    inputs, outputs = signature.input_sizes, signature.output_sizes
    if op in _LISTED:  # NCCL records a list of the root, and one empty tensor of all others
        root = members.index(call.rank) if _is_list(outputs if op == "gather" else inputs) else -1
        inputs, outputs = _without_empty(inputs), _without_empty(outputs)
    if said and said[2] == "root" and said[3].isdecimal() and int(said[3]) in members:
        root = members.index(int(said[3]))
    elif said and said[2] == "reduction":
        reduction = said[3]
    made = Move(
        group, op, inputs, outputs, dtypes[0] if dtypes else "Float",
        peer=peer, tag=tags.get(call.row, 0), root=root, reduction=reduction, ended=ended,
        frame=user_frame(call.frames) or next(iter(call.frames), None), unit=(group, call.seq),
    )  # fmt: skip
    return _resized(made, len(call.group.members), len(members))


def _is_list(shapes: tuple[Shape, ...]) -> bool:
    return bool(_without_empty(shapes))


def _without_empty(shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    return tuple(shape for shape in shapes if 0 not in shape)


def _with_roots(moves: Mapping[int, tuple[Move, ...]]) -> dict[int, tuple[Move, ...]]:
    """Of gathers and scatters the root alone has a list: the others take the first that has one."""
    listed = [m for made in moves.values() for m in made if m.op in _LISTED and m.root >= 0]
    roots = {m.unit: m.root for m in sorted(listed, key=lambda m: m.root, reverse=True)}
    return {
        rank: tuple(
            replace(m, root=roots.get(m.unit, 0)) if m.op in _LISTED and m.root < 0 else m
            for m in made
        )
        for rank, made in moves.items()
    }


def ways_of(programs: Programs) -> Iterator[Programs]:
    """The programs as they may have been, the likeliest first: a dump does not tell what waited.

    Most programs wait for a send or receive before they go on. Where that leads elsewhere, those
    that ended float; then open calls hold up what comes behind them.
    """
    yield replace(programs, moves={r: _settled(made) for r, made in programs.moves.items()})
    yield programs
    yield from held_up(programs)


def _settled(moves: tuple[Move, ...]) -> tuple[Move, ...]:
    return tuple(replace(move, waits=move.waits or move.ended) for move in moves)


def held_up(programs: Programs) -> Iterator[Programs]:
    """The same calls where open ones hold up what comes behind them, as they may on a GPU's stream.

    A dump does not tell which calls the stream waited for. First, a collective that did not end
    waits for the last open send or receive before it; then every open call ends before the next.
    """
    yield replace(programs, moves={r: _behind(made) for r, made in programs.moves.items()})
    in_order = {
        rank: tuple(move if move.ended else replace(move, waits=True) for move in made)
        for rank, made in programs.moves.items()
    }
    yield replace(programs, moves=in_order)


def _behind(moves: tuple[Move, ...]) -> tuple[Move, ...]:
    """With the last open exchange before the first open collective waited for."""
    opened = [n for n, move in enumerate(moves) if not move.ended and move.peer < 0]
    before = [
        n for n, m in enumerate(moves) if not m.ended and m.peer >= 0 and n < min(opened, default=0)
    ]
    last = before[-1] if before else -1
    return tuple(replace(m, waits=True) if n == last else m for n, m in enumerate(moves))


def _place_of(peer: int, call: Call, members: list[int]) -> int:
    """A peer among the members that left a dump; -1 for another, or any."""
    known = 0 <= peer < len(call.group.members) and call.group.members[peer] in members
    return members.index(call.group.members[peer]) if known else -1


def _with_waits(moves: list[Move]) -> list[Move]:
    """What floats: an open call that has calls behind it, and sends and receives that ended."""
    last = len(moves) - 1
    return [
        replace(move, waits=number == last if not move.ended else move.peer < 0)
        for number, move in enumerate(moves)
    ]


def _with_exchanges(moves: list[Move], groups: tuple[Group, ...], rank: int) -> tuple[Move, ...]:
    """Number sends and receives of each direction between two ranks: their unit."""
    counted: Counter[tuple[int, ...]] = Counter()
    made = []
    for move in moves:
        if move.op in (_SENDS, _RECEIVES):
            members = groups[move.group].members
            other = members[move.peer] if move.peer >= 0 else -1
            pair = (rank, other) if move.op == _SENDS else (other, rank)
            lane = (move.group, *pair)
            counted[lane] += 1
            made.append(replace(move, unit=(*lane, counted[lane])))
        else:
            made.append(move)
    return tuple(made)


def _within_all_windows(moves: dict[int, tuple[Move, ...]]) -> dict[int, tuple[Move, ...]]:
    """Collectives from the first on that no member's buffer has dropped."""
    begins: dict[int, int] = {}
    for made in moves.values():
        mine: dict[int, int] = {}
        for move in made:
            if len(move.unit) == _COLLECTIVE:
                mine.setdefault(move.group, move.unit[1])
        for group, seq in mine.items():
            begins[group] = max(seq, begins.get(group, seq))
    return {
        rank: tuple(m for m in made if len(m.unit) > _COLLECTIVE or m.unit[1] >= begins[m.group])
        for rank, made in moves.items()
    }


def units_of(programs: Programs) -> tuple[list[Unit], set[Unit]]:
    """All units in the order in which they were begun, and those with a call that did not end."""
    first: dict[Unit, int] = {}
    opened: dict[Unit, bool] = defaultdict(bool)
    for moves in programs.moves.values():
        for number, move in enumerate(moves):
            first[move.unit] = max(first.get(move.unit, 0), number)
            opened[move.unit] |= not move.ended
    return sorted(first, key=lambda unit: first[unit]), {
        u for u, is_open in opened.items() if is_open
    }


def with_ranks(programs: Programs, kept: Iterable[int]) -> Programs:
    """With some ranks alone, numbered again; a send or receive whose other side goes, goes too."""
    ranks = sorted(kept)
    place = {rank: n for n, rank in enumerate(ranks)}
    groups, moved = [], {}
    for group in programs.groups:
        left = [member for member in group.members if member in place]
        groups.append(replace(group, members=tuple(place[member] for member in left)))
    for rank in ranks:
        there = (_among(m, programs.groups[m.group].members, place) for m in programs.moves[rank])
        moved[place[rank]] = tuple(move for move in there if move)
    return Programs(tuple(groups), moved, tuple(programs.names[rank] for rank in ranks))


def _among(move: Move, members: tuple[int, ...], place: Mapping[int, int]) -> Move | None:
    """A call with its peer and root as ranks of the smaller group."""
    left = [member for member in members if member in place]

    def moved(number: int, default: int) -> int:
        return left.index(members[number]) if members[number] in left else default

    if 0 <= move.peer < len(members):
        peer = moved(move.peer, -1)
        return replace(move, peer=peer) if peer >= 0 else None
    move = _resized(move, len(members), len(left))
    return replace(move, root=moved(move.root, 0)) if move.root >= 0 else move


def _resized(move: Move, before: int, after: int) -> Move:
    """A collective with the sizes that it has in a group of fewer members."""
    sides = _BY_MEMBER.get(_ALIKE.sub("", move.op), ())
    if before == after or not sides:
        return move
    inputs, outputs = (
        _share(move.op, shapes, before, after) if side in sides else shapes
        for side, shapes in (("inputs", move.inputs), ("outputs", move.outputs))
    )
    return replace(move, inputs=inputs, outputs=outputs)


def of_one_size(programs: Programs) -> Programs:
    """The same calls with small tensors, alike in all of them: what a verdict about order needs."""
    moves = {
        rank: tuple(_small(move, len(programs.groups[move.group].members)) for move in made)
        for rank, made in programs.moves.items()
    }
    return replace(programs, moves=moves)


def of_few_elements(programs: Programs) -> Programs:
    """The same calls with small tensors that differ in size where those of the case do."""
    sizes: defaultdict[Unit, set[int]] = defaultdict(set)
    for move in (move for made in programs.moves.values() for move in made):
        sizes[move.unit] |= {prod(shape) for shape in (*move.inputs, *move.outputs)}

    def small(move: Move) -> Move:
        known = sorted(sizes[move.unit])
        if _BY_MEMBER.get(_ALIKE.sub("", move.op)):
            return move
        inputs, outputs = (
            tuple((_SMALL * (1 + known.index(prod(shape))),) for shape in shapes)
            for shapes in (move.inputs, move.outputs)
        )
        return replace(move, inputs=inputs, outputs=outputs)

    moves = {rank: tuple(map(small, made)) for rank, made in programs.moves.items()}
    return replace(programs, moves=moves)


def _small(move: Move, members: int) -> Move:
    sides = _BY_MEMBER.get(_ALIKE.sub("", move.op), ())

    def sized(side: str, shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if side in sides and len(shapes) == 1:
            return ((_SMALL * members,),)
        return ((_SMALL,),) * len(shapes)

    return replace(
        move, inputs=sized("inputs", move.inputs), outputs=sized("outputs", move.outputs)
    )


def _share(op: str, shapes: tuple[Shape, ...], before: int, after: int) -> tuple[Shape, ...]:
    """As many tensors of a list, or rows of a tensor, for each member as before."""
    if len(shapes) == before and not _OF_ONE.search(op):
        return shapes[:after]
    return tuple(
        (shape[0] // before * after, *shape[1:]) if shape and not shape[0] % before else shape
        for shape in shapes
    )
