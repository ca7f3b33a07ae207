"""Whom a case directory belongs to: reservations, and the nodes of one job that share it.

A directory that was named with --case is reserved before the job starts. Runs of the same job (its
other nodes) may claim it too; each leaves its name there. A run announces an incident in
its directory, the others read that while they watch, and take part. Nothing is sent: the file
system is the channel, and what is read from it is not trusted.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from unhang.casedir.new import undone_if_empty, write_new
from unhang.errors import OutputError, UsageError
from unhang.record.contact.runtime_dir import private_dir, safe_name
from unhang.regular import open_regular
from unhang.wording import printable

MOST_CASES: Final = 10_000
_CLAIM = ".claim.json"
_ANNOUNCED = ".incident.json"
_ENDING = ".ending.json"
_MOST_BYTES = 1 << 16
_TRIES, _TRY_S = 20, 0.05
_MOST_S = 1e11
"""No clock shows the year 5138: a number that is larger is no time."""
_OLD_S = 600.0
"""Nodes of one incident come within minutes; after that, one is another incident."""


def numbered(first: Path, number: int) -> Path:
    """The path of the n-th case of a name: "case", "case-2", "case-3"."""
    return first if number == 1 else first.with_name(f"{first.name}-{number}")


def part_path(case: Path, run: str) -> Path:
    """Where a run's part of a case is."""
    return case / "parts" / f"{safe_name(run)}.json"


def ending_path(case: Path, run: str) -> Path:
    """Where it is said how it went on for a run after its part of a case."""
    return part_path(case, run).with_suffix(".end.json")


def is_reserved(path: Path) -> bool:
    """Whether there is nothing in it but claims."""
    return path.is_dir() and all(entry.name.startswith(".claim") for entry in path.iterdir())


def cannot_write(path: Path, error: OSError) -> OutputError:
    """The sentence for a case that cannot be written, with what helps against it."""
    hints = {
        errno.ENOSPC: "free space, or name another place with --case",
        errno.EDQUOT: "the quota is used up: name another place with --case",
        errno.EROFS: "the file system is read-only: name another place with --case",
        errno.EACCES: "name a directory that you may write to with --case",
    }
    hint = hints.get(error.errno or 0, "name another place with --case")
    name = printable(str(path))
    return OutputError(f"cannot write the case {name}: {error.strerror}", hint)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A directory that the user named with --case, reserved for one job; `run` is who asked."""

    path: Path
    job: str
    run: str = ""


def claim(path: Path, job: str, run: str = "") -> Reservation:
    """Reserve a directory for a job before it starts, so that no user finds out at 3 a.m.

    Other runs of the same job (its other nodes) may claim it too; each leaves its name there.

    Raises:
        UsageError: It holds something, or belongs to another job.
        OutputError: It cannot be written.
    """
    try:
        with undone_if_empty(path):
            _claim(path, job, run)
    except FileExistsError as error:
        raise UsageError(f"{path} is not a directory", "name a directory") from error
    except OSError as error:
        raise cannot_write(path, error) from error
    return Reservation(path, job, run)


def _claim(path: Path, job: str, run: str) -> None:
    private_dir(path)
    if not is_reserved(path) and not (path / _CLAIM).exists():
        raise UsageError(f"{path} is not empty", "a case never overwrites: name a new directory")
    reserve(path, job)
    owner = _owner_soon(path)
    if owner != job:
        raise UsageError(
            f"{path} belongs to another run ({owner or 'unknown'})",
            "name another directory, or the same --job if both are one job",
        )
    if run:
        _claim_of(path, run).touch(mode=0o600)


def _claim_of(path: Path, run: str) -> Path:
    return path / f".claim-{safe_name(run)}"


def reserve(path: Path, job: str) -> None:
    """Write whose a directory is, unless that is written there already.

    Raises:
        OSError: It cannot be written.
    """
    _write_once(path / _CLAIM, {"job": job})


def _write_once(path: Path, value: Mapping[str, object]) -> None:
    """The first writer wins; a reader that is too early sees no object, and looks again later."""
    with suppress(FileExistsError):
        write_new(path, json.dumps(value))


def _owner(path: Path) -> str:
    """The job that a directory is reserved for, or ""."""
    owner = _read_object(path / _CLAIM).get("job")
    return owner if isinstance(owner, str) else ""


def _owner_soon(path: Path) -> str:
    """The same, where another node may be about to write it."""
    for _ in range(_TRIES):
        if owner := _owner(path):
            return owner
        time.sleep(_TRY_S)
    return ""


def _read_object(path: Path) -> dict[str, Any]:
    """A small JSON object that another program wrote; empty where it is none."""
    try:
        with open_regular(path) as stream:
            value = json.loads(stream.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def release(taken: Reservation) -> None:
    """Give an unused reservation back; a directory that holds a case, or has others, keeps it."""
    with suppress(OSError):
        if taken.run:
            _claim_of(taken.path, taken.run).unlink(missing_ok=True)
        if [entry.name for entry in taken.path.iterdir()] == [_CLAIM]:
            (taken.path / _CLAIM).unlink()
            taken.path.rmdir()


# ------------------------------------------------------------------ nodes that share a case


@dataclass(frozen=True, slots=True)
class Announcement:
    """An incident that a run of the job has seen: its text is for people, and not to be trusted."""

    run: str
    kind: str
    detail: str
    time_s: float


def announce(case: Path, announcement: Announcement) -> None:
    """Let the other nodes of the job know; the first to do so wins.

    Raises:
        OSError: It cannot be written.
    """
    _write_once(case / _ANNOUNCED, asdict(announcement))


def can_join(path: Path, named: Path, job: str, run: str) -> bool:
    """Whether another run of this job has made this case just now, and `run` has no part in it.

    Not where it has written since that the job goes on: what is seen now is of another moment.

    Args:
        path: The case.
        named: The directory that the runs share; the case itself, or it with a number.
        job: The job.
        run: Who wants to join.
    """
    if _owner(path) != job or part_path(path, run).exists():
        return False
    found = _announcement(path)
    if found is None:  # Reserved, or a run is about to say what it is for.
        return not (path / "manifest.json").exists()
    if _goes_on(path, found.run):
        return False
    return _claim_of(named, found.run).exists() and abs(time.time() - found.time_s) < _OLD_S


def _goes_on(path: Path, run: str) -> bool:
    """Whether a run has closed its incident, and not because its command has ended."""
    ending = _read_object(ending_path(path, run))
    return bool(ending) and ending.get("exit_code") is None


def heard_of(named: Path, job: str, run: str) -> Announcement | None:
    """The incident in which `run` has no part yet, if another run has announced one."""
    for number in range(1, MOST_CASES):
        path = numbered(named, number)
        if not path.exists():
            break
        found = _announcement(path)
        if found is not None and found.run != run and can_join(path, named, job, run):
            return found
    return None


def tell_of_end(case: Path, run: str) -> None:
    """Let the other nodes know, before it is done, that a run ends the job by order.

    Ranks that end from then on obey, and their failures are no incident of their own.

    Raises:
        OSError: It cannot be written.
    """
    _write_once(case / _ENDING, {"run": run})


def is_being_ended(case: Path) -> bool:
    """Whether a run of the job has said so in this case."""
    return (case / _ENDING).exists()


def _announcement(case: Path) -> Announcement | None:
    found = _read_object(case / _ANNOUNCED)
    words = [found.get(key) for key in ("run", "kind", "detail")]
    time_s = found.get("time_s")
    if not all(isinstance(word, str) for word in words) or not isinstance(time_s, (int, float)):
        return None
    if not 0 <= time_s < _MOST_S:
        return None
    run, kind, detail = (str(word)[:500] for word in words)
    return Announcement(run, kind, detail, float(time_s))


def without_part(named: Path, case: Path) -> list[str]:
    """The runs that share a directory and have not given their part of a case yet."""
    parts = {path.stem for path in (case / "parts").glob("*.json")}
    runs = {path.name.removeprefix(".claim-") for path in named.glob(".claim-*")}
    return sorted(runs - parts)
