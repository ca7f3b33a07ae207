"""Dumps in a store that fsspec knows: s3, gs, hdfs and others, as configured where this runs.

Objects are listed as `sources` lists files, by the same rules; to be read they are copied next to
each other under numbers of ours, since what an object is called is no safe name of a file.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from unhang.casedir.contents import MANIFEST
from unhang.ingest.discover.naming import natural_key
from unhang.ingest.discover.sniff import HEAD_BYTES, MAX_FILE_BYTES, kind_of
from unhang.ingest.discover.sources import Source, may_be_dump

_CASE = (MANIFEST, "dumps/", "stacks/")
_WHEN = ("LastModified", "mtime", "last_modified", "updated")


def is_stored(path: str) -> bool:
    """Whether a path is the address of something in a store; `file://` is a file."""
    return "://" in path and not path.startswith("file://")


def listed(url: str) -> tuple[list[Source], bool]:
    """Objects that may be dumps, and whether others of a case directory lie next to them.

    Raises:
        FileNotFoundError: There is nothing.
        ImportError: A package for this kind of store is not installed.
        OSError: The store does not let us look.
    """
    import fsspec

    url = url.rstrip("/")
    store, root = fsspec.core.url_to_fs(url)
    place = url[: url.rindex(root)] if root in url else store.unstrip_protocol("")
    folder, objects = _objects(store, root)
    found = [
        (name.removeprefix(folder) if folder else name.rpartition("/")[2], name, info)
        for name, info in objects.items()
        if info.get("type", "file") == "file" and not name.endswith("/")
    ]
    is_case = bool(folder) and any(relative.startswith(_CASE) for relative, *_ in found)
    below = "dumps/" if is_case else ""
    sources = [
        Source(f"{place}{name}", relative, int(info.get("size") or 0), _mtime_ns(info))
        for relative, name, info in found
        if not folder or (may_be_dump(name.rpartition("/")[2]) and relative.startswith(below))
    ]
    beside = any(not relative.startswith(below) for relative, *_ in found)
    return sorted(sources, key=lambda source: natural_key(source.relative)), beside


def _objects(store: Any, root: str) -> tuple[str, dict[str, dict[str, Any]]]:  # noqa: ANN401 - fsspec is imported late
    """The folder, if that is what is named, and what is known of every object."""
    if glob.has_magic(root) and not store.exists(root):
        found = store.glob(root, detail=True)
        if not found:
            raise FileNotFoundError(root)
        return "", found
    info = store.info(root)
    if info["type"] == "file":
        return "", {root: info}
    return f"{root}/", store.find(root, detail=True)


def _mtime_ns(info: dict[str, Any]) -> int:
    """When an object was written; 0 where the store does not say it in a way that we know."""
    told = next((info[key] for key in _WHEN if info.get(key)), 0)
    seconds = told.timestamp() if isinstance(told, datetime) else told
    return int(seconds * 1000) * 1_000_000 if isinstance(seconds, (int, float)) else 0


def copied(sources: Sequence[Source], folder: Path) -> list[Source]:
    """Copy objects into a folder; returns where each now lies.

    Raises:
        OSError: The store does not give one of them; also what else its library raises.
    """
    import fsspec

    made: list[Source] = []
    for _, own in groupby(sources, key=lambda source: urlsplit(source.path)[:2]):
        batch = list(own)
        store, _ = fsspec.core.url_to_fs(batch[0].path)
        places = [folder / f"{len(made) + at:06}" for at in range(len(batch))]
        names = [store._strip_protocol(source.path) for source in batch]  # noqa: SLF001 - public in all but name
        whole = {}
        for source, name, place in zip(batch, names, places, strict=True):
            if source.size > MAX_FILE_BYTES and not _is_archive(store, name):
                place.touch()  # it is larger than any dump, whatever is in it
            else:
                whole[name] = str(place)
        if whole:
            store.get([*whole], [*whole.values()])
        for source, place in zip(batch, places, strict=True):
            size = max(source.size, place.stat().st_size)
            made.append(Source(str(place), source.relative, size, source.mtime_ns))
    return made


def _is_archive(store: Any, name: str) -> bool:  # noqa: ANN401 - the same
    return kind_of(bytes(store.cat_file(name, 0, HEAD_BYTES))).is_packed
