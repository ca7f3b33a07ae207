"""Members of archives and compressed files, in memory and within bounds.

Nothing is ever written to disk, so a member's path can do no harm; it is a label. What unpacks to
far more than any job leaves behind is a bomb and is left unread. Archives inside archives are not
opened, compressed files inside archives are.
"""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from unhang.ingest.discover.sniff import HEAD_BYTES, MAX_FILE_BYTES, MAX_RATIO, FileKind, kind_of
from unhang.packed import Packed, open_gzip, open_zstd
from unhang.regular import open_regular

MAX_MEMBERS = 1_000_000

_SMALL = 64 << 20
"""Up to here no ratio is suspicious."""

_CHUNK = 1 << 20
_BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError,
    ValueError, RuntimeError, LookupError, OverflowError, MemoryError,
)  # fmt: skip
"""What the standard library raises on broken, encrypted or unknown archives."""


class BadArchive(Exception):  # noqa: N818 - it is the file that is bad
    """It cannot be unpacked (any further); the message says why, for a note."""


class Member(NamedTuple):
    """One file of an archive; `data` is None where `problem` says why it was not read."""

    path: str
    mtime_ns: int
    data: bytes | None
    problem: str = ""


class _Bounded:
    """A stream that gives out no more than an honest file of its size could hold."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        # read1 returns what it has, where read would lose it when the file is cut short.
        self._read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        self._left = max(_SMALL, MAX_RATIO * size)

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes; a tar's header can ask for gigabytes at once."""
        if not 0 <= size <= MAX_FILE_BYTES:
            raise BadArchive("it declares more than any dump holds")
        data = self._read(size)
        self._left -= len(data)
        if self._left < 0:
            raise BadArchive(f"it unpacks to more than {MAX_RATIO} times its size")
        return data


def inflate(data: bytes, kind: FileKind) -> tuple[bytes, bool]:
    """Unpack one compressed file; returns its content and whether it was cut short.

    Raises:
        BadArchive: It is broken from the start, or a bomb.
        MissingExtraError: It needs a library that is not installed.
    """
    stream = _Bounded(_decompressed(io.BytesIO(data), kind), len(data))
    pieces, size = [], 0
    try:
        while piece := stream.read(_CHUNK):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_FILE_BYTES:
                raise BadArchive("it unpacks to more than any dump")
    except _BROKEN as error:
        if not pieces:
            raise BadArchive(f"it cannot be unpacked ({type(error).__name__})") from error
        return b"".join(pieces), True
    return b"".join(pieces), False


def members_of(path: Path, kind: FileKind, wanted: Callable[[str], bool]) -> Iterator[Member]:
    """Read an archive's files one by one.

    Args:
        path: The archive.
        kind: ZIP, TAR, or GZIP or ZSTD around a tar.
        wanted: Tells by its path whether a member is to be read.

    Raises:
        BadArchive: It cannot be read (any further); what was yielded before is good.
        MissingExtraError: It needs a library that is not installed.
    """
    try:
        size = path.stat().st_size
        with open_regular(path) as file:
            found = _zip(file) if kind is FileKind.ZIP else _tar(file, kind, size)
            for count, member in enumerate(found):
                if count >= MAX_MEMBERS:
                    raise BadArchive("it has more files than any job has ranks")
                if wanted(member.path):
                    yield _opened(member)
    except _BROKEN as error:
        raise BadArchive(f"it cannot be unpacked further ({type(error).__name__})") from error


def is_tar_inside(path: Path, kind: FileKind) -> bool:
    """Whether a compressed file holds a tar rather than one dump."""
    try:
        with open_regular(path) as file:
            head = _head(_decompressed(file, kind))
    except OSError:
        return False
    return kind_of(head) is FileKind.TAR


def _head(stream: Packed) -> bytes:
    """The beginning of what is packed, as far as it is whole."""
    head = b""
    with suppress(*_BROKEN):
        while len(head) < HEAD_BYTES and (piece := stream.read1(HEAD_BYTES - len(head))):
            head += piece
    return head


def _decompressed(file: IO[bytes], kind: FileKind) -> Packed:
    if kind is FileKind.GZIP:
        return open_gzip(file)
    return open_zstd(file, "Reading zstd files")


class _Unread(NamedTuple):
    """A member whose bytes are there for the asking."""

    path: str
    mtime_ns: int
    size: int
    read: Callable[[], bytes]


def _tar(file: IO[bytes], kind: FileKind, size: int) -> Iterator[_Unread]:
    plain = kind is FileKind.TAR
    stream = _Bounded(file if plain else _decompressed(file, kind), size)
    with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]  # needs read() alone
        for info in archive:
            content = archive.extractfile(info) if info.isreg() else None
            if content is not None:
                mtime_ns = round(info.mtime * 1e9)  # a fraction of a second tells, where it is kept
                yield _Unread(info.name, mtime_ns, info.size, content.read)


def _zip(file: IO[bytes]) -> Iterator[_Unread]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue

            def read(info: zipfile.ZipInfo = info) -> bytes:
                with archive.open(info) as content:
                    stream = _Bounded(content, info.compress_size)
                    return b"".join(iter(lambda: stream.read(_CHUNK), b""))

            yield _Unread(info.filename, 0, info.file_size, read)


def _opened(member: _Unread) -> Member:
    """Read one member; a compressed one is unpacked as well."""
    if member.size > MAX_FILE_BYTES:
        return Member(member.path, member.mtime_ns, None, "it is larger than any dump")
    try:
        data = member.read()
        kind = kind_of(data[:HEAD_BYTES])
        if kind in (FileKind.GZIP, FileKind.ZSTD):
            data, _ = inflate(data, kind)
    except BadArchive as error:
        return Member(member.path, member.mtime_ns, None, str(error))
    return Member(member.path, member.mtime_ns, data)
