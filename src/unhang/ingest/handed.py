"""Dumps that a program hands over in memory: what torch's `_dump_nccl_trace()` returns, or decoded.

They become named bytes, so that one path reads all dumps. torch writes the rank nowhere, so it is
a key of the dictionary that is handed over, or the place in the list; of a lone dump it is what its
groups allow, then the rank of this very process.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from unhang.bounds import is_rank
from unhang.errors import UsageError
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.dumpfiles import DumpFile
from unhang.ingest.groups.ranks import possible_ranks
from unhang.model import Note
from unhang.rankenv import rank_env

__all__ = ["Evidence", "HandedDump", "NamedBytes", "place_lone_dump", "split_handed"]

HandedDump: TypeAlias = "bytes | bytearray | memoryview | Mapping[Any, Any]"
Evidence: TypeAlias = "str | os.PathLike[str] | HandedDump"

_FOLDER = "memory"
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
            dumps.append(NamedBytes(f"{_FOLDER}/{name}", _bytes_of(item)))
    return paths, dumps


def _is_json(text: str) -> bool:
    """A dump that somebody has decoded to text, and no path."""
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
        dumps.append(NamedBytes(f"{_FOLDER}/rank_{rank}", _bytes_of(item)))
    return dumps


def _bytes_of(item: object) -> bytes:
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    if isinstance(item, str):
        return item.encode("utf-8", "replace")
    if isinstance(item, (Mapping, list, tuple)):
        try:
            return pickle.dumps(item, protocol=4)
        except Exception as error:  # whatever the values of somebody's dictionary raise
            raise UsageError(f"this dump cannot be read: {error}", _HINT) from error
    raise UsageError(f"{type(item).__name__} is neither a path nor a dump", _HINT)


_HINT = "Give what _dump_nccl_trace() or _dump_fr_trace() returned, or a path."


def place_lone_dump(found: Sequence[DumpFile], shared: Dictionaries) -> list[Note]:
    """Give a rank to one dump that was handed over alone, and say how it is known."""
    nameless = [item for item in found if item.rank < 0 and item.decoded]
    if len(found) != 1 or not nameless or not found[0].source.startswith(f"{_FOLDER}/"):
        return []
    item = nameless[0]
    allowed = possible_ranks(item.decoded, shared) if item.decoded else frozenset()
    own = _own_rank()
    if own >= 0 and (not allowed or own in allowed):
        item.rank = own
        return [Note("info", item.source, f"is of rank {own}, as this process is")]
    item.rank = min(allowed, default=0)
    text = (
        f"nothing tells which rank it is of, and it is called rank {item.rank} here: "
        "load({rank: dump}) tells it"
    )
    return [Note("warning", item.source, text)]


def _own_rank() -> int:
    """The rank of this process: as torch says, or its launcher; -1 where it is none."""
    dist = getattr(sys.modules.get("torch"), "distributed", None)
    if dist is not None and dist.is_available() and dist.is_initialized():
        return int(dist.get_rank())
    told = rank_env(os.environ)
    return told.rank if told else -1
