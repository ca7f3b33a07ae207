"""Programs as a Python script of a few lines, which torchrun starts on the CPU.

Calls that ranks share are one line, and calls that repeat become a loop. It refuses calls
whose arguments no dump tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from math import prod
from pathlib import PurePath
from typing import Final, NamedTuple

from unhang.errors import InputError
from unhang.model import Shape
from unhang.record.contact.latest import DTYPE_NAMES
from unhang.reproduce.schedule import Move, Programs
from unhang.wording import printable

_TORCHS: Final = {theirs: name for name, theirs in DTYPE_NAMES.items()}
_LONGEST: Final = 12
"""Calls of a loop's body: what a person still sees as one turn."""

_START: Final = """\
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
"""
_END: Final = """\
print(f"rank {rank} has made its calls", flush=True)
time.sleep(3600)  # it stays: on Gloo, peers of a process that ends get an error
"""


class _Item(NamedTuple):
    """A line, and the ranks that run it."""

    line: str
    ranks: tuple[int, ...]


def script_of(programs: Programs, header: Iterable[str]) -> str:
    """The script.

    Args:
        programs: What its ranks call.
        header: Lines of the comment above it.

    Raises:
        InputError: A call cannot be written.
    """
    used = sorted({move.group for moves in programs.moves.values() for move in moves})
    names = {number: _name(programs, number) for number in used}
    lines = [f"# {printable(line)}".rstrip() for line in header]
    lines += ["", *_START.splitlines()]
    lines += [
        f"{names[n]} = dist.new_group({list(programs.groups[n].members)})"
        f"  # {printable(programs.groups[n].label)}"
        for n in used
        if names[n]
    ]
    merged = _merged(programs, names)
    if any(not move.waits for moves in programs.moves.values() for move in moves):
        lines.append("works = []  # calls that no line waits for")
    lines.append("")
    lines += _guarded(merged, len(programs.names))
    return "\n".join([*lines, "", *_END.splitlines(), ""])


def _merged(programs: Programs, names: dict[int, str]) -> list[_Item]:
    """All programs as one: a line that ranks share stands once, so that it is one line for all.

    The analysis compares the lines of calls, of the script as of the job.
    """
    whole: list[_Item] = []
    for rank, moves in programs.moves.items():
        mine = [_line(move, names) for move in moves]
        whole = list(_zipped(whole, mine, rank))
    return whole


def _zipped(whole: list[_Item], mine: list[str], rank: int) -> Iterator[_Item]:
    """A merged program with that of one rank more."""
    alike = SequenceMatcher(None, [item.line for item in whole], mine, autojunk=False)
    for kind, start, stop, first, last in alike.get_opcodes():
        ranks = (rank,) if kind == "equal" else ()
        yield from (_Item(item.line, (*item.ranks, *ranks)) for item in whole[start:stop])
        if kind != "equal":
            yield from (_Item(line, (rank,)) for line in mine[first:last])


def _guarded(items: list[_Item], world: int) -> list[str]:
    """The lines, each under a condition where not all ranks run it."""
    lines: list[str] = []
    for times, body in _folded(items):
        indent = "    " if times > 1 else ""
        lines += [f"for _ in range({times}):"] if times > 1 else []
        for ranks, run in groupby(body, key=lambda item: item.ranks):
            if len(ranks) < world:
                mine = f"in {ranks}" if len(ranks) > 1 else f"== {ranks[0]}"
                lines.append(f"{indent}if rank {mine}:")
            deeper = indent + ("    " if len(ranks) < world else "")
            lines += [f"{deeper}{item.line}" for item in run]
    return lines


def _name(programs: Programs, number: int) -> str:
    """A group's name in the script; "" for the one of all ranks that torch makes first."""
    group = programs.groups[number]
    whole = group.members == tuple(range(len(programs.names)))
    return "" if whole and group.name in ("0", "default_pg") else f"group_{number}"


# ----------------------------------------------------------------------------------------- a call


def _tensor(shape: Shape, dtype: str) -> str:
    """A tensor; its shape is the call's, so that sizes are."""
    kind = _TORCHS.get(dtype, "float32")
    more = "" if kind == "float32" else f", dtype=torch.{kind}"
    return f"torch.ones({', '.join(map(str, shape)) or '()'}{more})"


def _tensors(shapes: Sequence[Shape], dtype: str) -> str:
    return f"[{', '.join(_tensor(shape, dtype) for shape in shapes)}]"


def _list_of(shapes: Sequence[Shape], dtype: str) -> str:
    """What only a root gives; None for the others."""
    return _tensors(shapes, dtype) if shapes else "None"


def _parts(many: tuple[Shape, ...], one: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """A list that NCCL recorded as one tensor, in the parts that torch wants."""
    if len(many) != 1 or len(one) != 1 or not prod(one[0]):
        return many
    return one * (prod(many[0]) // prod(one[0]))


def _flat(shapes: Sequence[Shape], dtype: str) -> str:
    """One tensor that holds as much as all of them."""
    return _tensor(shapes[0] if len(shapes) == 1 else (sum(map(prod, shapes)),), dtype)


def _reduced(move: Move) -> str:
    return "" if move.reduction == "SUM" else f", op=dist.ReduceOp.{move.reduction}"


_WRITE: Final[dict[str, Callable[[Move], str]]] = {
    "all_reduce": lambda m: f"all_reduce({_flat(m.inputs, m.dtype)}{_reduced(m)}",
    "broadcast": lambda m: f"broadcast({_flat(m.inputs, m.dtype)}, group_src={m.root}",
    "reduce": lambda m: f"reduce({_flat(m.inputs, m.dtype)}, group_dst={m.root}{_reduced(m)}",
    "all_gather": lambda m: (
        f"all_gather({_tensors(_parts(m.outputs, m.inputs), m.dtype)}, {_flat(m.inputs, m.dtype)}"
    ),
    "_all_gather_base": lambda m: (
        f"all_gather_into_tensor({_flat(m.outputs, m.dtype)}, {_flat(m.inputs, m.dtype)}"
    ),
    "_reduce_scatter_base": lambda m: (
        f"reduce_scatter_tensor({_flat(m.outputs, m.dtype)}, {_flat(m.inputs, m.dtype)}"
    ),
    "reduce_scatter": lambda m: (
        f"reduce_scatter({_flat(m.outputs, m.dtype)}, "
        f"{_tensors(_parts(m.inputs, m.outputs), m.dtype)}"
    ),
    "gather": lambda m: (
        f"gather({_flat(m.inputs, m.dtype)}, {_list_of(m.outputs, m.dtype)}, group_dst={m.root}"
    ),
    "scatter": lambda m: (
        f"scatter({_flat(m.outputs, m.dtype)}, {_list_of(m.inputs, m.dtype)}, group_src={m.root}"
    ),
    "all_to_all": lambda m: (
        f"all_to_all_single({_flat(m.outputs, m.dtype)}, {_flat(m.inputs, m.dtype)}"
    ),
    "barrier": lambda _: "barrier(",
    "send": lambda m: f"send({_flat(m.inputs, m.dtype)}, group_dst={m.peer}{_tagged(m)}",
    "recv": lambda m: f"recv({_flat(m.outputs, m.dtype)}, group_src={m.peer}{_tagged(m)}",
}
_ALSO: Final = {
    "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_barrier": "barrier", "monitored_barrier": "barrier",
    "_allgather_base": "_all_gather_base", "all_gather_into_tensor": "_all_gather_base",
    "all_gather_into_tensor_coalesced": "_all_gather_base", "all_gather_single": "_all_gather_base",
    "allgather_into_tensor_coalesced": "_all_gather_base", "allgather": "all_gather",
    "reduce_scatter_tensor_coalesced": "_reduce_scatter_base",
    "reduce_scatter_tensor": "_reduce_scatter_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "alltoall": "all_to_all", "alltoall_base": "all_to_all", "all_to_all_single": "all_to_all",
}  # fmt: skip
"""Names under which recorders write the same."""


def _tagged(move: Move) -> str:
    return f", tag={move.tag}" if move.tag else ""


def _line(move: Move, names: dict[int, str]) -> str:
    write = _WRITE.get(_ALSO.get(move.op, move.op))
    if write is None:
        raise InputError(
            f"a reproducer cannot call {printable(move.op)}",
            "Its arguments are not in the dumps: rehearse the program itself (unhang rehearse).",
        )
    text = write(move)
    first = text.endswith("(")
    more = [f"group={names[move.group]}"] if names[move.group] else []
    if not move.waits:
        if text.startswith(("send", "recv")):
            text = f"i{text}"
        else:
            more.append("async_op=True")
    comma = ", " if more and not first else ""
    text = f"dist.{text}{comma}{', '.join(more)})"
    text = text if move.waits else f"works.append({text})"
    frame = move.frame
    where = f"  # {printable(PurePath(frame.file).name)}:{frame.line}" if frame else ""
    return f"{text}{where}"


# ----------------------------------------------------------------------------------------- loops


def _folded(items: list[_Item]) -> list[tuple[int, list[_Item]]]:
    """Items as loops: at each place the longest run, of the shortest body; how often, and what."""
    folded: list[tuple[int, list[_Item]]] = []
    at = 0
    while at < len(items):
        length, times = max(
            ((n, _times(items, at, n)) for n in range(1, _LONGEST + 1)),
            key=lambda each: (each[0] * each[1] if each[1] > 1 else 0, -each[0]),
        )
        if times == 1 or length * (times - 1) == 1:  # a loop would be as long
            length = times = 1
        if times == 1 and folded and folded[-1][0] == 1:
            folded[-1][1].append(items[at])
        else:
            folded.append((times, items[at : at + length]))
        at += length * times
    return folded


def _times(items: list[_Item], at: int, length: int) -> int:
    """How often a body stands there, one after the other."""
    body, times = items[at : at + length], 1
    while items[at + times * length : at + (times + 1) * length] == body:
        times += 1
    return times


def ranks_of_job(programs: Programs) -> str:
    """Which ranks of the job its ranks are, where they are others."""
    if programs.names == tuple(range(len(programs.names))):
        return ""
    pairs = (f"{n} is {name}" for n, name in enumerate(programs.names))
    return f"Ranks here are ranks of the job: {', '.join(pairs)}."
