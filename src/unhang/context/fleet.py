"""Reports of many jobs in one file: what each came to, and whether a launcher should start again.

SQLite, so that several servers may write and a killed one loses nothing that it has acknowledged.
Nothing is judged here: an answer rests on the decisions of the reports, and on how often one root
came again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Final, Literal

from unhang.context.recalled import Past, facts_of, incidents_of, is_same_root
from unhang.context.storms import budget
from unhang.context.tallies import Tally, history_of
from unhang.incoming import fit, value_of

_BUSY_S: Final = 30.0
"""So long a writer waits for another one: each is done within a write to the disk."""
_MOST_OF_JOB: Final = 256
_MOST_OF_FLEET: Final = 500
"""Newest reports over which hosts are counted: older machines were repaired since."""
_STORM_S: Final = 3_600.0
_RARE: Final = 0.05
"""A host is named where chance alone blames some host this often in fewer than 1 of 20 fleets."""

_COLUMNS: Final = (
    "key TEXT PRIMARY KEY",
    "came_s REAL NOT NULL",
    "time_s REAL NOT NULL",
    "job TEXT NOT NULL",
    "status TEXT NOT NULL",
    "facts TEXT NOT NULL",
    "advice TEXT NOT NULL",
    "report BLOB NOT NULL",
)
_TABLES: Final = (
    f"CREATE TABLE IF NOT EXISTS reports ({', '.join(_COLUMNS)}) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS newest ON reports (time_s DESC)",
    "CREATE INDEX IF NOT EXISTS of_job ON reports (job, time_s DESC)",
)


@dataclass(frozen=True, slots=True)
class _Subject:
    kind: str
    id: str
    host: str | None = None


@dataclass(frozen=True, slots=True)
class _Advice:
    action: str = ""
    confidence: str = ""
    text: str = ""
    subjects: list[_Subject] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Advised:
    decision: _Advice | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """One report.

    Attributes:
        key: Its name: of the same bytes the same.
        past: What it came to; its path is the key.
        action, text: What its decision advises, and in which words.
        without: Hosts that its decision would leave out.
    """

    key: str
    past: Past
    action: str
    text: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether to start a job again, for the script that does.

    Attributes:
        action: "restart", "restart-without" `hosts`, or "stop".
        reason: "no-incident", "advised", "comes-again" or "no-advice".
        text: Why, in one sentence.
        incidents: How many of this job are known.
        same_root: How many of them, the newest one too, have its kind and line.
        budget: How often one root may be met.
        last_hour: Incidents of the job within an hour before the newest.
        suspects: Hosts that are blamed more often than chance does it, over the whole fleet.
    """

    action: Literal["restart", "restart-without", "stop"]
    reason: str
    text: str
    hosts: tuple[str, ...] = ()
    incidents: int = 0
    same_root: int = 0
    budget: int = 0
    last_hour: int = 0
    suspects: tuple[Tally, ...] = ()


class FleetStore:
    """The reports in one file."""

    def __init__(self, path: Path) -> None:
        """Make it where it is not there.

        Raises:
            sqlite3.Error: The file is no such store, or cannot be written.
        """
        self._path = path
        with self._open() as db:
            for statement in _TABLES:
                db.execute(statement)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one request: no thread has another's; what is committed is on disk."""
        with closing(sqlite3.connect(self._path, timeout=_BUSY_S)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            with db:
                yield db

    def keep(self, data: bytes) -> tuple[str, bool]:
        """Keep a report; once this returns, it is on disk.

        Args:
            data: `unhang.report/1` as JSON.

        Returns:
            Its key, and whether it is new.

        Raises:
            ValueError: It has not the shape of a report.
            sqlite3.Error: It cannot be written.
        """
        report = value_of(data)
        if not isinstance(report, dict) or report.get("schema") != "unhang.report/1":
            raise ValueError("not of schema unhang.report/1")
        key = hashlib.sha256(data).hexdigest()[:16]
        past = facts_of(self._path, report)
        advice = fit(report, _Advised).decision or _Advice()
        told = {**asdict(past), "path": ""}
        row = (
            key, time.time(), past.time_s, past.job_id, past.status, json.dumps(told),
            json.dumps(asdict(advice)), data,
        )  # fmt: skip
        with self._open() as db:
            done = db.execute("INSERT OR IGNORE INTO reports VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            return key, done.rowcount > 0

    def report(self, key: str) -> bytes | None:
        """A report as it came; None where there is none of that key."""
        with self._open() as db:
            row = db.execute("SELECT report FROM reports WHERE key = ?", (key,)).fetchone()
        return bytes(row[0]) if row else None

    def newest(self, most: int, job: str = "") -> list[Kept]:
        """The newest reports, the newest first; of one job, where it is given."""
        where, given = ("WHERE job = ?", (job, most)) if job else ("", (most,))
        asked = f"SELECT key, facts, advice FROM reports {where} ORDER BY time_s DESC LIMIT ?"  # noqa: S608 - of two texts of ours
        with self._open() as db:
            rows = db.execute(asked, given).fetchall()
        return [_kept(*row) for row in rows]

    def count(self) -> int:
        """How many there are."""
        with self._open() as db:
            return int(db.execute("SELECT count(*) FROM reports").fetchone()[0])

    def answer(self, job: str, budgeted: int = 0) -> Answer:
        """Whether to start a job again.

        Args:
            job: Its identifier.
            budgeted: How often one root may be met; 0 for `UNHANG_RESTART_BUDGET`.
        """
        kept = self.newest(_MOST_OF_JOB, job)
        of_path = {each.past.path: each for each in kept}
        incidents = sorted(
            incidents_of([each.past for each in kept]), key=lambda past: -past.time_s
        )
        if not incidents:
            text = f"No report of job {job or 'without a name'} is known."
            return Answer("restart", "no-incident", text, budget=budgeted or budget())
        fleet = history_of([each.past for each in self.newest(_MOST_OF_FLEET)])
        suspects = tuple(h for h in fleet.hosts if h.chance is not None and h.chance < _RARE)
        last = incidents[0]
        return _answered(of_path[last.path], incidents, budgeted or budget(), suspects)


def _answered(
    last: Kept, incidents: Sequence[Past], limit: int, suspects: tuple[Tally, ...]
) -> Answer:
    same = 1 + sum(is_same_root(past, last.past) for past in incidents[1:])
    action, reason, text = _advised(last)
    if same >= limit and last.past.status == "problem":
        action, reason = "stop", "comes-again"
        text = (
            f"The job met one problem {same} times, which is all that its budget of {limit} lets."
        )
    return Answer(
        action=action,
        reason=reason,
        text=text,
        hosts=last.without if action == "restart-without" else (),
        incidents=len(incidents),
        same_root=same,
        budget=limit,
        last_hour=sum(last.past.time_s - past.time_s < _STORM_S for past in incidents),
        suspects=suspects,
    )


def _advised(last: Kept) -> tuple[Literal["restart", "restart-without", "stop"], str, str]:
    """What the newest report's own decision comes to for a job that has ended."""
    if last.action in ("fix-code", "stop"):
        return "stop", "advised", last.text
    if last.action == "restart-without" and last.without:
        return "restart-without", "advised", last.text
    if last.action in ("restart", "restart-without"):
        return "restart", "advised", last.text
    text = (
        "The newest report advises nothing that a launcher can do: start again within the budget."
    )
    return "restart", "no-advice", text


def _kept(key: str, facts: str, advice: str) -> Kept:
    told = json.loads(facts)
    values = {name: _frozen(told[name]) for name in _FACTS if name in told}
    found = fit(json.loads(advice), _Advice)
    hosts = [each.id if each.kind == "host" else each.host or "" for each in found.subjects]
    sure = found.confidence != "low"
    return Kept(
        key,
        Past(path=Path(key), **values),  # type: ignore[arg-type] # as `keep` has written them
        found.action if sure else "",
        found.text,
        tuple(dict.fromkeys(filter(None, hosts))),
    )


_FACTS: Final = tuple(each.name for each in fields(Past) if each.name != "path")


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
