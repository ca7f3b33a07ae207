"""The calls themselves: ranks side by side, aligned by group and sequence number.

Ranks whose calls look the same share a column. Sends and receives have numbers of their own on each
rank, so theirs only line up as "the n-th of each". It shows what was recorded and judges nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unhang.case import Case
from unhang.model import Call, Group, Signature, State
from unhang.reports.content.phrases import short_path
from unhang.reports.content.root_sides import roots_apart
from unhang.spans import distinct
from unhang.wording import printable

ABSENT, OUTSIDE, UNFINISHED = "-", "", "*"
MAX_SHAPES = 2

Rows: TypeAlias = npt.NDArray[np.int64]
Cells: TypeAlias = dict[int, dict[int, str]]


@dataclass(frozen=True, slots=True)
class Pick:
    """Which calls are wanted.

    Attributes:
        ranks: Global ranks; empty for all.
        group: Name or description of a group; empty for all.
        last: How many of the last sequence numbers of each group; 0 for all.
        stacks: Whether cells carry the number of their stack.
    """

    ranks: frozenset[int] = frozenset()
    group: str = ""
    last: int = 0
    stacks: bool = False


@dataclass(frozen=True, slots=True)
class SeqRow:
    """One sequence number: a cell for each column of the block."""

    seq: int
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """The calls of one group: its collectives, or its sends and receives.

    Attributes:
        columns: The ranks that share each column.
        left_out: How many earlier sequence numbers are not shown.
    """

    group: Group
    p2p: bool
    columns: tuple[tuple[int, ...], ...]
    rows: tuple[SeqRow, ...]
    left_out: int


def pick_rows(case: Case, pick: Pick) -> Rows:
    """Return the rows of `Case.calls` that are wanted, in program order of each dump."""
    calls = case.calls
    wanted = np.ones(len(calls), bool)
    if pick.ranks:
        wanted &= np.isin(calls.rank, sorted(pick.ranks))
    if pick.group:
        named = np.array([pick.group in (g.name, g.description) for g in case.groups], bool)
        wanted &= named[calls.group] if len(named) else False
    rows = np.flatnonzero(wanted)
    if not pick.last:
        return rows
    kept = [some[_is_shown(case, some, pick.last)] for _, _, some in _by_group(case, rows)]
    return np.sort(np.concatenate([np.zeros(0, np.int64), *kept]))


def _by_group(case: Case, rows: Rows) -> Iterator[tuple[Group, bool, Rows]]:
    """Yield (group, whether P2P, rows), collectives of a group before its sends and receives."""
    for index in distinct(case.calls.group[rows]).tolist():
        of_group = rows[case.calls.group[rows] == index]
        p2p = case.calls.is_p2p[of_group]
        for kind, some in ((False, of_group[~p2p]), (True, of_group[p2p])):
            if len(some):
                yield case.groups[index], kind, some


def _numbers(case: Case, rows: Rows) -> npt.NDArray[Any]:
    """Return the number by which each call lines up with its peers' calls."""
    calls = case.calls
    return np.where(calls.is_p2p[rows], calls.p2p_seq[rows], calls.seq[rows])


def _is_shown(case: Case, rows: Rows, last: int) -> npt.NDArray[np.bool_]:
    numbers = _numbers(case, rows)
    return np.isin(numbers, distinct(numbers)[-last:])


def collect_blocks(case: Case, pick: Pick) -> Iterator[Block]:
    """Yield a block for each group that has calls."""
    everything = pick_rows(case, Pick(pick.ranks, pick.group))
    for group, p2p, rows in _by_group(case, everything):
        numbers = _numbers(case, rows)
        every = distinct(numbers)
        seqs = every[-pick.last :].tolist() if pick.last else every.tolist()
        cells = _cells(case, rows[np.isin(numbers, seqs)], pick)
        firsts = _first_numbers(case, rows, numbers)
        columns = _fold_columns(cells, firsts, seqs)
        yield Block(
            group,
            p2p,
            tuple(ranks for ranks, _ in columns),
            tuple(SeqRow(seq, tuple(c[i] for _, c in columns)) for i, seq in enumerate(seqs)),
            len(every) - len(seqs),
        )


def _first_numbers(case: Case, rows: Rows, numbers: npt.NDArray[Any]) -> dict[int, int | None]:
    """First number in each rank's window; None where absence says nothing (active-only dumps)."""
    ranks = case.calls.rank[rows]
    order = np.lexsort((numbers, ranks))
    unique, place = np.unique(ranks[order], return_index=True)
    firsts: dict[int, int | None] = dict(
        zip(unique.tolist(), numbers[order][place].tolist(), strict=True)
    )
    return firsts | {d.rank: None for d in case.dumps if d.active_only and d.rank in firsts}


def _fold_columns(
    cells: Cells, firsts: dict[int, int | None], seqs: list[int]
) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    """Return (ranks, cells from the first to the last number) for each different column."""
    folded: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank in sorted(firsts):
        first, of_rank = firsts[rank], cells.get(rank, {})
        column = tuple(
            of_rank.get(seq, OUTSIDE if first is None or seq < first else ABSENT) for seq in seqs
        )
        folded[column].append(rank)
    return [(tuple(ranks), column) for column, ranks in folded.items()]


def _cells(case: Case, rows: Rows, pick: Pick) -> Cells:
    """Write the cell of each call; calls of a rank under one number share a cell.

    What all ranks agree about is left out: shapes and dtypes, and the root.
    """
    calls, cells = case.calls, defaultdict[int, dict[int, str]](dict)
    numbers = _numbers(case, rows).tolist()
    unlike = _unlike_numbers(case, rows)
    words, roots = dict[tuple[int, ...], str](), roots_apart(case)
    for row, seq in zip(rows.tolist(), numbers, strict=True):
        key = (
            int(calls.name[row]),
            int(calls.signature[row]) if seq in unlike else -1,
            int(calls.retired[row] or calls.state[row] == State.COMPLETED),
            int(calls.stack[row]) if pick.stacks else -1,
            roots.get(row, -1),
        )
        if key not in words:
            words[key] = _cell(case, *key)
        of_rank = cells[int(calls.rank[row])]
        of_rank[seq] = f"{of_rank[seq]} + {words[key]}" if seq in of_rank else words[key]
    return cells


def _unlike_numbers(case: Case, rows: Rows) -> frozenset[int]:
    """Numbers under which calls of one name differ in shapes or dtypes: cells there show them."""
    calls = case.calls
    each = np.stack([_numbers(case, rows), calls.name[rows], calls.signature[rows]], axis=1)
    kinds, counts = np.unique(np.unique(each, axis=0)[:, :2], axis=0, return_counts=True)
    return frozenset(kinds[counts > 1, 0].tolist())


def _cell(case: Case, name: int, signature: int, finished: int, stack: int, root: int) -> str:
    op = case.names[name]
    words = printable(op.op or op.raw, 60)
    if op.src >= 0 or op.dst >= 0:
        words += f" {op.src}->{op.dst}"
    if root >= 0:
        words += f" root {root}"
    if signature >= 0:
        words += f" {_signature_words(case.signatures[signature])}"
    if stack >= 0:
        words += f" s{stack}"
    return words if finished else f"{words} {UNFINISHED}"


def _signature_words(signature: Signature) -> str:
    shapes = signature.input_sizes or signature.output_sizes
    words = ",".join("x".join(map(str, shape)) or "[]" for shape in shapes[:MAX_SHAPES])
    more = ",..." if len(shapes) > MAX_SHAPES else ""
    kinds = "/".join(dict.fromkeys(signature.input_dtypes or signature.output_dtypes))
    return printable(f"[{words}{more}] {kinds}".strip(), 80)


def stack_lines(case: Case, rows: Rows) -> Iterator[str]:
    """Yield the stacks that the cells refer to, a frame a line, innermost first."""
    for stack in distinct(case.calls.stack[rows]).tolist():
        label = f"s{stack}"
        for frame in case.stacks[stack]:
            place = f"{short_path(frame.file, 3)}:{frame.line}"
            yield f"{label:<5} {printable(frame.function, 60)} at {place}"
            label = ""


def call_records(case: Case, rows: Rows, *, stacks: bool) -> Iterator[dict[str, Any]]:
    """Yield each call as a flat record for CSV and JSON; times and numbers are None if unknown."""
    for row in rows.tolist():
        yield _record(case.call(row), stacks=stacks)


def _record(call: Call, *, stacks: bool) -> dict[str, Any]:
    record: dict[str, Any] = {
        "rank": call.rank,
        "group": call.group.name,
        "description": call.group.description,
        "group_size": call.group.size,
        "seq": _known(call.seq),
        "p2p_seq": _known(call.p2p_seq),
        "is_p2p": call.is_p2p,
        "op": call.name.op,
        "name": call.name.raw,
        "state": call.state.name.lower(),
        "retired": call.retired,
        "input_sizes": call.signature.input_sizes,
        "input_dtypes": call.signature.input_dtypes,
        "output_sizes": call.signature.output_sizes,
        "output_dtypes": call.signature.output_dtypes,
        "record_id": _known(call.record_id),
        "created_ns": call.created_ns or None,
        "started_ns": call.started_ns or None,
        "completed_ns": call.completed_ns or None,
        "duration_ms": call.duration_ms,
        "timeout_ms": _known(call.timeout_ms),
        "thread": call.thread,
    }
    if stacks:
        record["stack"] = [
            {"function": f.function, "file": f.file, "line": f.line} for f in call.frames
        ]
    return record


def _known(number: int) -> int | None:
    return None if number < 0 else number
