"""When the compiled decoder pays: what it costs to start against what it saves.

Importing Numba takes a third of a second, and the very first use on a machine some seconds of
compiling, which is kept on disk. A small case is read faster without.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.model import Note

if TYPE_CHECKING:
    from unhang.ingest.columns.dictionaries import Dictionaries
    from unhang.ingest.fast.loading import FastReader

__all__ = ["fast_reader"]

_WORTH_IMPORTING = 8 << 20
"""Bytes of dumps; the general path takes some 120 ms for each MB, compiled code a tenth of it."""

_WORTH_COMPILING = 48 << 20
"""Compiling takes some 6 s, once on a machine."""


def fast_reader(  # noqa: PLR0911 - there are as many reasons against it
    size: int, shared: Dictionaries, notes: list[Note]
) -> FastReader | None:
    """A reader for so many bytes of dumps; None where the general path is the faster one.

    Args:
        size: Bytes of all dumps.
        shared: Receives names, stacks and so on.
        notes: Receives what would make reading faster, and what it costs once.
    """
    if size < _WORTH_IMPORTING:
        return None
    if find_spec("numba") is None:
        text = "a case of this size is read several times faster with: pip install 'unhang[fast]'"
        notes.append(Note("info", "reading", text))
        return None
    try:
        import numba

        from unhang.ingest.fast.kernel import decode_files
        from unhang.ingest.fast.loading import FastReader
        from unhang.ingest.fast.memory import Memory
    except ImportError:  # Numba is there and does not fit the other libraries
        return None
    if numba.config.DISABLE_JIT:
        return None
    if not _is_compiled(decode_files):
        if size < _WORTH_COMPILING:
            return None
        notes.append(Note("info", "reading", _first_use(decode_files)))
    try:
        Memory()  # compiles, or loads what was compiled
    except numba.errors.NumbaError:  # this version of Numba cannot
        return None
    return FastReader(shared)


def _first_use(function: object) -> str:
    """What is said where the decoder has to be compiled."""
    folder = getattr(getattr(function, "stats", None), "cache_path", None)
    if folder:
        return "the decoder was compiled, which takes some seconds, for this and all later cases"
    return (
        "the decoder was compiled, which takes some seconds each time: set NUMBA_CACHE_DIR to a "
        "folder that can be written"
    )


def _is_compiled(function: object) -> bool:
    """Whether an earlier process has left compiled code."""
    stats = getattr(function, "stats", None)
    folder = getattr(stats, "cache_path", None)
    return bool(folder) and any(Path(str(folder)).glob("kernel.decode_files*.nbc"))
