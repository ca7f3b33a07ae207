"""Dumps that a program hands over in memory: what torch's `_dump_nccl_trace()` returns, or decoded.

They become named bytes, so that one path reads all dumps. torch writes the rank nowhere, so it is
a key of the dictionary that is handed over, or the place in the list; of a lone dump it is what its
groups allow, then the rank of this very process.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from unhang.bounds import is_rank
from unhang.case import IN_MEMORY
from unhang.errors import UsageError

HandedDump: TypeAlias = "bytes | bytearray | memoryview | Mapping[Any, Any]"
Evidence: TypeAlias = "str | os.PathLike[str] | HandedDump"

_MARKS = ("entries", "pg_config", "pg_status", "version")
_ENTRY_MARKS = ("record_id", "profiling_name")


class NamedBytes(NamedTuple):
    """One dump as bytes, under a name that tells its rank where that is known."""

    name: str
    data: bytes


def split_handed(
    given: Evidence | Sequence[Evidence | None],
) -> tuple[list[str | os.PathLike[str]], list[NamedBytes]]:
    """Part what `load` was given into paths and dumps.

    Raises:
        UsageError: Something is neither a path nor a dump.
    """
    if isinstance(given, Mapping) and not _is_dump(given):
        return [], _by_rank(given)
    if _is_one(given) or not isinstance(given, Sequence):
        return _parted([given], lone=True)
    return _parted(list(given), lone=False)


def _is_one(given: object) -> bool:
    """One path or dump; a list of entries is the dump of an old torch."""
    if isinstance(given, (list, tuple)):
        return bool(given) and all(
            isinstance(item, Mapping) and any(mark in item for mark in _ENTRY_MARKS)
            for item in given
        )
    return isinstance(given, (str, os.PathLike, bytes, bytearray, memoryview, Mapping))


def _is_dump(value: Mapping[Any, Any]) -> bool:
    return any(mark in value for mark in _MARKS)


def _parted(
    items: Sequence[object], *, lone: bool
) -> tuple[list[str | os.PathLike[str]], list[NamedBytes]]:
    paths: list[str | os.PathLike[str]] = []
    dumps: list[NamedBytes] = []
    for place, item in enumerate(items):
        if isinstance(item, os.PathLike) or (isinstance(item, str) and not _is_json(item)):
            paths.append(item)
        elif item is not None:  # None: that rank has none
            name = "dump" if lone else f"rank_{place}"
            dumps.append(NamedBytes(f"{IN_MEMORY}/{name}", _bytes_of(item)))
    return paths, dumps


def _is_json(text: str) -> bool:
    """A dump that a caller has decoded to text, and no path."""
    return text.lstrip()[:1] == "{" and '"' in text and not os.path.lexists(text[:255])


def _by_rank(given: Mapping[Any, Any]) -> list[NamedBytes]:
    dumps = []
    for key, item in given.items():
        if item is None:
            continue
        rank = int(key) if isinstance(key, str) and key.isdecimal() else key
        if not isinstance(rank, int) or not is_rank(rank):
            raise UsageError(
                f"a dictionary with the key {key!r} is neither a dump nor dumps by rank",
                "Give {rank: dump}, a list in the order of the ranks, or paths.",
            )
        dumps.append(NamedBytes(f"{IN_MEMORY}/rank_{rank}", _bytes_of(item)))
    return dumps


def _bytes_of(item: object) -> bytes:
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    if isinstance(item, str):
        return item.encode("utf-8", "replace")
    if isinstance(item, (Mapping, list, tuple)):
        try:
            return pickle.dumps(item, protocol=4)
        except Exception as error:  # whatever the values of a caller's dictionary raise
            raise UsageError(f"this dump cannot be read: {error}", _HINT) from error
    raise UsageError(f"{type(item).__name__} is neither a path nor a dump", _HINT)


_HINT = "Give what _dump_nccl_trace() or _dump_fr_trace() returned, or a path."
