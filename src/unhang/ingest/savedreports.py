"""Reports of other commands, read as evidence: their findings as data, checked part by part.

Only what the schema "unhang.report/1" promises is taken over, in bounded size; unknown keys are
ignored, findings of another shape are left out and counted. What a finding says about ranks is a
claim of that command about its own run: the analysis decides what of it is about this job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from unhang.bounds import MAX_RANKS
from unhang.casedir.reports import name_told
from unhang.errors import InputError
from unhang.incoming import fit, fitting, value_of
from unhang.ingest.columns.values import MAX_GROUP_RANK
from unhang.ingest.discover.sources import show_path
from unhang.kinds import FAMILIES
from unhang.model import Note
from unhang.regular import open_regular, reason
from unhang.report import SCHEMA, Confidence, Finding, Role, SavedReport, Status, Subject
from unhang.wording import count_of, printable

MAX_BYTES: Final = 16 << 20
MAX_REPORTS: Final = 64
MAX_FINDINGS: Final = 256
MAX_ITEMS: Final = 1_024
"""Of every other list: subjects, sentences, ranks."""
MAX_TEXT: Final = 2_000

_Rank = Annotated[int, Meta(ge=0, lt=MAX_RANKS)]


@dataclass(frozen=True, slots=True)
class _Headed:
    schema: str


@dataclass(frozen=True, slots=True)
class _Whole:
    """What is taken over of a report."""

    status: Status
    findings: list[Any]
    summary: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    """What is taken over of a finding: no calls, waits and sites."""

    code: Annotated[str, Meta(pattern=r"^UH[0-9]{3,4}\Z")]
    role: Role
    confidence: Confidence
    summary: Annotated[str, Meta(min_length=1)]
    culprits: tuple[_Rank, ...] = ()
    victims: tuple[_Rank, ...] = ()
    subjects: tuple[Subject, ...] = ()
    evidence: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    slug: Annotated[str, Meta(pattern=r"^([a-z][a-z0-9-]{0,60})?\Z")] = ""
    family: str = ""


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
        named = (path for path in entries if path.suffix == ".json" and not path.is_symlink())
        fit = [path for path in named if path.is_file()]
        files += fit
        if len(entries) > len(fit):
            text = (
                f"{count_of(len(entries) - len(fit), 'entry', 'entries')} that are not JSON files"
            )
            notes.append(Note("info", show_path(str(folder)), f"left out: {text}"))
    files.sort(key=lambda path: (name_told(path.name)[1], path.name), reverse=True)
    if len(files) > MAX_REPORTS:
        text = f"the newest {MAX_REPORTS} of {len(files):,} reports are read"
        notes.append(Note("warning", "reports", text))
    return files[:MAX_REPORTS]


def _read(path: Path, notes: list[Note]) -> SavedReport:
    value = _json(path)
    try:
        schema = fit(value, _Headed).schema
    except ValueError as error:
        raise _MisfitError("is not a report of unhang") from error
    if schema != SCHEMA:
        raise _MisfitError(
            f"is a report of another schema ({printable(schema, 60)}; read is {SCHEMA})"
        )
    try:
        whole = fit(value, _Whole)
    except ValueError as why:
        raise _MisfitError(f"does not match its schema: {printable(str(why), 120)}") from why
    source = show_path(str(path))
    command, time_ns = name_told(path.name)
    return SavedReport(
        command=command,
        source=source,
        time_ns=time_ns,
        status=whole.status,
        summary=printable(whole.summary, MAX_TEXT),
        findings=_findings(whole.findings, source, notes),
    )


def _findings(items: list[Any], source: str, notes: list[Note]) -> tuple[Finding, ...]:
    read = items[:MAX_FINDINGS]
    findings = tuple(_finding(found) for found in fitting(read, _Found))
    if len(findings) < len(read):
        text = f"{count_of(len(read) - len(findings), 'finding')} skipped: not of the schema"
        notes.append(Note("warning", source, text))
    if len(items) > len(read):
        text = f"the first {MAX_FINDINGS} of {len(items):,} findings are read"
        notes.append(Note("warning", source, text))
    return findings


def _json(path: Path) -> Any:  # noqa: ANN401 - whatever is in it
    try:
        if not path.is_file():
            raise _MisfitError("is not a file" if path.exists() else "does not exist")
        with open_regular(path) as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _MisfitError(f"cannot be read: {reason(error)}") from error
    if len(data) > MAX_BYTES:
        raise _MisfitError(f"is larger than {MAX_BYTES >> 20} MB")
    try:
        return value_of(data)
    except ValueError as error:
        raise _MisfitError("is no JSON") from error


def _finding(found: _Found) -> Finding:
    """Cut, and made fit for every encoding."""
    return Finding(
        id="",
        code=found.code,
        role=found.role,
        confidence=found.confidence,
        summary=printable(found.summary, MAX_TEXT),
        culprits=_ranks(found.culprits),
        victims=_ranks(found.victims),
        subjects=tuple(_subject(subject) for subject in found.subjects[:MAX_ITEMS]),
        evidence=_texts(found.evidence),
        alternatives=_texts(found.alternatives),
        actions=_texts(found.actions),
        slug=found.slug,
        family=next((family for family in FAMILIES if family == found.family), ""),
    )


def _subject(subject: Subject) -> Subject:
    return replace(
        subject,
        id=printable(subject.id, MAX_TEXT),
        host=printable(subject.host, MAX_TEXT) if subject.host else None,
        rank=_number(subject.rank),
        pid=_number(subject.pid),
    )


def _texts(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(printable(text, MAX_TEXT) for text in texts[:MAX_ITEMS])


def _ranks(ranks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(ranks[:MAX_ITEMS])))


def _number(number: int | None) -> int | None:
    return number if number is not None and 0 <= number <= MAX_GROUP_RANK else None
