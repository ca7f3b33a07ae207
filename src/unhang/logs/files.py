"""Find logs and open them as streams of bytes: plain, .gz, .zst, torchelastic's error files, stdin.

The rank comes from the path where launchers put it there. Only regular files are opened.
"""

from __future__ import annotations

import codecs
import io
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from unhang.errors import InputError
from unhang.globs import expanded
from unhang.logs.lines.elastic import MAX_ERROR_FILE, error_text
from unhang.model import UNKNOWN_RANK, Note
from unhang.packed import Packed, open_gzip, open_zstd
from unhang.regular import links_out, not_followed, open_regular

CHUNK = 4 << 20
MAX_LOGS = 100_000
_SUFFIXES = (".log", ".out", ".err", ".txt", ".gz", ".zst")
_NAMES = ("stdout", "stderr")
_ERROR_FILE = "error.json"
_HINT = "Give log files, directories, globs, or - ."
# torchrun --log-dir: <run>/attempt_0/3/stderr.log, where 3 is the rank on that node.
_TORCHRUN = re.compile(
    r"attempt_(?P<attempt>\d+)/(?P<local>\d{1,6})/"
    r"(?:(?:stdout|stderr)\.log(?:\.\w+)?|error\.json)$"
)
_RANK_IN_PATH = re.compile(r"(?:^|[/_.-])rank[_-]?(?P<rank>\d{1,6})(?:[_.-][\w.-]{0,255})?$")


@dataclass(frozen=True, slots=True)
class LogSource:
    """One log to read.

    Attributes:
        path: Where it is; "-" is standard input.
        rank: Global rank that the path tells, or UNKNOWN_RANK.
        local_rank: Rank on its node where the path tells only that, or -1.
        attempt: Which attempt of torchrun wrote it, or "".
        size: In bytes, as it lies on disk.
        kept: It was kept with a case: the job's own output, even where it shows nothing of a job.
    """

    path: str
    rank: int = UNKNOWN_RANK
    local_rank: int = -1
    attempt: str = ""
    size: int = 0
    kept: bool = False


def source_of(path: str, relative: str, size: int = 0) -> LogSource:
    """A log with what its path tells.

    Args:
        path: Where it is.
        relative: The part of the path that may tell something.
        size: In bytes.
    """
    torchrun = _TORCHRUN.search(relative)
    if torchrun:
        return LogSource(path, UNKNOWN_RANK, int(torchrun["local"]), torchrun["attempt"], size)
    named = _RANK_IN_PATH.search(relative)
    return LogSource(path, int(named["rank"]) if named else UNKNOWN_RANK, size=size)


def named_logs(names: Iterable[str]) -> list[LogSource]:
    """The logs that a user names: files, directories, globs, or "-".

    Raises:
        InputError: If one of them is not there, or none of them holds a log.
    """
    found: dict[str, LogSource] = {}
    for name in names:
        for path in ["-"] if name == "-" else expanded(name, _HINT):
            sources = [LogSource("-")] if path == "-" else _below(Path(path))
            found.update((source.path, source) for source in sources)
    if not found:
        raise InputError(
            "no logs were found", "Directories are searched for *.log, *.out, *.err, error.json."
        )
    return list(found.values())[:MAX_LOGS]


def _below(path: Path) -> list[LogSource]:
    """A link in a folder may lead to what is none of it."""
    return find_logs(path, {*links_out(path)} if path.is_dir() else ())


def links_noted(names: Iterable[str]) -> list[Note]:
    """Which links in named folders `named_logs` has not followed."""
    folders = [Path(each) for name in names if name != "-" for each in expanded(name, _HINT)]
    links = ((folder, links_out(folder)) for folder in folders if folder.is_dir())
    return [note for folder, found in links for note in not_followed(folder, found)]


def find_logs(path: Path, without: Collection[Path] = ()) -> list[LogSource]:
    """The log itself, or all logs below a directory but for some, sorted by path.

    Raises:
        InputError: If it cannot be looked at.
    """
    try:
        if not path.is_dir():
            return [source_of(str(path), str(path), path.stat().st_size)]
        logs = (p for p in sorted(path.rglob("*")) if _looks_like_log(p) and p not in without)
        found = (p for p in logs if not p.is_dir())
        return [source_of(str(p), str(p.relative_to(path)), _size_of(p)) for p in found]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _size_of(path: Path) -> int:
    """In bytes; 0 of what is no file: opening it says why it cannot be read."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _looks_like_log(path: Path) -> bool:
    name = path.name
    return path.suffix in _SUFFIXES or name in _NAMES or name.endswith(_ERROR_FILE)


def open_log(path: str) -> IO[bytes]:
    """Open one log for reading UTF-8, decompressing by its name; "-" is standard input."""
    return _as_utf8(_opened(path))


def _as_utf8(stream: IO[bytes]) -> IO[bytes]:
    """The stream, translated where its mark says UTF-16: PowerShell writes that."""
    head = stream.peek(2)[:2] if isinstance(stream, io.BufferedReader) else b""
    if head not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return stream
    return cast("IO[bytes]", codecs.EncodedFile(stream, "utf-8", "utf-16", "replace"))


def _opened(path: str) -> IO[bytes]:
    if path == "-":
        return sys.stdin.buffer
    if path.endswith(".json"):
        with _plain(path) as stream:
            return io.BytesIO(error_text(stream.read(MAX_ERROR_FILE)))
    if path.endswith(".gz"):
        return open_gzip(_plain(path))
    if path.endswith(".zst"):
        return open_zstd(_plain(path), "Reading .zst logs")
    return _plain(path)


def _plain(path: str) -> IO[bytes]:
    """A FIFO would block for ever, unless the shell has it open already: <(kubectl logs …)."""
    if path.startswith(("/dev/fd/", "/dev/stdin")):
        return open(path, "rb")  # noqa: PTH123 - the caller closes it
    return open_regular(path)


def chunks(stream: IO[bytes], size: int = CHUNK) -> Iterator[bytes]:
    """Yield blocks of whole lines; a line longer than a block is passed on in pieces.

    Raises:
        OSError: The stream cannot be read any further; what is whole was yielded before.
        EOFError: The same, of a packed file that is cut.
    """
    rest = b""
    read = stream.read1 if isinstance(stream, Packed) else stream.read
    while True:
        try:
            block = read(size)
        except (OSError, EOFError):
            if rest:
                yield rest
            raise
        if not block:
            break
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
