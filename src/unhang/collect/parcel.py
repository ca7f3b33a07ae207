"""How a node's evidence travels: files in a compressed tar, as lines of text on standard output.

Every launcher can bring lines home, and nearly every one adds something: labels before each line,
login banners, warnings, lines of several nodes mixed. So each line names its run and its node and
has a number, the last one a checksum, and whatever is not ours is passed over:

    @unhang RUN NODE 0 BASE64
    @unhang RUN NODE 1 BASE64
    @unhang RUN NODE end 2 SHA256

Both ends are here. What comes in is hostile: sizes are bounded, names and paths are made safe or
refused before anything is made of them, links and devices are left out.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from unhang.record.contact.runtime_dir import private_dir, private_opener

_CHUNK = 600  # 800 characters: `srun --label` cuts lines at 1,024 bytes
_LINE = re.compile(r"@unhang ([\w-]{1,64}) (\S{1,255}) (\d{1,9}|end) (\S{1,8000})(?: (\S{1,64}))?")
_PATH = re.compile(r"(?:dumps|stacks|logs|env|ras)(?:/[\w@%+=:,.-]{1,200}){1,4}|part\.json")
_PART = "part.json"
MAX_PACKED = 2 << 30
MAX_UNPACKED = 8 << 30
MAX_FILES = 200_000
MAX_PART = 4 << 20
_MAX_HEADER = 1 << 20
"""Of what stands before a file in a tar: its name, and what is said of it."""
_MAX_NAME = 240
"""Bytes of one name in a path: file systems take 255."""
_SPOOL = 64 << 10


class ParcelError(Exception):
    """A parcel is not whole, too large or holds what it must not."""


def safe_node(name: str) -> str:
    """A node's name as it stands in lines and paths."""
    return "".join(c if c.isalnum() or c in "_.-" else "_" for c in name)[:100].strip(".") or "node"


def write_parcel(files: Mapping[str, bytes | Path], run: str, node: str, out: IO[str]) -> None:
    """Send files as lines.

    Args:
        files: Content, or where it is, by path: "part.json", or below the folders of a case.
        run: Names the collecting run.
        node: Names the node; without spaces.
        out: Where the lines go.
    """
    digest = hashlib.sha256()
    count = 0
    for chunk in _chunks(_packed(files)):
        digest.update(chunk)
        out.write(f"@unhang {run} {node} {count} {base64.b64encode(chunk).decode()}\n")
        count += 1
    out.write(f"@unhang {run} {node} end {count} {digest.hexdigest()}\n")
    out.flush()


def _packed(files: Mapping[str, bytes | Path]) -> Iterator[bytes]:
    """The compressed tar, piece by piece, so that it is never in memory as a whole."""
    machine = zlib.compressobj(3)
    for name, source in files.items():
        try:
            size = len(source) if isinstance(source, bytes) else source.stat().st_size
            content = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
        except OSError:
            continue  # it was there a moment ago; the node's part says what it wanted to send
        info = tarfile.TarInfo(name)
        info.size = size
        yield machine.compress(info.tobuf(tarfile.PAX_FORMAT))
        with content:
            yield from map(machine.compress, _exactly(content, size))
        yield machine.compress(b"\0" * (-size % tarfile.BLOCKSIZE))
    yield machine.compress(b"\0" * 2 * tarfile.BLOCKSIZE)
    yield machine.flush()


def _exactly(content: IO[bytes], size: int) -> Iterator[bytes]:
    """So many bytes of a file that may grow or shrink while it is read."""
    while size > 0:
        piece = content.read(min(size, 1 << 20)) or b"\0" * min(size, 1 << 20)
        size -= len(piece)
        yield piece


def _chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    kept = bytearray()
    for piece in pieces:
        kept += piece
        while len(kept) >= _CHUNK:
            yield bytes(kept[:_CHUNK])
            del kept[:_CHUNK]
    if kept:
        yield bytes(kept)


def read_line(text: str, run: str) -> tuple[str, str, str, str] | None:
    """Take a line apart: node, number or "end", and two words; None where it is none of ours.

    The node's name is made safe here: what a node calls itself is never a path.
    """
    found = _LINE.search(text)
    if found is None or found[1] != run:
        return None
    return safe_node(found[2]), found[3], found[4], found[5] or ""


class Spool:
    """A file that is open only while something is written to it: nodes may be thousands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = bytearray()

    def write(self, data: bytes) -> None:
        """Add data to the end."""
        self._kept += data
        if len(self._kept) >= _SPOOL:
            self.close()

    def close(self) -> None:
        """Have all of it on disk."""
        with self.path.open("ab") as file:
            file.write(self._kept)
        self._kept.clear()


@dataclass(slots=True)
class Incoming:
    """One node's parcel while it comes in, kept in a file.

    Attributes:
        file: Takes the compressed bytes.
        whole: The last line has come, and all before it.
    """

    file: IO[bytes] | Spool
    whole: bool = False
    _next: int = 0
    _size: int = 0
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, number: str, first: str, second: str) -> None:
        """Take one line in.

        Raises:
            ParcelError: A line is missing or damaged, or there is too much.
        """
        if number == "end":
            if str(self._next) != first or self._digest.hexdigest() != second:
                raise ParcelError("what came is not what was sent: lines are lost or damaged")
            self.whole = True
            return
        if int(number) != self._next:
            raise ParcelError(f"line {self._next} was lost on the way")
        try:
            chunk = base64.b64decode(first, validate=True)
        except ValueError as error:
            raise ParcelError(f"line {number} was damaged on the way") from error
        self._size += len(chunk)
        if self._size > MAX_PACKED:
            raise ParcelError(f"more than {MAX_PACKED >> 30} GiB from one node")
        self._digest.update(chunk)
        self._next += 1
        self.file.write(chunk)


class _Unzipped(io.RawIOBase):
    """A compressed file as a stream; more than is allowed raises, not fills memory or disk."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file, self._machine, self._left = file, zlib.decompressobj(), MAX_UNPACKED
        self._next = _MAX_HEADER

    def allow(self, size: int) -> None:
        """Let so much come next, and what stands before a file."""
        self._next = size + _MAX_HEADER

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]  # any writable buffer
        while not self._machine.eof:
            data = self._machine.unconsumed_tail or self._file.read(1 << 16)
            if not data:
                return 0
            piece = self._machine.decompress(data, len(view))
            if piece:
                self._count(len(piece))
                view[: len(piece)] = piece
                return len(piece)
        return 0

    def _count(self, size: int) -> None:
        self._left -= size
        self._next -= size
        if self._left < 0:
            raise ParcelError(f"unpacks to more than {MAX_UNPACKED >> 30} GiB")
        if self._next < 0:
            raise ParcelError("what it says of a file is longer than any node says")


def unpack(file: IO[bytes], case: Path, others: Collection[str] = ()) -> tuple[list[str], bytes]:
    """Unpack a parcel into a case; nothing that is there is overwritten.

    Args:
        file: The parcel.
        case: The case directory.
        others: Names of other nodes, under which nothing may come.

    Returns:
        The paths written, and the content of part.json.

    Raises:
        ParcelError: It is damaged or holds what it must not.
        OSError: The case cannot be written.
    """
    written: dict[str, str] = {}
    part = b""
    stream = _Unzipped(file)
    places = _Places(case)
    try:
        with tarfile.open(fileobj=io.BufferedReader(stream), mode="r|") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # it would keep them all
                content = archive.extractfile(member) if _is_allowed(member, written) else None
                if content is None:
                    raise ParcelError(f"it holds {member.name[:200]!r}, which no node sends")
                if _names_one_of(member.name, others):
                    raise ParcelError(f"it holds {member.name[:200]!r}, in another node's name")
                stream.allow(member.size)
                written[member.name] = (
                    "" if member.name == _PART else _save(content, member, places)
                )
                part = content.read() if member.name == _PART else part
                stream.allow(0)
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        raise ParcelError(f"it cannot be unpacked: {error}") from error
    return [path for path in written.values() if path], part


def _is_allowed(member: tarfile.TarInfo, before: Mapping[str, str]) -> bool:
    """Whether a node may send this: a plain file of a fitting name and size, once."""
    name, parts = member.name, member.name.split("/")
    plain = member.isreg() and not member.issparse() and ".." not in parts and "." not in parts
    fits = name != _PART or member.size <= MAX_PART
    short = max(map(_bytes, parts)) <= _MAX_NAME
    new = name not in before and len(before) < MAX_FILES
    return plain and fits and short and new and _PATH.fullmatch(name) is not None


def _bytes(name: str) -> int:
    return len(name.encode("utf-8", "surrogateescape"))


def _names_one_of(path: str, nodes: Collection[str]) -> bool:
    """Whether a path is of a node: its folder, its file, or "answer-NODE-1.txt" of its RAS."""
    _, *parts = path.split("/")
    names = (part for part in parts[:2] for part in (part, part.rpartition(".")[0]))
    return any(name in nodes or name[7:].rpartition("-")[0] in nodes for name in names)


def _save(content: IO[bytes], member: tarfile.TarInfo, places: _Places) -> str:
    """Write a file; where something else has its place, or a folder's, it gets a number."""
    *folders, name = member.name.split("/")
    place = places.case
    for folder in folders:
        place = places.first(place, folder, lambda p: p.is_dir() or not os.path.lexists(p))
        private_dir(place)
    target = places.first(place, name, lambda path: not os.path.lexists(path))
    with open(target, "xb", opener=private_opener) as out:
        while piece := content.read(1 << 20):
            out.write(piece)
    return str(target.relative_to(places.case))


class _Places:
    """Where files of a parcel go; what was taken once is not tried again."""

    def __init__(self, case: Path) -> None:
        self.case = case
        self._next: dict[Path, int] = {}

    def first(self, folder: Path, name: str, fits: Callable[[Path], bool]) -> Path:
        """The first of name, name.2, name.3… that fits."""
        number = self._next.get(folder / name, 1)
        while not fits(path := folder / (name if number == 1 else f"{name}.{number}")):
            number += 1
        self._next[folder / name] = number
        return path
