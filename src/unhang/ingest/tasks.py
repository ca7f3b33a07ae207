"""What a task of an engine does on a node: look what is there, and reduce a share of it to a part.

It needs no engine itself. What it raises travels as a pickle, so it raises nothing of ours.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from unhang.errors import InputError
from unhang.ingest.discover.naming import compile_rank_pattern
from unhang.ingest.discover.sources import Source, find_inputs, show_path
from unhang.ingest.discover.storage import copied, is_stored, listed
from unhang.ingest.reducing import reduce_share

FILE = "file://"
"""Begins the address of a file that every node sees under this path."""


class SeenFile(NamedTuple):
    """One file as a node sees it: what a `Source` has, and which file it is."""

    path: str
    relative: str
    size: int
    mtime_ns: int
    inode: int


class NodeListing(NamedTuple):
    """What a node sees behind one PATH.

    Attributes:
        there: Whether anything is.
        notes: Source and text of what could not be looked at.
        beside: Whether it is a case, with more than dumps.
    """

    there: bool
    files: tuple[SeenFile, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    beside: bool = False


def look(paths: Sequence[str], base: str) -> tuple[str, list[NodeListing]]:
    """What this machine sees behind each of the paths, after a digest of that.

    Args:
        paths: As the user gave them.
        base: Where relative ones begin.
    """
    found = [listing_of(path, base) for path in paths]
    return hashlib.sha256(repr(found).encode("utf-8", "backslashreplace")).hexdigest(), found


def listing_of(path: str, base: str) -> NodeListing:
    """What this machine sees behind one path."""
    try:
        if is_stored(path):
            sources, beside = listed(path)
            return NodeListing(there=True, files=tuple(map(_seen, sources)), beside=beside)
        found = find_inputs([os.path.join(base, path.removeprefix(FILE))])  # noqa: PTH118 - "." stays
    except (InputError, FileNotFoundError):
        return NodeListing(there=False)
    return NodeListing(
        there=True,
        files=tuple(_seen(source, _inode(source.path)) for source in found.files),
        notes=tuple((note.source, note.text) for note in found.notes),
        beside=found.has_more,
    )


def _seen(source: Source, inode: int = 0) -> SeenFile:
    return SeenFile(source.path, source.relative, source.size, source.mtime_ns, inode)


def _inode(path: str) -> int:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return 0


def reduced_share(
    files: Sequence[tuple[Source, str]], rank_pattern: str | None, *, all_times: bool
) -> bytes:
    """Make a part of files.

    Args:
        files: Each as the report shows it, and the path or address under which it is opened.
        rank_pattern: As `load` takes it.
        all_times: Keep all times.

    Raises:
        FileNotFoundError: A file is not there on this node; that is no bad dump, but a bad node.
    """
    sources = [Source(path, s.relative, s.size, s.mtime_ns) for s, path in files]
    names = [show_path(source.path) for source, _ in files]
    pattern = compile_rank_pattern(rank_pattern)

    def made(places: list[Source]) -> bytes:
        shown = {show_path(p.path): name for p, name in zip(places, names, strict=True)}
        return reduce_share(places, shown, pattern=pattern, all_times=all_times)

    if is_stored(sources[0].path):
        with tempfile.TemporaryDirectory(prefix="unhang-share-") as folder:
            return made(copied(sources, Path(folder)))
    gone = [source.path for source in sources if not os.path.lexists(source.path)]
    if gone:
        raise FileNotFoundError(f"there is no {show_path(gone[0])} on this node")
    return made(sources)
