"""Reports of other commands, read as evidence: their findings as data, checked part by part.

Only what the schema "unhang.report/1" promises is taken over, in bounded size; unknown keys are
ignored, findings of another shape are left out and counted. What a finding says about ranks is a
claim of that command about its own run: the analysis decides what of it is about this job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from unhang.bounds import is_rank
from unhang.casedir.reports import name_told
from unhang.errors import InputError
from unhang.ingest.columns.values import MAX_GROUP_RANK, as_int
from unhang.ingest.discover.sources import show_path
from unhang.model import Note
from unhang.report import (
    SCHEMA,
    Confidence,
    Finding,
    Role,
    SavedReport,
    Status,
    Subject,
    SubjectKind,
    SubjectRole,
)
from unhang.wording import count_of, printable

__all__ = ["read_reports"]

MAX_BYTES: Final = 16 << 20
MAX_REPORTS: Final = 64
MAX_FINDINGS: Final = 256
MAX_ITEMS: Final = 1_024
"""Of every other list: subjects, sentences, ranks."""
MAX_TEXT: Final = 2_000

_CODE: Final = re.compile(r"UH\d{3,4}")
_SLUG: Final = re.compile(r"[a-z][a-z0-9-]{0,60}")
_STATUS: Final[tuple[Status, ...]] = get_args(Status)
_ROLES: Final[tuple[Role, ...]] = get_args(Role)
_CONFIDENCE: Final[tuple[Confidence, ...]] = get_args(Confidence)
_KINDS: Final[tuple[SubjectKind, ...]] = get_args(SubjectKind)
_SIDES: Final[tuple[SubjectRole, ...]] = get_args(SubjectRole)


Word = TypeVar("Word", bound=str)


class _MisfitError(Exception):
    """Why something is no report, or no finding: words that follow its name."""


def read_reports(
    folders: Iterable[Path], named: Iterable[Path], notes: list[Note]
) -> tuple[SavedReport, ...]:
    """Read reports of case directories, and those that the user named; newest first.

    Args:
        folders: "reports" of case directories: a bad file in them is a note.
        named: Files; the user means them.
        notes: What was skipped or cut is added here.

    Raises:
        InputError: A named file is not there, or is no report.
    """
    found = [_named(path, notes) for path in named]
    found += (saved for path in _files(folders, notes) if (saved := _of_case(path, notes)))
    return tuple(sorted(found, key=lambda saved: (-saved.time_ns, saved.source)))


def _named(path: Path, notes: list[Note]) -> SavedReport:
    try:
        return _read(path, notes)
    except _MisfitError as why:
        raise InputError(
            f"{printable(show_path(str(path)))} {why}",
            "Make one with --format json -o report.json, or save it with --case.",
        ) from why


def _of_case(path: Path, notes: list[Note]) -> SavedReport | None:
    try:
        return _read(path, notes)
    except _MisfitError as why:
        notes.append(Note("warning", show_path(str(path)), f"left out: it {why}"))
        return None


def _files(folders: Iterable[Path], notes: list[Note]) -> list[Path]:
    """The newest JSON files of folders; links are not followed."""
    files: list[Path] = []
    for folder in folders:
        try:
            entries = list(folder.iterdir())
        except OSError as error:
            text = f"the folder cannot be read: {error.strerror}"
            notes.append(Note("warning", show_path(str(folder)), text))
            continue
        fit = [path for path in entries if path.suffix == ".json" and not path.is_symlink()]
        files += (path for path in fit if path.is_file())
        if len(entries) > len(fit):
            text = f"{count_of(len(entries) - len(fit), 'entry', 'entries')} that are no JSON file"
            notes.append(Note("info", show_path(str(folder)), f"left out: {text}"))
    files.sort(key=lambda path: (name_told(path.name)[1], path.name), reverse=True)
    if len(files) > MAX_REPORTS:
        text = f"the newest {MAX_REPORTS} of {len(files):,} reports are read"
        notes.append(Note("warning", "reports", text))
    return files[:MAX_REPORTS]


def _read(path: Path, notes: list[Note]) -> SavedReport:
    value = _json(path)
    if not isinstance(value, dict) or not isinstance(value.get("schema"), str):
        raise _MisfitError("is no report of unhang")
    if value["schema"] != SCHEMA:
        schema = printable(value["schema"], 60)
        raise _MisfitError(f"is a report of another schema ({schema}; read is {SCHEMA})")
    status, items = _word(value.get("status"), _STATUS), value.get("findings")
    if not isinstance(items, list):
        raise _MisfitError("has no findings as reports have them")
    source = show_path(str(path))
    command, time_ns = name_told(path.name)
    return SavedReport(
        command=command,
        source=source,
        time_ns=time_ns,
        status=status,
        summary=_text(value, "summary"),
        findings=_findings(items, source, notes),
    )


def _findings(items: list[Any], source: str, notes: list[Note]) -> tuple[Finding, ...]:
    read = items[:MAX_FINDINGS]
    findings = tuple(found for item in read if (found := _fitting(item)))
    if len(findings) < len(read):
        text = (
            f"{count_of(len(read) - len(findings), 'finding')} left out: not of the schema's shape"
        )
        notes.append(Note("warning", source, text))
    if len(items) > len(read):
        text = f"the first {MAX_FINDINGS} of {len(items):,} findings are read"
        notes.append(Note("warning", source, text))
    return findings


def _fitting(item: object) -> Finding | None:
    try:
        return _finding(item)
    except _MisfitError:
        return None


def _json(path: Path) -> Any:  # noqa: ANN401 - whatever is in it
    try:
        if not path.is_file():
            raise _MisfitError("is no file" if path.exists() else "does not exist")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _MisfitError(f"cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise _MisfitError(f"is larger than {MAX_BYTES >> 20} MB")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _MisfitError("is no JSON") from error


def _finding(value: object) -> Finding:
    item = _object(value)
    code, slug, summary = (_text(item, key) for key in ("code", "slug", "summary"))
    if not _CODE.fullmatch(code) or not summary:
        raise _MisfitError("is no finding")
    return Finding(
        id="",
        code=code,
        role=_word(item.get("role"), _ROLES),
        confidence=_word(item.get("confidence"), _CONFIDENCE),
        summary=summary,
        culprits=_ranks(item, "culprits"),
        victims=_ranks(item, "victims"),
        subjects=tuple(_subject(part) for part in _list(item, "subjects")),
        evidence=_texts(item, "evidence"),
        alternatives=_texts(item, "alternatives"),
        actions=_texts(item, "actions"),
        slug=slug if _SLUG.fullmatch(slug) else "",
    )


def _subject(value: object) -> Subject:
    item = _object(value)
    return Subject(
        kind=_word(item.get("kind"), _KINDS),
        id=_text(item, "id"),
        role=_word(item.get("role", "culprit"), _SIDES),
        rank=_number(item, "rank"),
        host=_text(item, "host") or None,
        pid=_number(item, "pid"),
    )


def _word(value: object, words: tuple[Word, ...]) -> Word:
    """One of the words that the schema knows here."""
    for word in words:
        if word == value:
            return word
    raise _MisfitError("has a word that the schema does not know")


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _MisfitError("is no object")
    return value


def _text(item: Mapping[str, Any], key: str) -> str:
    """A string, cut and made fit for every encoding; "" where there is none."""
    value = item.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _MisfitError(f"has a {key} that is no text")
    return printable(value, MAX_TEXT)


def _list(item: Mapping[str, Any], key: str) -> list[Any]:
    value = item.get(key, [])
    if not isinstance(value, list):
        raise _MisfitError(f"has {key} that are no list")
    return value[:MAX_ITEMS]


def _texts(item: Mapping[str, Any], key: str) -> tuple[str, ...]:
    texts = _list(item, key)
    if not all(isinstance(text, str) for text in texts):
        raise _MisfitError(f"has {key} that are no texts")
    return tuple(printable(text, MAX_TEXT) for text in texts)


def _ranks(item: Mapping[str, Any], key: str) -> tuple[int, ...]:
    ranks = _list(item, key)
    if not all(map(is_rank, ranks)):
        raise _MisfitError(f"has {key} that are no ranks")
    return tuple(sorted(set(ranks)))


def _number(item: Mapping[str, Any], key: str) -> int | None:
    number = as_int(item.get(key))
    return number if 0 <= number <= MAX_GROUP_RANK else None
