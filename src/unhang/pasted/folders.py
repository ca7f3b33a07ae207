"""The texts of a folder or archive, under whatever names: logs, stacks and issues of one job.

Both come from outside: links that lead out of a folder are not followed, only regular files are
opened, archives are read in memory, and what all texts hold is bounded. Programs and settings are
no evidence and passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from unhang.errors import InputError
from unhang.ingest.discover.archives import BadArchive, inflate, is_tar_inside, members_of
from unhang.ingest.discover.sniff import HEAD_BYTES, FileKind, kind_of
from unhang.ingest.discover.sources import show_path
from unhang.logs.lines.elastic import error_text
from unhang.logs.scan import is_text
from unhang.model import Note
from unhang.regular import leading_out, open_regular, reason
from unhang.stacks.reading import is_stacks
from unhang.wording import count_of

MOST_BYTES = 64 << 20
"""Of all texts together; logs of any size have a command of their own."""
_TOO_MUCH = f"all texts together are larger than {MOST_BYTES >> 20} MiB"
_DEPTH = 6
_MOST_FILES = 20_000
_PACKED = (".gz", ".zst", ".zip", ".tar", ".tgz", ".xz", ".bz2")
_NO_EVIDENCE = (
    ".py", ".pyc", ".sh", ".c", ".cc", ".cpp", ".cu", ".h", ".rs", ".js", ".css", ".html",
    ".yaml", ".yml", ".toml", ".ini", ".cfg", ".csv", ".lock", ".sbatch",
)  # fmt: skip
"""They hold words of errors, as messages that a program may print."""


def texts_of_folder(folder: Path) -> tuple[dict[str, bytes], list[Note]]:
    """The texts in a folder and below it, by path, and what is not read.

    Raises:
        InputError: It holds none.
    """
    outside = {str(path) for path in leading_out(folder, _names_in(folder))}
    texts: dict[str, bytes] = {}
    why: dict[str, list[str]] = {}
    room = MOST_BYTES
    for path in _files_below(folder):
        data, refused = _read(path, outside, room)
        if refused:
            why.setdefault(refused, []).append(os.path.relpath(path, folder))
        elif data:
            texts[path] = data
            room -= len(data)
    if not texts:
        raise InputError(f"{folder} holds no text", f"Judge dumps with: unhang diagnose {folder}")
    return texts, [_told(folder, refused, paths) for refused, paths in why.items()]


def texts_of_archive(path: Path) -> tuple[dict[str, bytes], list[Note]] | None:
    """The texts in an archive or compressed file, by `path!member`; None where it is neither.

    Raises:
        InputError: It cannot be read, or holds no text.
        MissingExtraError: It needs a library that is not installed.
    """
    if not path.is_file():  # what the shell hands over is read once
        return None
    try:
        with open_regular(path) as file:
            kind = kind_of(file.read(HEAD_BYTES))
            file.seek(0)
            alone = kind in (FileKind.GZIP, FileKind.ZSTD) and not is_tar_inside(path, kind)
            if alone:
                return {str(path): inflate(file.read(MOST_BYTES), kind)[0]}, []
    except (BadArchive, OSError) as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    return _members(path, kind) if kind.is_packed else None


def _members(path: Path, kind: FileKind) -> tuple[dict[str, bytes], list[Note]]:
    texts: dict[str, bytes] = {}
    why: dict[str, list[str]] = {}
    room = MOST_BYTES
    try:
        for member in members_of(path, kind, _may_tell):
            name = f"{show_path(str(path))}!{show_path(member.path)}"
            data, refused = member.data or b"", member.problem
            if len(data) > room:
                refused = _TOO_MUCH
            elif data:
                data, refused = _evidence(member.path, data)
            if refused:
                why.setdefault(refused, []).append(show_path(member.path))
            elif data:
                texts[name] = data
                room -= len(data)
    except BadArchive as error:
        if not texts:
            raise InputError(f"{path} cannot be read: {error}") from error
        why.setdefault(str(error), []).append(str(path))
    if not texts:
        raise InputError(f"{path} holds no text", f"Judge dumps with: unhang diagnose {path}")
    return texts, [_told(path, refused, paths) for refused, paths in why.items()]


def _may_tell(name: str) -> bool:
    hidden = any(part[:1] == "." and part not in (".", "..") for part in name.split("/"))
    return not hidden and not name.endswith(_NO_EVIDENCE)


def _told(folder: Path, refused: str, paths: list[str]) -> Note:
    named = paths[0] if len(paths) == 1 else f"{count_of(len(paths), 'file')}, such as {paths[0]}"
    return Note("warning", str(folder), f"not read: {named}: {refused}")


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {reason(error)}") from error


def _files_below(folder: Path) -> Iterator[str]:
    left = _MOST_FILES
    for here, below, names in os.walk(folder):
        depth = len(Path(here).relative_to(folder).parts)
        below[:] = sorted(name for name in below if depth < _DEPTH and name[:1] != ".")
        links = (name for name in below if os.path.islink(os.path.join(here, name)))  # noqa: PTH114, PTH118 - many
        for name in sorted([*names, *links])[:left]:
            if name[:1] != ".":
                left -= 1
                yield os.path.join(here, name)  # noqa: PTH118 - as above


def _read(path: str, outside: set[str], room: int) -> tuple[bytes, str]:
    """The bytes of a text, or why it is not read; neither of what is no evidence."""
    if path in outside:
        return b"", "a link that leads out of the folder (to have it read, copy it there)"
    if path.endswith(_NO_EVIDENCE) or os.path.isdir(path):  # noqa: PTH112 - as above
        return b"", ""
    if path.endswith(_PACKED):
        return b"", "it is packed; unhang logs reads packed logs, unhang diagnose archives"
    try:
        with open_regular(path) as file:
            data = file.read(room + 1)
    except OSError as error:
        return b"", reason(error)
    if len(data) > room:
        return b"", _TOO_MUCH
    return _evidence(path, data)


def _evidence(path: str, data: bytes) -> tuple[bytes, str]:
    if not is_text(data) and data[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        return b"", "it is not text"
    if not path.endswith((".json", ".jsonl")) or is_stacks(data) or b'"communicators"' in data:
        return (data, "") if data.strip() else (b"", "")
    try:
        return error_text(data), ""
    except InputError:
        return b"", ""
