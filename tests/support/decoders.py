"""The two decoders of dumps, one at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.case import Case
from unhang.errors import NoEvidenceError
from unhang.ingest import load, reading
from unhang.ingest.columns.decoded import Decoded
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.discover.sources import Source
from unhang.ingest.native.library import Library, found
from unhang.ingest.native.loading import NativeReader
from unhang.model import Note


def compiled(shared: Dictionaries | None = None, threads: int = 1) -> NativeReader:
    """The compiled decoder, where it was built."""
    library = found()
    if not isinstance(library, Library):
        pytest.skip(f"{library}; `make native` builds it")
    return NativeReader(shared or Dictionaries(), library, threads)


def read_compiled(path: Path) -> Decoded | None:
    """What the compiled decoder makes of one file; None where it leaves it to the Python reader."""
    source = Source(str(path), path.name, path.stat().st_size, 0)
    [[(_, found)]] = compiled().read([source])
    return found


def load_with(folder: Path, monkeypatch: pytest.MonkeyPatch, *, native: bool) -> Case | None:
    """Load a folder with one of the two; None where it holds no evidence."""

    def reader(_size: int, shared: Dictionaries, _notes: list[Note]) -> NativeReader | None:
        return compiled(shared, threads=2) if native else None

    with monkeypatch.context() as patch:
        patch.setattr(reading, "native_reader", reader)
        try:
            return load(folder)
        except NoEvidenceError:
            return None
