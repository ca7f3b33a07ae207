"""Files of one supervisor's part on their way into the case of the one that judges.

Who receives believes no name: a file lies where files of such a part lie, below the case, and is of
that supervisor or of a rank that it has told of. It takes no other's place. Sizes and counts are
bounded, and a file appears whole or not at all.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from unhang.casedir.sharing import part_path
from unhang.record.contact.runtime_dir import private_dir, private_opener, safe_name
from unhang.regular import open_regular
from unhang.run.meeting.sealing import CHUNK

MOST_FILES: Final = 20_000
MOST_BYTES: Final = 1 << 30
"""Of one supervisor's part of an incident: eight ranks' dumps and logs are some megabytes."""
_DEEPEST: Final = 8
_HEAD: Final = struct.Struct(">IBH")
_WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DUMP: Final = re.compile(r"rank_(\d{1,8})(\.json)?")
_FOLDERS: Final = ("dumps", "stacks", "logs", "env", "ras")


def files_of(case: Path, run: str, *, dumps_only: bool = False) -> Iterator[Path]:
    """The files of this node's part of a case; what is said of them comes last."""
    for folder in _FOLDERS[: 1 if dumps_only else None]:
        files = (path for path in sorted((case / folder).rglob("*")) if not path.is_symlink())
        yield from (path for path in files if path.is_file() and not path.name.startswith("."))
    if part_path(case, run).exists():
        yield part_path(case, run)


def parcelled(case: Path, path: Path, number: int) -> Iterator[bytes]:
    """A file as messages; none where it cannot be read.

    Args:
        case: It is in.
        path: The file.
        number: Of the incident.
    """
    name = path.relative_to(case).as_posix().encode()
    with suppress(OSError), open_regular(path) as file:
        data = file.read(CHUNK)
        while True:
            more = file.read(CHUNK) if data else b""
            yield _HEAD.pack(number, not more, len(name)) + name + data
            if not more:
                return
            data = more


class Parcels:
    """Takes the files of one supervisor.

    Attributes:
        number: Of the incident.
        bytes: How much has come.
    """

    def __init__(
        self, case: Path, number: int, run: str, ranks: Callable[[], frozenset[int]]
    ) -> None:
        """Take them.

        Args:
            case: Of the incident.
            number: Of the incident; files of another one are left.
            run: Whose they are.
            ranks: Those that it has told of until now.
        """
        self.bytes = 0
        self.number = number
        self._case, self._run, self._ranks = case, run, ranks
        self._mine: set[str] = set()
        self._name = ""
        self._open: BinaryIO | None = None

    def take(self, body: bytes) -> None:
        """A message with some of a file.

        Raises:
            ValueError: None of ours is so.
            OSError: It cannot be written.
        """
        if len(body) < _HEAD.size:
            raise ValueError("too short")
        number, last, length = _HEAD.unpack_from(body)
        name = body[_HEAD.size : _HEAD.size + length].decode("ascii", "replace")
        data = body[_HEAD.size + length :]
        self.bytes += len(data)
        if number != self.number or not self._may_write(name):
            return
        self._write(name, data, last=bool(last))

    def _may_write(self, name: str) -> bool:
        known = name in self._mine
        if self.bytes > MOST_BYTES or (not known and len(self._mine) >= MOST_FILES):
            return False
        return is_of(name, self._run, self._ranks()) and (known or not (self._case / name).exists())

    def _write(self, name: str, data: bytes, *, last: bool) -> None:
        target = self._case / name
        if self._name != name:
            self.close()
            private_dir(target.parent)
            temporary = target.with_name(f".{target.name}.{safe_name(self._run)}.part")
            self._name, self._open = name, open(temporary, "wb", opener=private_opener)  # noqa: SIM115 - until its last message
        if self._open is None:
            return
        self._open.write(data)
        if last:
            self._open.close()
            Path(self._open.name).replace(target)
            self._mine.add(name)
            self._name, self._open = "", None

    def close(self) -> None:
        """Leave nothing half."""
        if self._open is not None:
            self._open.close()
            Path(self._open.name).unlink(missing_ok=True)
        self._name, self._open = "", None


def is_of(name: str, run: str, ranks: frozenset[int]) -> bool:
    """Whether a file of such a name belongs to a supervisor, or to a rank of its own."""
    words = name.split("/")
    if not 1 < len(words) <= _DEEPEST or not all(map(_WORD.fullmatch, words)):
        return False
    if words[0] == "dumps":
        found = _DUMP.fullmatch(words[-1])
        return (
            found is not None
            and len(words) == len(("dumps", "gloo", "rank_0"))
            and (int(found[1]) in ranks)
        )
    if words[0] in _FOLDERS:
        return run in name
    return name == f"parts/{safe_name(run)}.json"
