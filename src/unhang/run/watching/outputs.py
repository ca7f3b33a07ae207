"""The files that ranks print into by themselves, as those of launchers written in a shell do.

Nothing else keeps what such a rank says, and only a traceback there may show why it ended.
So the files are noted as long as the ranks live.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_STREAMS: Final = (1, 2)


class OwnFile(NamedTuple):
    """A file that a rank prints into, and from where on.

    Attributes:
        file: Device and inode.
    """

    rank: int
    path: str
    start: int
    file: tuple[int, int]


@dataclass(slots=True)
class OwnFiles:
    """The files of the ranks of a run."""

    _noted: dict[int, list[OwnFile]] = field(default_factory=dict)

    def note(self, ranks: Iterable[tuple[int, int]]) -> None:
        """Look where processes print; a script may send its output elsewhere after a while.

        Args:
            ranks: A rank and its process, each; those that are known already cost nothing.
        """
        for rank, pid in ranks:
            if not self._noted.get(pid):
                self._noted[pid] = list(_files_of(rank, pid))

    def own(self) -> list[OwnFile]:
        """Of each rank the files that it has for itself, the newest process last.

        One file for several ranks, or for the whole command, tells no rank. One that has gone, or
        made room for another of that name, is left out.
        """
        found = {(each.rank, each.file): each for one in self._noted.values() for each in one}
        sharing = Counter(each.file for each in found.values())
        common = {_id_of(status) for fd in _STREAMS if (status := _status(f"/proc/self/fd/{fd}"))}
        alone = (e for e in found.values() if sharing[e.file] == 1 and e.file not in common)
        return [e for e in alone if (there := _status(e.path)) and _id_of(there) == e.file]


def _files_of(rank: int, pid: int) -> Iterator[OwnFile]:
    for fd in _STREAMS:
        link = f"/proc/{pid}/fd/{fd}"
        status = _status(link)
        if status is None or not stat.S_ISREG(status.st_mode):
            continue
        with suppress(OSError):
            path = os.readlink(link)  # noqa: PTH115 - what runs before the job does without pathlib
            start = status.st_size if _appends(pid, fd) else 0
            yield OwnFile(rank, path, start, _id_of(status))


def _status(path: str) -> os.stat_result | None:
    with suppress(OSError):
        return os.stat(path)  # noqa: PTH116 - as below
    return None


def _id_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _appends(pid: int, fd: int) -> bool:
    """Whether it writes behind what was there (">>"), which may be of another run."""
    with suppress(OSError, ValueError), open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii") as text:  # noqa: PTH123 - as above
        for line in text:
            name, _, value = line.partition(":")
            if name == "flags":
                return bool(int(value, 8) & os.O_APPEND)
    return False
