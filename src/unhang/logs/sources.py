"""Open logs as streams of bytes: plain, .gz, .zst, standard input, directories of them.

A file that cannot be read is a note. The rank comes from the path where launchers put it there.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from unhang.errors import MissingExtraError
from unhang.model import UNKNOWN_RANK

__all__ = ["LogSource", "chunks", "find_logs", "open_log"]

CHUNK = 4 << 20
_SUFFIXES = (".log", ".out", ".err", ".txt", ".gz", ".zst")
_NAMES = ("stdout", "stderr")
_RANK_IN_PATH = (
    # torchrun --log-dir: <run>/attempt_0/3/stderr.log
    re.compile(r"attempt_\d+/(?P<rank>\d{1,6})/(?:stdout|stderr)\.log(?:\.\w+)?$"),
    re.compile(r"(?:^|[/_.-])rank[_-]?(?P<rank>\d{1,6})(?:[_.-][\w.-]*)?$"),
)


@dataclass(frozen=True, slots=True)
class LogSource:
    """One log to read. `rank` is what the path says, or UNKNOWN_RANK."""

    path: str
    rank: int = UNKNOWN_RANK
    size: int = 0


def rank_of_path(path: str) -> int:
    """The rank that a log's path names, or UNKNOWN_RANK."""
    for pattern in _RANK_IN_PATH:
        match = pattern.search(path)
        if match:
            return int(match["rank"])
    return UNKNOWN_RANK


def find_logs(path: Path) -> list[LogSource]:
    """The log itself, or all logs below a directory, sorted by path."""
    if not path.is_dir():
        return [LogSource(str(path), rank_of_path(str(path)), path.stat().st_size)]
    found = (p for p in sorted(path.rglob("*")) if p.is_file() and _looks_like_log(p))
    return [
        LogSource(str(p), rank_of_path(str(p.relative_to(path))), p.stat().st_size) for p in found
    ]


def _looks_like_log(path: Path) -> bool:
    return path.suffix in _SUFFIXES or path.name in _NAMES


def open_log(path: str) -> IO[bytes]:
    """Open one log for reading bytes, decompressing by its name; "-" is standard input."""
    if path == "-":
        return sys.stdin.buffer
    if path.endswith(".gz"):
        return io.BufferedReader(gzip.open(path, "rb"))
    if path.endswith(".zst"):
        try:
            import zstandard
        except ImportError as error:
            raise MissingExtraError("Reading .zst logs", "zstd") from error
        return io.BufferedReader(zstandard.open(path, "rb"))
    return open(path, "rb")  # noqa: PTH123 - the caller closes it


def chunks(stream: IO[bytes], size: int = CHUNK) -> Iterator[bytes]:
    """Yield blocks of whole lines; a line longer than a block is passed on in pieces."""
    rest = b""
    while block := stream.read(size):
        data = rest + block
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) < size * 2:
            rest = data
            continue
        cut = cut or len(data)
        rest = data[cut:]
        yield data[:cut]
    if rest:
        yield rest
