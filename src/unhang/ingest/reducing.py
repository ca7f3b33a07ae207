"""`reduce`: what dumps come down to, as the bytes of a part: those of a node, or a share of many.

Whatever `load` would read of dumps is read here by the same reader; what it says on the way travels
in the part, for the report.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from unhang.errors import NoEvidenceError
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.discover.sources import Source, find_inputs
from unhang.ingest.parts.writing import make_part
from unhang.ingest.reading import Progress, Reader


@dataclass(frozen=True, slots=True)
class Reduced:
    """A part.

    Attributes:
        data: The bytes of its file.
        n_dumps: Dumps in it, unreadable ones included.
        n_unreadable: Dumps from which nothing could be read.
        bytes_read: Size of all files.
        few_times: Not all times are in it.
    """

    data: bytes
    n_dumps: int
    n_unreadable: int
    bytes_read: int
    few_times: bool


def reduce(
    paths: Iterable[str | os.PathLike[str]],
    *,
    all_times: bool = False,
    progress: Progress | None = None,
) -> Reduced:
    """Read dumps and make a part of them.

    Args:
        paths: Directories of dumps, case directories, files, globs, archives, other parts.
        all_times: Keep all times, whatever room they take.
        progress: Called with the bytes read so far and the bytes in all.

    Raises:
        InputError: A path does not exist.
        NoEvidenceError: There is no dump.
    """
    inputs = find_inputs(paths)
    shared = Dictionaries()
    reader = Reader(shared, progress=progress)
    files = list(reader.read_all(inputs.files))
    reader.take_parts(files)
    if reader.missing is not None and not files:
        raise reader.missing
    if not files:
        problems = [f"{note.source}: {note.text}" for note in (*inputs.notes, *reader.notes)]
        raise NoEvidenceError(
            f"there is no dump to reduce{f' ({problems[0]})' if problems else ''}",
            "Dumps have names like nccl_trace_rank_0; see docs/formats.md for all that is read.",
        )
    notes = (*inputs.notes, *reader.notes)
    data, few = make_part(files, shared, notes, reader.passed_over, all_times=all_times)
    size = sum(source.size for source in inputs.files)
    return Reduced(data, len(files), sum(item.decoded is None for item in files), size, few)


def reduce_share(
    sources: Sequence[Source],
    shown: Mapping[str, str],
    *,
    pattern: re.Pattern[str] | None = None,
    all_times: bool = False,
) -> bytes:
    """Make a part of some of the files of a case, also where none of them is a dump.

    Args:
        sources: Files that were found.
        shown: What each file is called in the report, by its path.
        pattern: Finds the rank in a file's path.
        all_times: Keep all times, whatever room they take.
    """

    def named(text: str) -> str:
        path, mark, member = (text, "", "") if text in shown else text.partition("!")
        return f"{shown.get(path, path)}{mark}{member}"

    reader = Reader(Dictionaries(), pattern)
    files = list(reader.read_all(list(sources)))
    reader.take_parts(files)
    for item in files:
        item.source = named(item.source)
    notes = [replace(note, source=named(note.source)) for note in reader.notes]
    passed_over = map(named, reader.passed_over)
    return make_part(files, reader.shared, notes, passed_over, all_times=all_times)[0]
