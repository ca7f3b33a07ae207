"""Find and load the decoder's library, and say in ctypes what its functions take.

The library is built with the package or not at all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from unhang.built import fingerprint, fits

_NAME: Final = "ingest/native/decoder.so"
LIBRARY: Final = Path(__file__).parents[2] / _NAME

WHOLE, CUT, UNUSUAL = 0, 1, 2
"""What became of a file."""

OUTCOME_WIDTH: Final = 10
"""Of one file: what became of it, its memory; first and number of rows, of pairs, of threads, of
groups in use."""

VIEWS: Final = (3, 1, 4, 2, 1, 1, 1, 1, 1, 3, 1, 2)
"""Columns of each view: strings, text, nodes, children, names, signatures, stacks, threads, groups;
pairs, threads and groups in use of files."""

_TEXT: Final = 1
"""The view that holds bytes; the others hold 64-bit numbers."""

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


class _View(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Library:
    """The functions of the library, checked."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._declare(self._library)

    @staticmethod
    def _declare(library: ctypes.CDLL) -> None:
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        takes = {
            "fingerprint": (pointer, size), "open": (size,), "close": (pointer,),
            "decode": (pointer, pointer, pointer, pointer, size),
            "decode_bytes": (pointer, pointer, size, pointer),
            "views": (pointer, size, pointer),
            "write": (pointer, pointer, size, pointer, size, pointer),
        }  # fmt: skip
        for name, types in takes.items():
            getattr(library, f"unhang_{name}").argtypes = types
        library.unhang_fingerprint.restype = size
        library.unhang_open.restype = pointer
        library.unhang_close.restype = None

    def fingerprint(self) -> str:
        """Of what it was built from."""
        text = ctypes.create_string_buffer(64)
        length = self._library.unhang_fingerprint(text, 64)
        return text.raw[:length].decode()

    def open(self, threads: int) -> int:
        """Make a reader, to be closed."""
        return int(self._library.unhang_open(threads))

    def close(self, reader: int) -> None:
        """Free a reader."""
        self._library.unhang_close(reader)

    def decode(self, reader: int, paths: Sequence[bytes], sizes: Sequence[int]) -> Int64s | None:
        """Decode files; the outcome of each, or None where the library failed."""
        outcomes = np.zeros((len(paths), OUTCOME_WIDTH), np.int64)
        size_of_each = np.array(sizes, np.uint64)
        views = (_View * len(paths))(*(_view_of_bytes(path) for path in paths))
        failed = self._library.unhang_decode(
            reader, views, size_of_each.ctypes.data, outcomes.ctypes.data, len(paths)
        )
        return None if failed else outcomes

    def decode_bytes(self, reader: int, data: bytes) -> Int64s | None:
        """Decode one file that lies in memory."""
        outcomes = np.zeros((1, OUTCOME_WIDTH), np.int64)
        view = _view_of_bytes(data)
        failed = self._library.unhang_decode_bytes(
            reader, view.start, len(data), outcomes.ctypes.data
        )
        return None if failed else outcomes

    def views(self, reader: int, memory: int) -> list[npt.NDArray[np.generic]]:
        """What a memory holds, as `VIEWS` lists it: valid until the reader is used again."""
        views = (_View * len(VIEWS))()
        if self._library.unhang_views(reader, memory, views):
            raise IndexError(memory)
        kinds = (np.uint8 if i == _TEXT else np.int64 for i in range(len(VIEWS)))
        return [_array(*each) for each in zip(views, VIEWS, kinds, strict=True)]

    def write(
        self,
        reader: int,
        outcomes: Int64s,
        columns: Sequence[npt.NDArray[np.generic]],
        tables: Iterable[npt.NDArray[np.int32]],
    ) -> bool:
        """Write the rows that were decoded last into columns that are as long; True if it did."""
        rows = int(outcomes[:, 3].sum())
        if any(len(c) != rows or not c.flags.c_contiguous for c in columns):
            raise ValueError("the columns do not fit the rows")
        kept = [np.ascontiguousarray(table, np.int32) for table in tables]
        views = (_View * len(kept))(*(_View(t.ctypes.data, len(t)) for t in kept))
        pointers = (ctypes.c_void_p * len(columns))(*(c.ctypes.data for c in columns))
        failed = self._library.unhang_write(
            reader, outcomes.ctypes.data, len(outcomes), pointers, rows, views
        )
        return not failed


def _view_of_bytes(data: bytes) -> _View:
    return _View(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data))


def _array(view: _View, width: int, kind: type[np.generic]) -> npt.NDArray[np.generic]:
    if not view.length:
        return np.zeros((0, width) if width > 1 else 0, kind)
    size = view.length * width * np.dtype(kind).itemsize
    found = np.frombuffer((ctypes.c_char * size).from_address(view.start), kind)
    return found.reshape(-1, width) if width > 1 else found


@cache
def found() -> Library | str:
    """The library, or why there is none that can be used."""
    if not LIBRARY.is_file():
        return "this installation has no compiled decoder"
    try:
        library = Library(LIBRARY)
        built_from = library.fingerprint()
    except (AttributeError, OSError, UnicodeError):
        return "the compiled decoder cannot be loaded on this system"
    if not fits(built_from, fingerprint(_NAME)):
        return "the compiled decoder was built from other sources"
    return library
