"""What is said about files: one note each where they differ, one for all where they are alike.

A report that lists 1,000 files with one and the same remark hides the one that matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unhang.ingest.discover.reading import Loaded
from unhang.model import Note, NoteLevel
from unhang.wording import count_of, rank_phrase

__all__ = ["notes_of_files", "passed_over"]

_NAMED = 3
"""Up to so many files are named; more are counted."""


def notes_of_files(files: Sequence[Loaded]) -> list[Note]:
    """What is wrong with files and what was repaired in them, folded over files that are alike."""
    by_text: dict[tuple[NoteLevel, str], list[Loaded]] = {}
    for item in files:
        if item.problem:
            level: NoteLevel = "error" if item.decoded is None else "warning"
            by_text.setdefault((level, item.problem), []).append(item)
        for remark in item.decoded.remarks if item.decoded else ():
            by_text.setdefault(("info", remark), []).append(item)
    notes = []
    for (level, text), items in by_text.items():
        if len(items) > _NAMED:
            source = f"{count_of(len(items), 'file')} of {rank_phrase([i.rank for i in items])}"
            notes.append(Note(level, source, text))
        else:
            notes += [Note(level, item.source, text) for item in items]
    return notes


def passed_over(sources: Iterable[str]) -> list[Note]:
    """One note for all files that are no dumps."""
    names = list(sources)
    if not names:
        return []
    some = ", ".join(name.rpartition("/")[2] for name in names[:_NAMED])
    more = "" if len(names) <= _NAMED else ", …"
    text = f"passed over {count_of(len(names), 'file')} that are no dumps: {some}{more}"
    return [Note("info", "files", text)]
