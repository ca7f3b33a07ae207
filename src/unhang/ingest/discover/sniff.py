"""What kind of file some bytes are, told by their beginning and never by their name.

A name may lie, and half of the dumps in the wild have no extension. This module opens nothing and
decodes nothing; it only keeps readers from being fed what is not theirs.
"""

from __future__ import annotations

from enum import Enum

MAX_FILE_BYTES = 512 << 20
"""No dump is larger: 200,000 calls with stacks take 40 MB."""

MAX_RATIO = 250
"""Dumps shrink 10 to 40 times; deflate can reach 1,000, and bombs do."""

HEAD_BYTES = 512
"""How much of a file `kind_of` wants to see (a tar says so at offset 257)."""

PART_MAGIC = b"\xf5UNHANG-PART/1\n"
"""How a part begins that `unhang reduce` wrote; the number is that of its layout."""

CLOG_HEAD = b"V|1|base_timestamp="
"""How a file begins into which torchcomms' ClogHook logs."""

PAGE_MAGIC = b"UNHANGHB"
"""How a heartbeat's file begins."""

_TAR_MAGIC_AT = 257


class FileKind(Enum):
    """The kinds of file that matter to a reader of dumps."""

    EMPTY = "empty"
    PICKLE = "pickle"
    JSON = "JSON"
    GZIP = "gzip"
    ZSTD = "zstd"
    TAR = "tar"
    ZIP = "zip"
    PART = "part"
    PAGE = "page"
    CLOG = "Clog"
    OTHER = "other"

    @property
    def is_packed(self) -> bool:
        """Whether files are inside."""
        return self in (FileKind.GZIP, FileKind.ZSTD, FileKind.TAR, FileKind.ZIP)


_MAGIC = (
    *((bytes((0x80, protocol)), FileKind.PICKLE) for protocol in range(2, 6)),
    (PART_MAGIC.partition(b"/")[0], FileKind.PART),
    (PAGE_MAGIC, FileKind.PAGE),
    (CLOG_HEAD, FileKind.CLOG),
    (b"\x1f\x8b", FileKind.GZIP),
    (b"\x28\xb5\x2f\xfd", FileKind.ZSTD),
    (b"PK\x03\x04", FileKind.ZIP),
    (b"PK\x05\x06", FileKind.ZIP),
)


def kind_of(head: bytes) -> FileKind:
    """Name the kind of a file from its first `HEAD_BYTES` bytes (fewer if it is shorter)."""
    if not head:
        return FileKind.EMPTY
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        return FileKind.TAR
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
    return FileKind.JSON if text.startswith((b"{", b"[")) else FileKind.OTHER


def is_recorded(head: bytes) -> bool:
    """Whether this begins what a recorder wrote and nothing else looks like: no paste, no log."""
    return kind_of(head) in (FileKind.PICKLE, FileKind.PART, FileKind.PAGE, FileKind.CLOG)
