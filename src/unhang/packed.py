"""gzip and zstd files as streams: what is broken is an OSError, what is cut an EOFError.

The libraries raise exceptions of their own and lose what they had unpacked before, and zstandard
ends a cut file as if it were whole. `read1` of these streams gives what is whole first.
"""

from __future__ import annotations

import gzip
import io
import zlib
from typing import IO, TYPE_CHECKING, Any

from unhang.errors import MissingExtraError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BUFFER = 128 << 10
_BROKEN = "the packed data are broken"
_PIECE = 512
"""Bytes that are unpacked at once: a block of 128 KiB may be packed into four bytes, so 16 MiB."""


class Packed(io.BufferedReader):
    """The content of a packed file."""


def open_gzip(file: IO[bytes]) -> Packed:
    """Read a gzip file."""
    return Packed(_Gzip(fileobj=file, mode="rb"), _BUFFER)


class _Gzip(gzip.GzipFile):
    def readinto(self, buffer: Buffer) -> int:
        """One step at a time, so that an error comes after what is whole."""
        view = memoryview(buffer).cast("B")
        try:
            data = self.read1(len(view))
        except zlib.error as error:
            raise OSError(0, _BROKEN) from error
        view[: len(data)] = data
        return len(data)


def open_zstd(file: IO[bytes], what: str) -> Packed:
    """Read a zstd file, of one frame or several.

    Args:
        file: The packed file.
        what: What needs the library, as a sentence begins ("Reading zstd files").

    Raises:
        MissingExtraError: The library is not installed.
    """
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError(what, "zstd") from error
    return Packed(_Zstd(file, zstandard), _BUFFER)


class _Zstd(io.RawIOBase):
    def __init__(self, file: IO[bytes], library: Any) -> None:  # noqa: ANN401 - imported late
        self._file, self._library = file, library
        self._frame: Any = None
        self._packed = b""
        self._content = memoryview(b"")

    def readable(self) -> bool:
        """It can be read, and nothing else."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Fill a buffer as far as one piece reaches."""
        view = memoryview(buffer).cast("B")
        while not len(self._content):
            if not self._unpack():
                return 0
        size = min(len(view), len(self._content))
        view[:size], self._content = self._content[:size], self._content[size:]
        return size

    def _unpack(self) -> bool:
        """Unpack one piece; False at the end of the file."""
        self._packed = self._packed or self._file.read(_PIECE)
        if not self._packed:
            if self._frame is not None:
                raise EOFError("the file ends before the end of its data")
            return False
        frame = self._frame or self._library.ZstdDecompressor().decompressobj()
        try:
            self._content = memoryview(frame.decompress(self._packed))
        except self._library.ZstdError as error:
            raise OSError(0, _BROKEN) from error
        self._packed = frame.unused_data if frame.eof else b""
        self._frame = None if frame.eof else frame
        return True

    def close(self) -> None:
        """Close the packed file, too."""
        if not self.closed:
            self._file.close()
        super().close()
