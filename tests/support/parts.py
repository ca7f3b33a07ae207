"""Verdicts from parts held against verdicts from the dumps that the parts were made of."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from unhang.analysis import diagnose
from unhang.errors import NoEvidenceError, UnhangError
from unhang.ingest import load
from unhang.ingest.discover.naming import looks_foreign
from unhang.ingest.reducing import reduce
from unhang.reports.json import render

__all__ = ["differences", "folders_of_dumps", "parts_of", "verdict_of"]

_LOOKED_AT = ("status", "summary", "job", "incident", "findings", "decision", "ranks", "stacks")


def folders_of_dumps(root: Path) -> list[Path]:
    """Folders below a root with files that may be dumps."""
    files = (path for path in root.rglob("*") if path.is_file() and not looks_foreign(path.name))
    return sorted({path.parent for path in files})


def verdict_of(paths: Sequence[Path], **options: Any) -> str:  # noqa: ANN401 - options of load
    """The JSON of the verdict, or the sentence that says why there is none."""
    try:
        return render(diagnose(load(list(paths), **options)))
    except UnhangError as error:
        return error.message


def parts_of(dumps: Sequence[Path], each: int, folder: Path, *, all_times: bool) -> list[Path]:
    """Parts of so many dumps each."""
    made = []
    for number, start in enumerate(range(0, len(dumps), each)):
        place = folder / f"node-{number:05}.part"
        with suppress(NoEvidenceError):  # logs and the like, which do not travel
            place.write_bytes(reduce(dumps[start : start + each], all_times=all_times).data)
            made.append(place)
    return made


def differences(whole: str, reduced: str) -> Iterator[str]:
    """What a verdict from parts says otherwise; that nothing can be told of times is allowed."""
    if whole == reduced:
        return
    if not whole.startswith("{") or not reduced.startswith("{"):
        yield f"{whole[:200]!r} became {reduced[:200]!r}"
        return
    before, after = json.loads(whole), json.loads(reduced)
    untimed = any("Who is slow was not looked at" in note["text"] for note in after["notes"])
    if after["status"] == "insufficient" and untimed:
        if before["status"] not in ("healthy", "slow", "insufficient"):
            yield f"{before['status']} became not enough evidence"
        return
    for key in _LOOKED_AT:
        if before[key] != after[key]:
            yield f"{key}: {before[key]!s:.300} became {after[key]!s:.300}"
