"""The columns of `calls`, the one table that is large: numbers as they stand in the case.

Strings are numbers too, in a list of the case's distinct ones: making them is left to the database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from unhang.case import Case
from unhang.tables.columns import number_column, text_column
from unhang.tables.schema import BY_NAME, Column

Numbers: TypeAlias = npt.NDArray[Any]


class Coded(NamedTuple):
    """A column of strings as numbers in a list of them."""

    numbers: Numbers
    texts: Numbers


CallColumns: TypeAlias = Mapping[str, "Numbers | Coded"]

CHUNK_ROWS = 1_000_000
"""Calls handed over at once: what bounds the memory that the database takes for them."""

_STATES = ("scheduled", "started", "completed", "failed")
_ORIGINS = ("torch", "unhang")
_IN_CASE = {
    "dump_id": "dump",
    "group_id": "group",
    "signature_id": "signature",
    "stack_id": "stack",
}
"""Columns that the case has under another name."""

_OF_NAMES = {"op": "op", "backend": "backend", "src_group_rank": "src", "dst_group_rank": "dst"}
"""Columns that follow from the name of a call, and their names there."""

_MADE = frozenset(("call_id", "collective_id", *_OF_NAMES))

_FEW = 1024
"""Calls among which those that differ mostly differ already."""


def call_texts(case: Case) -> dict[str, Numbers]:
    """The distinct strings of those columns that are strings; the last is empty."""
    lists: dict[str, Sequence[str]] = {
        "name": [name.raw for name in case.names],
        "op": [name.op for name in case.names],
        "backend": [name.backend for name in case.names],
        "state": _STATES,
        "origin": _ORIGINS,
        "thread": case.threads,
    }
    return {key: text_column([*of, ""]) for key, of in lists.items()}


def alike_columns(case: Case, ids: npt.NDArray[np.int64]) -> set[str]:
    """Columns that have one value in all calls; none where there are no calls."""
    if not len(case.calls):
        return set()
    found = {key for key, values in _own(case, ids).items() if _are_alike(values)}
    return found | {
        key
        for key, field in _OF_NAMES.items()
        if len({getattr(name, field) for name in case.names}) == 1
    }


def _are_alike(values: Numbers) -> bool:
    bits = values.view(f"i{values.itemsize}")  # not-a-number is unequal to itself
    return bool((bits[:_FEW] == bits[0]).all() and (bits == bits[0]).all())


def same_columns(
    case: Case, ids: npt.NDArray[np.int64], columns: Iterable[Column]
) -> dict[str, str]:
    """Columns that are in all calls what an earlier one of their type is, and which that is."""
    own, kept, found = _own(case, ids), dict[str, Column](), dict[str, str]()
    for column in columns:
        values = own.get(column.name)
        if values is None:
            continue
        for name, other in kept.items():
            is_like = (column.type, column.absent) == (other.type, other.absent)
            if is_like and _are_same(values, own[name]):
                found[column.name] = name
                break
        else:
            kept[column.name] = column
    return found


def _are_same(one: Numbers, other: Numbers) -> bool:
    some = slice(None, None, len(one) // _FEW + 1)
    return bool((one[some] == other[some]).all() and (one == other).all())


def _own(case: Case, ids: npt.NDArray[np.int64]) -> dict[str, Numbers]:
    """The columns that the case has; where it is, `collective_id`."""
    stored = (c.name for c in BY_NAME["calls"].columns if c.name not in _MADE)
    columns = {key: getattr(case.calls, _IN_CASE.get(key, key)) for key in stored}
    return columns | {"collective_id": ids}


def call_columns(
    case: Case,
    ids: npt.NDArray[np.int64],
    texts: Mapping[str, Numbers],
    wanted: Collection[str],
    count: int | None = None,
) -> Iterator[CallColumns]:
    """Yield the columns, at most `CHUNK_ROWS` rows at once.

    Args:
        case: For its calls.
        ids: Which collective each is part of.
        texts: As `call_texts` gives them.
        wanted: Names of the columns: those that are not stored are not made.
        count: How many calls, from the first; None for all.
    """
    own = _own(case, ids)
    peers = {
        key: number_column(getattr(n, _OF_NAMES[key]) for n in case.names)
        for key in ("src_group_rank", "dst_group_rank")
    }

    def column(key: str, rows: slice) -> Numbers | Coded:
        if key == "call_id":
            return np.arange(rows.start, rows.stop)
        values = own.get(key, own["name"])[rows]
        if key in peers:
            return peers[key][values]
        return _coded(values, texts[key]) if key in texts else values

    count = len(case.calls) if count is None else count
    for start in range(0, count, CHUNK_ROWS):
        rows = slice(start, min(start + CHUNK_ROWS, count))
        yield {key: column(key, rows) for key in wanted}


def _coded(values: Numbers, texts: Numbers) -> Coded:
    """Take strings by number; -1 takes the last."""
    if values.min(initial=0) < 0:
        values = np.where(values < 0, len(texts) - 1, values)
    return Coded(values, texts)
