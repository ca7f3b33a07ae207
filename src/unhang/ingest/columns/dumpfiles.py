"""A file that is, or should be, a rank's dump: what is known of it, and what is said of many.

Reading makes them; they give ranks and incidents, and the case is put together from them.
A report that lists 1,000 files with one and the same remark hides the one that matters, so what is
said of files that are alike is said once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from unhang.ingest.columns.decoded import Decoded, highest
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.discover.naming import NameClaim
from unhang.model import DumpStatus, Note, NoteLevel
from unhang.wording import count_of, rank_phrase

_IN_PATH = re.compile(r"(?:^|[/_.-])(nccl|gloo|xccl|hccl|mccl|rccl|ucc|mpi)(?=[/_.-]|$)")

_NAMED = 3
"""Up to so many files are named; more are counted."""


@dataclass(slots=True)
class DumpFile:
    """One file that is, or should have been, a rank's dump.

    Attributes:
        source: Path as shown to a person, `archive.tar!member` for members.
        rank: Starts as the name's claim; see `unhang.ingest.groups.ranks`.
        decoded: None where nothing could be read.
        problem: Why, where it could not be read whole.
        backend: Whose calls it holds ("nccl"), or "".
        newest_ns: Wall clock of the newest thing that it tells; 0 where it tells none.
        replica: Which of torchft's replicas, or "".
        relative: Path below what the user named: what the name's claim was read from.
        is_page: It is a heartbeat's file, with the last calls of a rank.
    """

    source: str
    claim: NameClaim
    mtime_ns: int
    status: DumpStatus
    decoded: Decoded | None = None
    problem: str = ""
    rank: int = -1
    backend: str = ""
    newest_ns: int = 0
    replica: str = ""
    relative: str = ""
    is_page: bool = False

    @property
    def recorder(self) -> tuple[int, str, str]:
        """Of this there should be one file: rank, replica and backend."""
        return self.rank, self.replica, self.backend

    @property
    def has_stacks(self) -> bool:
        """Whether its calls carry frames."""
        return bool(self.decoded and (self.decoded.column("stack") >= 0).any())


def characterise(files: list[DumpFile], shared: Dictionaries) -> None:
    """Set whose calls each file holds, and when its newest one was made.

    NCCL and Gloo have recorders of their own in one process, with numbers of their own, so one rank
    may leave two dumps that both are right. The calls' names tell them apart; where there are none,
    our recorder's word, the path, and what kind of library reported its version (Gloo has none):
    the one that its peers' calls name, else NCCL.
    """
    backends = np.array([name.rpartition(":")[0] for name in shared.names])
    kinds, kind_of_name = np.unique(backends, return_inverse=True)
    created = highest([item.decoded for item in files], "created_ns")
    for item, created_ns in zip(files, created, strict=True):
        decoded = item.decoded
        if decoded is None:
            item.backend = _of_path(item.source)
            continue
        item.newest_ns = max(decoded.origin.time_ns if decoded.origin else 0, created_ns)
        if decoded.count:
            item.backend = str(kinds[0])
            if len(kinds) > 1:
                votes = np.bincount(kind_of_name[decoded.column("name")])
                item.backend = str(kinds[int(votes.argmax())])
    named = {item.backend for item in files if item.backend} - {"gloo"}
    library = named.pop() if len(named) == 1 else "nccl"
    for item in files:
        if item.decoded is not None and not item.backend:
            item.backend = _without_calls(item.decoded, item.source, library)


def _without_calls(decoded: Decoded, path: str, library: str) -> str:
    own_word = decoded.origin.backend if decoded.origin else ""
    of_path = _of_path(path)
    if of_path and library.startswith(of_path):
        of_path = library  # files of NCCL's second backend are called after the library, too
    return own_word or of_path or (library if decoded.comm_lib_version else "")


def _of_path(path: str) -> str:
    found = _IN_PATH.findall(path.lower())
    return str(found[-1]) if found else ""


def notes_of_files(files: Sequence[DumpFile]) -> list[Note]:
    """What is wrong with files and what was repaired in them, folded over files that are alike."""
    by_text: dict[tuple[NoteLevel, str], list[DumpFile]] = {}
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
    text = f"skipped {count_of(len(names), 'file')} that are not dumps: {some}{more}"
    return [Note("info", "files", text)]
