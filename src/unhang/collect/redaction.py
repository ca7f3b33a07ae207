"""A copy of a whole case that may leave the house: names replaced, secrets gone.

Every file is read twice: first all of them to learn which names there are, then to write them
without. What is neither JSON, nor a dump, nor text where a case has text cannot be cleaned, so it
is left out, and the copy says so. The same name has the same stand-in everywhere, file names
included.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unhang.casedir.manifest import save_file
from unhang.errors import InputError, OutputError
from unhang.ingest.columns.rows import work_of
from unhang.ingest.discover.sniff import HEAD_BYTES, FileKind, kind_of
from unhang.ingest.pickles.unpickle import BadPickle, unpickle
from unhang.record.contact.runtime_dir import private_dir, private_opener
from unhang.redact import Redactor

MAX_FILE_BYTES = 1 << 30
_NOT_EVIDENCE = frozenset({"collect.json"})  # how it was collected: hosts, keys, paths
_PROTOCOL = 2  # torch's own
_PAGE = "it is drawn from the rest: unhang diagnose COPY -o report.html draws it again"

Clean = Callable[[bytes], bytes]


@dataclass(slots=True)
class Redacted:
    """What was written.

    Attributes:
        written: Files of the copy.
        left_out: Why a file of the case is not in the copy, by its redacted name.
        summary: What was replaced, in numbers.
    """

    written: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    summary: str = ""


def redact_case(case: Path, target: Path, redactor: Redactor) -> Redacted:
    """Write a redacted copy of a case into a new directory.

    Args:
        case: The case directory; it is only read.
        target: A directory that is not there yet.
        redactor: May have learnt names beforehand; afterwards it knows what stands for what.

    Raises:
        InputError: The case cannot be read.
        OutputError: The target is there already, or cannot be written.
    """
    files = sorted(_files(case))
    if not files:
        raise InputError(f"{case} holds no files", "Name a case directory.")
    for path in files:
        _learn(path, case, redactor)
    redactor.counts.clear()
    try:
        private_dir(target, exist_ok=False)
    except FileExistsError as error:
        raise OutputError(f"{target} exists already", "Name a new directory.") from error
    except OSError as error:
        raise _cannot_write(target, error) from error
    try:
        done = _write_all(files, case, target, redactor)
        done.summary = redactor.summary()
        save_file(target / "redaction.txt", _account(done).encode())
    except OSError as error:  # half a copy would look like a whole one
        shutil.rmtree(target, ignore_errors=True)
        raise _cannot_write(target, error) from error
    return done


def _cannot_write(target: Path, error: OSError) -> OutputError:
    return OutputError(f"{target} cannot be written: {error.strerror}")


def _files(case: Path) -> Iterator[Path]:
    for folder, below, names in os.walk(case):
        below[:] = [name for name in below if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and name not in _NOT_EVIDENCE:
                yield Path(folder, name)


def _learn(path: Path, case: Path, redactor: Redactor) -> None:
    """First reading: which names there are. A folder below env and logs is a host's."""
    parts = path.relative_to(case).parts
    if len(parts) > 2 and parts[0] in ("env", "logs"):  # noqa: PLR2004 - kind, host, file
        redactor.learn(hosts=[parts[1]])
    if len(parts) == 2 and parts[0] == "stacks":  # noqa: PLR2004 - kind, host's file
        redactor.learn(hosts=[path.stem])
    _cleaned(path, case, redactor)


def _bytes(path: Path) -> bytes | None:
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            return None
        return path.read_bytes()
    except OSError:
        return None


def _cleaned(path: Path, case: Path, redactor: Redactor) -> bytes | str:
    """The content without names, or why it cannot be had."""
    data = _bytes(path)
    if data is None:
        return "it is not a plain file, is unreadable, or is too large"
    kind = kind_of(data[:HEAD_BYTES])
    if kind is FileKind.EMPTY:
        return data
    if kind is FileKind.PICKLE:
        return _cleaned_dump(data, redactor)
    if kind.is_packed or b"\0" in data:
        return "it is packed or binary: unhang cannot clean it"
    if kind is FileKind.JSON and (clean := _cleaned_json(data, redactor, indent=1)):
        return clean
    return _cleaned_text(data, path.relative_to(case), kind, redactor)


def _cleaned_json(data: bytes, redactor: Redactor, indent: int | None = None) -> bytes:
    """JSON without names; b"" where it is none, or too deep to be walked."""
    try:
        value: Any = json.loads(data)
        return (json.dumps(redactor.value(value), indent=indent) + "\n").encode()
    except (ValueError, RecursionError):
        return b""


def _cleaned_text(data: bytes, name: Path, kind: FileKind, redactor: Redactor) -> bytes | str:
    """Text without names, where a case has text: elsewhere it is unknown what it is."""
    if name.parts[0] == "logs":
        if kind is not FileKind.JSON:
            return redactor.text(data.decode("utf-8", "replace")).encode()
        lines = data.splitlines(keepends=True)  # a record on each, or a text that looks like that
        return b"".join(
            _cleaned_json(line, redactor) or redactor.text(line.decode("utf-8", "replace")).encode()
            for line in lines
        )
    texts = name.parts[0] in ("env", "stacks", "ras") or str(name) in (
        "report.txt",
        "redaction.txt",
    )
    if kind is FileKind.JSON or not texts:
        return "it is damaged or of an unknown kind: unhang cannot clean it"
    try:
        return redactor.text(data.decode("utf-8")).encode()
    except UnicodeDecodeError:
        return "it is not text"


def _cleaned_dump(data: bytes, redactor: Redactor) -> bytes | str:
    try:
        found = unpickle(data)
    except BadPickle as error:
        return f"it is a dump that cannot be read: {error}"
    if found.truncated:
        return "it is a dump that was cut short: a clean copy would look whole"
    if not _ends(found.value, work_of(len(data))):
        return "it is a dump that refers to itself, or to the same again and again"
    try:
        return pickle.dumps(redactor.value(found.value), protocol=_PROTOCOL)
    except RecursionError:
        return "it is a dump that is nested too deeply"


def _ends(value: object, most: int) -> bool:
    """Whether a walk over all of a value comes to so many values at most."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, (dict, list, tuple)):
            most -= len(each)
            if most < 0:
                return False
            waiting.extend(each.values() if isinstance(each, dict) else each)
    return True


def _write_all(files: list[Path], case: Path, target: Path, redactor: Redactor) -> Redacted:
    done = Redacted()
    for path in files:
        parts = path.relative_to(case).parts
        name = Path(*(redactor.text(part).replace("/", "_") for part in parts))
        clean = _PAGE if path.suffix == ".html" else _cleaned(path, case, redactor)
        if isinstance(clean, str):
            done.left_out[str(name)] = clean
            continue
        place = target / name
        private_dir(place.parent)
        with open(place, "xb", opener=private_opener) as file:
            file.write(clean)
        done.written += 1
    return done


def _account(done: Redacted) -> str:
    """What stands in the copy next to the evidence; it names no rank."""
    lines = [done.summary, f"{done.written} files were written."]
    lines += [f"left out: {name}: {why}" for name, why in done.left_out.items()]
    return "\n".join(lines) + "\n"
