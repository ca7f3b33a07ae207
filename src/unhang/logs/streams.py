"""Undo the interleaving: the lines of one rank, one file per rank, equal lines folded over ranks.

Every line is looked at here, so this is slower than `scan`. A line without a prefix belongs to the
rank that its file names, else to no rank: it is kept apart and counted, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from unhang.errors import OutputError, UnhangError
from unhang.logs.files import LogSource, chunks, open_log
from unhang.logs.keeping import normalise
from unhang.logs.lines.prefixes import Line, parse_line
from unhang.model import UNKNOWN_RANK, Note
from unhang.regular import reason

MAX_DISTINCT = 200_000
MAX_FILES = 4_096
UNKNOWN_NAME = "unknown.log"


def lines_of(sources: Iterable[LogSource], notes: list[Note]) -> Iterator[tuple[LogSource, Line]]:
    """All lines of all logs, parsed, in order of reading; unreadable logs become notes."""
    for source in sources:
        try:
            with open_log(source.path) as stream:
                for block in chunks(stream):
                    for raw in block.splitlines():
                        yield source, parse_line(raw)
        except (OSError, EOFError, UnhangError) as error:  # noqa: PERF203 - one bad log is a note
            notes.append(Note("error", source.path, f"could not be read: {reason(error)}"))


def rank_of(source: LogSource, line: Line) -> int:
    """The rank of a line: by its prefix, else by its file, else its rank on its node."""
    for rank in (line.rank, source.rank, line.local_rank, source.local_rank):
        if rank >= 0:
            return rank
    return UNKNOWN_RANK


def split_by_rank(sources: Iterable[LogSource], target: Path, notes: list[Note]) -> dict[str, int]:
    """Write `rank_N.log` per rank and `unknown.log` into a new directory.

    Returns:
        File name -> number of lines.

    Raises:
        OutputError: If the directory exists already and is not empty, or cannot be written.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise OutputError(
                f"{target} is not empty", "Name a new directory: none is overwritten."
            )
        return _split(sources, target, notes)
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror}") from error


def _split(sources: Iterable[LogSource], target: Path, notes: list[Note]) -> dict[str, int]:
    counts: dict[str, int] = {}
    files: dict[str, IO[str]] = {}
    with ExitStack() as stack:
        for source, line in lines_of(sources, notes):
            rank = rank_of(source, line)
            name = f"rank_{rank}.log" if rank >= 0 else UNKNOWN_NAME
            if name not in files:
                if len(files) >= MAX_FILES:
                    name = UNKNOWN_NAME
                files.setdefault(name, stack.enter_context((target / name).open("w")))
            files[name].write(line.text + "\n")
            counts[name] = counts.get(name, 0) + 1
    return counts


@dataclass(slots=True)
class FoldedLine:
    """One message, its ranks, and how often it came. `text` is its first form."""

    text: str
    ranks: set[int] = field(default_factory=set)
    count: int = 0


def fold_lines(sources: Iterable[LogSource], notes: list[Note]) -> list[FoldedLine]:
    """Equal messages (numbers aside) of all ranks as one, in order of first appearance."""
    folded: dict[str, FoldedLine] = {}
    for source, line in lines_of(sources, notes):
        if not line.text.strip():
            continue
        key = normalise(line.text)
        if key not in folded and len(folded) >= MAX_DISTINCT:
            continue
        entry = folded.setdefault(key, FoldedLine(line.text))
        entry.count += 1
        rank = rank_of(source, line)
        if rank >= 0:
            entry.ranks.add(rank)
    if len(folded) >= MAX_DISTINCT:
        notes.append(Note("warning", "fold", f"only the first {MAX_DISTINCT} messages are kept"))
    return list(folded.values())
