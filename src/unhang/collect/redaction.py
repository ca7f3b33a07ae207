"""A copy of a whole case that may leave the house: names replaced, secrets gone.

Every file is read twice: first all of them to learn which names there are, then to write them
without. What cannot be read as JSON, as a dump or as text cannot be cleaned, so it is left out, and
the copy says so. The same name has the same stand-in everywhere, file names included.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unhang.errors import InputError, OutputError
from unhang.ingest.sniff import HEAD_BYTES, FileKind, kind_of
from unhang.ingest.unpickle import BadPickle, unpickle
from unhang.redact import Redactor

__all__ = ["Redacted", "redact_case"]

MAX_FILE_BYTES = 1 << 30
_NOT_EVIDENCE = frozenset({"collect.json"})  # how it was collected: hosts, keys, paths
_PROTOCOL = 2  # torch's own

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
        target.mkdir(parents=True)
        done = _write_all(files, case, target, redactor)
        done.summary = redactor.summary()
        (target / "redaction.txt").write_text(_account(done), encoding="utf-8")
    except FileExistsError as error:
        raise OutputError(f"{target} is there already", "Name a new directory.") from error
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror}") from error
    return done


def _files(case: Path) -> Iterator[Path]:
    for folder, below, names in os.walk(case):
        below[:] = [name for name in below if not name.startswith(".")]
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink() and name not in _NOT_EVIDENCE:
                yield path


def _learn(path: Path, case: Path, redactor: Redactor) -> None:
    """First reading: which names there are. A folder below env and logs is a host's."""
    parts = path.relative_to(case).parts
    if len(parts) > 2 and parts[0] in ("env", "logs"):  # noqa: PLR2004 - kind, host, file
        redactor.learn(hosts=[parts[1]])
    if len(parts) == 2 and parts[0] == "stacks":  # noqa: PLR2004 - kind, host's file
        redactor.learn(hosts=[path.stem])
    data = _bytes(path)
    if data is not None:
        _cleaned(data, redactor)


def _bytes(path: Path) -> bytes | None:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return None
        return path.read_bytes()
    except OSError:
        return None


def _cleaned(data: bytes, redactor: Redactor) -> bytes | str:
    """The content without names, or why it cannot be had."""
    kind = kind_of(data[:HEAD_BYTES])
    if kind is FileKind.EMPTY:
        return data
    if kind is FileKind.PICKLE:
        return _cleaned_dump(data, redactor)
    if kind.is_packed or b"\0" in data[:HEAD_BYTES]:
        return "it is packed or binary: what is in it cannot be cleaned"
    text = data.decode("utf-8", "replace")
    if kind is FileKind.JSON:
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            return redactor.text(text).encode()
        return (json.dumps(redactor.value(value), indent=1) + "\n").encode()
    return redactor.text(text).encode()


def _cleaned_dump(data: bytes, redactor: Redactor) -> bytes | str:
    try:
        found = unpickle(data)
    except BadPickle as error:
        return f"it is a dump that cannot be read: {error}"
    if found.truncated:
        return "it is a dump that was cut short: a clean copy would look whole"
    return pickle.dumps(redactor.value(found.value), protocol=_PROTOCOL)


def _write_all(files: list[Path], case: Path, target: Path, redactor: Redactor) -> Redacted:
    done = Redacted()
    for path in files:
        parts = path.relative_to(case).parts
        name = Path(*(redactor.text(part).replace("/", "_") for part in parts))
        data = _bytes(path)
        clean = "it cannot be read, or is too large" if data is None else _cleaned(data, redactor)
        if isinstance(clean, str):
            done.left_out[str(name)] = clean
            continue
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as file:
            file.write(clean)
        done.written += 1
    return done


def _account(done: Redacted) -> str:
    """What stands in the copy beside the evidence; it names nobody."""
    lines = [done.summary, f"{done.written} files were written."]
    lines += [f"left out: {name}: {why}" for name, why in done.left_out.items()]
    return "\n".join(lines) + "\n"
