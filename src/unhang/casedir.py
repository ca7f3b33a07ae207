"""The case directory: its layout, its name, and the manifest that says what came and what did not.

    unhang-cases/<time>-<job>/
        manifest.json     everything below, per rank: what was asked for, what came, why not
        parts/<run>.json  what each node contributed; the manifest is merged from these
        dumps/<backend>/rank_<N>
        stacks/  logs/  env/
        report.json  report.txt

A directory is made once and never overwritten: a second incident gets a second directory.
This module writes and merges; it does not know how anything was collected, and judges nothing.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from unhang.errors import OutputError, UsageError

__all__ = [
    "CASES",
    "Claim",
    "Ending",
    "NodePart",
    "RankPart",
    "cannot_write",
    "claim",
    "clean_name",
    "create_case",
    "merge_manifest",
    "release",
    "save_file",
    "write_ending",
    "write_part",
]

SCHEMA: Final = "unhang.case/1"
CASES: Final = "unhang-cases"
FOLDERS: Final = ("dumps", "stacks", "logs", "env", "parts")
_CLAIM = ".claim.json"
_MOST_CASES = 10_000


@dataclass(frozen=True, slots=True)
class RankPart:
    """What one node has to say of one of its ranks.

    Attributes:
        came: What is there, as "kind": path in the case directory (or a word where no file is).
        missing: What is not, as "kind": why.
        exit_status: As shells say it; None while it runs or where nobody could tell.
        last_seen: Its last line, as its heartbeat tells: file, line, function, age_s.
    """

    rank: int
    host: str
    pid: int
    state: str = ""
    phase: str = ""
    came: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    exit_status: int | None = None
    last_seen: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodePart:
    """What one node contributed.

    Attributes:
        run: Id of the collecting run; one file a run.
        world_size: As its ranks say; 0 where unknown.
        incident: id, reason, detail, time_ns, quiet_s.
        timings_s: Seconds from the detection to the end of each step.
        streams: The command's output: name, path or why it is not there.
        notes: What went wrong while collecting.
    """

    run: str
    host: str
    job: str
    attempt: int
    world_size: int
    command: Sequence[str]
    incident: Mapping[str, object]
    ranks: Sequence[RankPart] = ()
    timings_s: Mapping[str, float] = field(default_factory=dict)
    streams: Sequence[Mapping[str, object]] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """How it went on after the case was made: exit code of the command, or that it moved on."""

    text: str
    exit_code: int | None = None


# ------------------------------------------------------------------ names and places


def clean_name(text: str) -> str:
    """`text` as a part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._")[:64] or "job"


def create_case(
    root: Path, job: str, now_s: float, *, named: Path | None = None, run: str = ""
) -> Path:
    """Make a new case directory with its folders.

    Nodes of one job that were given one directory share it: the n-th incident of each of them goes
    into the n-th directory.

    Args:
        root: Where cases are kept.
        job: The job's id.
        now_s: Wall clock.
        named: The directory that the user wants; the first free of it, it-2, it-3… is taken.
        run: Who asks, where other runs of the same job may have been given the same directory.

    Raises:
        OutputError: It cannot be made.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_s))
    first = named or root / f"{stamp}-{clean_name(job)}"
    for number in range(1, _MOST_CASES):
        path = first if number == 1 else first.with_name(f"{first.name}-{number}")
        try:
            shared = bool(named and run) and _can_join(path, job, run)
            path.mkdir(parents=True, exist_ok=shared or (number == 1 and _is_reserved(path)))
            if run and named and not (path / _CLAIM).exists():
                _write_claim(path / _CLAIM, job)
            for folder in FOLDERS:
                (path / folder).mkdir(exist_ok=shared)
        except FileExistsError:
            continue
        except OSError as error:
            raise cannot_write(path, error) from error
        return path
    raise OutputError(f"{first} and {_MOST_CASES} more like it are taken", "remove old cases")


def _can_join(path: Path, job: str, run: str) -> bool:
    """Whether another run of this job made this case, and `run` has no part in it yet."""
    return (
        _owner(path / _CLAIM) == job and not (path / "parts" / f"{clean_name(run)}.json").exists()
    )


def _is_reserved(path: Path) -> bool:
    """Whether there is nothing in it but a claim."""
    return path.is_dir() and all(entry.name == _CLAIM for entry in path.iterdir())


def cannot_write(path: Path, error: OSError) -> OutputError:
    """The sentence for a case that cannot be written, with what helps against it."""
    hints = {
        errno.ENOSPC: "make room, or name another place with --case",
        errno.EDQUOT: "the quota is used up: name another place with --case",
        errno.EROFS: "the file system is read-only: name another place with --case",
        errno.EACCES: "name a directory that you may write to with --case",
    }
    hint = hints.get(error.errno or 0, "name another place with --case")
    return OutputError(f"cannot write the case {path}: {error.strerror}", hint)


@dataclass(frozen=True, slots=True)
class Claim:
    """A directory that the user named with --case, reserved for one job."""

    path: Path
    job: str


def claim(path: Path, job: str) -> Claim:
    """Reserve a directory for a job before it starts, so that nobody finds out at 3 a.m.

    Other runs of the same job (its other nodes) may claim it too.

    Raises:
        UsageError: It holds something, or belongs to another job.
        OutputError: It cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not _is_reserved(path) and not (path / _CLAIM).exists():
            raise UsageError(
                f"{path} is not empty", "a case never overwrites: name a new directory"
            )
        _write_claim(path / _CLAIM, job)
    except FileExistsError as error:
        owner = _owner(path / _CLAIM) if path.is_dir() else ""
        if not path.is_dir():
            raise UsageError(f"{path} is not a directory", "name a directory") from error
        if owner != job:
            raise UsageError(
                f"{path} belongs to another run ({owner or 'unknown'})",
                "name another directory, or the same --job where both are one job",
            ) from error
    except OSError as error:
        raise cannot_write(path, error) from error
    return Claim(path, job)


def _write_claim(path: Path, job: str) -> None:
    with path.open("x", encoding="utf-8") as stream:
        json.dump({"job": job}, stream)


def _owner(path: Path) -> str:
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))["job"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return owner if isinstance(owner, str) else ""


def release(taken: Claim) -> None:
    """Give an unused reservation back; a directory that holds a case keeps it."""
    if not _is_reserved(taken.path):
        return
    try:
        (taken.path / _CLAIM).unlink(missing_ok=True)
        taken.path.rmdir()
    except OSError:
        return  # Another node of the job was quicker.


# ------------------------------------------------------------------ writing


def save_file(path: Path, data: bytes) -> None:
    """Write a file that appears whole or not at all, and is on disk when this returns.

    Raises:
        OSError: It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_part(case: Path, part: NodePart, *, merge: bool = True) -> None:
    """Write what one node contributed, then merge the manifest anew.

    Args:
        case: The case directory.
        part: What the node contributed.
        merge: False where many parts are written one after the other and merged at the end.

    Raises:
        OSError: It cannot be written.
    """
    save_file(case / "parts" / f"{clean_name(part.run)}.json", _json(asdict(part)))
    if merge:
        merge_manifest(case)


def write_ending(case: Path, run: str, ending: Ending) -> None:
    """Add how it went on, then merge the manifest anew.

    Raises:
        OSError: It cannot be written.
    """
    save_file(case / "parts" / f"{clean_name(run)}.end.json", _json(asdict(ending)))
    merge_manifest(case)


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, default=str) + "\n").encode()


def merge_manifest(case: Path) -> None:
    """Write manifest.json from the parts of all nodes that are there.

    Every node does so after its own part is in place; the last one sees all.
    """
    parts: list[dict[str, Any]] = []
    endings: dict[str, Any] = {}
    for path in sorted((case / "parts").glob("*.json")):
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if path.name.endswith(".end.json"):
            endings[path.name.removesuffix(".end.json")] = value
        elif isinstance(value, dict):
            parts.append(value)
    save_file(case / "manifest.json", _json(_manifest(parts, endings)))


def _manifest(parts: Sequence[Mapping[str, Any]], endings: Mapping[str, Any]) -> dict[str, Any]:
    begun = [part for part in parts if part["incident"].get("time_ns")]
    first = min(begun, key=lambda part: part["incident"]["time_ns"], default={})
    world = max((part["world_size"] for part in parts), default=0)
    ranks = {str(rank["rank"]): rank for part in parts for rank in part["ranks"]}
    for number in range(world):
        ranks.setdefault(
            str(number),
            {"rank": number, "came": {}, "missing": {"all": "no node reported this rank"}},
        )
    nodes = [
        {key: part[key] for key in ("run", "host", "timings_s", "streams", "notes")}
        | {"ranks": [rank["rank"] for rank in part["ranks"]], "ending": endings.get(part["run"])}
        for part in parts
    ]
    return {
        "schema": SCHEMA,
        "world_size": world,
        "job": {key: first.get(key) for key in ("job", "attempt", "command")},
        "incident": first.get("incident", {}),
        "nodes": nodes,
        "ranks": {key: ranks[key] for key in sorted(ranks, key=int)},
    }
