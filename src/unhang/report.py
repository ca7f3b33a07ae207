"""The verdict as frozen, versioned data: `Report` and what it is made of.

Every command that judges makes one, every renderer reads one, and `to_json` is the contract
(schema "unhang.report/1"; `report.schema.json` next to this file). Nothing here draws or decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache
from html import escape
from typing import Any, Literal, TypeAlias

from unhang.catalogue import kind_of, url_of
from unhang.kinds import Family, Role
from unhang.model import AskedNode, Frame, Group, Note

__all__ = [
    "SCHEMA",
    "Action",
    "Before",
    "Blamed",
    "CallSide",
    "Checked",
    "Confidence",
    "Decision",
    "Excerpt",
    "Finding",
    "GroupRef",
    "Identity",
    "Incident",
    "Job",
    "RankState",
    "RankStatus",
    "Reason",
    "Report",
    "Role",
    "SavedReport",
    "Site",
    "Status",
    "Step",
    "Subject",
    "SubjectKind",
    "SubjectRole",
    "Unlike",
    "UnlikeSide",
    "Wait",
    "to_json",
]

SCHEMA = "unhang.report/1"

Status: TypeAlias = Literal["healthy", "problem", "slow", "insufficient"]
Confidence: TypeAlias = Literal["high", "medium", "low"]
SubjectKind: TypeAlias = Literal["rank", "host", "gpu", "link", "process", "file", "setting"]
SubjectRole: TypeAlias = Literal["culprit", "victim"]
RankState: TypeAlias = Literal[
    "ok",
    "waiting",
    "culprit",
    "ahead",
    "behind",
    "idle",
    "silent",
    "unreadable",
    "unknown",
]

Action: TypeAlias = Literal["wait", "fix-code", "restart", "restart-without", "look-first", "stop"]
Reason: TypeAlias = Literal[
    "nothing-wrong",
    "slow",
    "moves",
    "pauses",
    "idle",
    "spins",
    "wrong-calls",
    "deadlock",
    "program-failed",
    "left-early",
    "interrupted",
    "bad-node",
    "bad-node-unproven",
    "away",
    "outside",
    "stopped",
    "ended",
    "transport",
    "surroundings",
    "unsure",
    "not-reached",
    "not-enough-evidence",
    "comes-again",
]


@dataclass(frozen=True, slots=True)
class GroupRef:
    """A process group as a finding names it.

    Attributes:
        backend: Whose group is meant, where two backends have one of this name; else "".
    """

    name: str
    description: str
    size: int
    backend: str = ""

    @classmethod
    def of(cls, group: Group) -> GroupRef:
        """How findings name a group of the case."""
        backend = group.backend if group.has_twin else ""
        return cls(group.name, group.description, group.size, backend)


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom or what a finding is about, where ranks alone do not say it.

    Attributes:
        kind: rank, host, gpu, link, process, file or setting.
        id: How people name it ("node02", "gpu 3", "node01 -> node02:29500").
    """

    kind: SubjectKind
    id: str
    role: SubjectRole = "culprit"
    rank: int | None = None
    host: str | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class CallSide:
    """What one side called: the ranks that agree, and their call.

    Attributes:
        role: "culprit", "victim" or "peer".
        sizes, dtypes: Inputs; outputs only where the inputs do not tell the sides apart.
        peer: The other *global* rank of a send or receive, or None.
        state: "scheduled", "started", "completed", "failed", or "" where it was never called.
    """

    ranks: tuple[int, ...]
    role: str
    group: GroupRef | None = None
    seq: int | None = None
    p2p_seq: int | None = None
    op: str = ""
    sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    peer: int | None = None
    state: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """One link of a chain or loop: `waiter` waits for `target` in `call`.

    In JSON the keys are "from" and "to".
    """

    waiter: int
    target: int
    call: str


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of the user's code, saved when the incident was, without secrets.

    Attributes:
        first: Number of the first of `lines`.
        changed: The file was written after the process began: it may run other lines than these.
        digest: "sha256:…" of the whole file, or "".
    """

    first: int
    lines: tuple[str, ...]
    changed: bool = False
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """Where ranks stand in their own code.

    Attributes:
        role: "culprit" or "victim".
        stack_id: Key in `Report.stacks`, or "".
        age_s: How old this knowledge is in seconds, where it is not of the moment of the dump.
        after: The finished call that they were last seen leaving, where this is its line and where
            they stand now is not known; "" where they stand here.
        source: The code there, where the case has it.
    """

    ranks: tuple[int, ...]
    role: str
    file: str
    line: int
    function: str
    stack_id: str = ""
    age_s: float | None = None
    after: str = ""
    source: Excerpt | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    `culprits` may be empty: then no single rank is at fault. Ranks are sorted ascending.

    Attributes:
        slug, family, url: Of its kind, filled from the code; "" for a code that is not known here.
        moving: Culprits that were seen to move or to work: busy or slow rather than stuck.
        pausing: Culprits that stand still for no longer than a pause of their own may take.
        confidence_reasons: What lowered the confidence, the gravest first; empty where it is high,
            or where nothing tells.
        confidence_supports: What raised it: other sources that say the same.
    """

    id: str
    code: str
    role: Role
    confidence: Confidence
    summary: str
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    subjects: tuple[Subject, ...] = ()
    group: GroupRef | None = None
    seq: int | None = None
    op: str | None = None
    calls: tuple[CallSide, ...] = ()
    waits: tuple[Wait, ...] = ()
    sites: tuple[Site, ...] = ()
    evidence: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    caused_by: tuple[str, ...] = ()
    slug: str = ""
    family: Family | Literal[""] = ""
    moving: tuple[int, ...] = ()
    pausing: tuple[int, ...] = ()
    url: str = ""
    confidence_reasons: tuple[str, ...] = ()
    confidence_supports: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (kind := kind_of(self.code)) is not None:
            object.__setattr__(self, "slug", kind.slug)
            object.__setattr__(self, "family", kind.family)
            object.__setattr__(self, "url", url_of(kind))

    @property
    def loop(self) -> tuple[int, ...]:
        """The ranks of its circle, in order; empty where waiting does not come back."""
        closed = self.waits and self.waits[-1].target == self.waits[0].waiter
        return tuple(wait.waiter for wait in self.waits) if closed else ()


@dataclass(frozen=True, slots=True)
class RankStatus:
    """What is known of one expected rank.

    Attributes:
        head: Its earliest unfinished call in words, or "".
        detail: One short phrase for the table.
    """

    rank: int
    status: RankState
    detail: str = ""
    head: str = ""
    host: str = ""
    pid: int | None = None
    replica: str = ""
    stack_id: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """The job as the evidence shows it. Times are wall clock in ns; 0 where unknown.

    Attributes:
        ranks_seen: Ranks with a dump, or other evidence.
        ranks_by_last_calls: Those among them that left no dump but their ring of last calls.
    """

    world_size: int = 0
    ranks_seen: int = 0
    groups: int = 0
    calls: int = 0
    backends: tuple[str, ...] = ()
    format_versions: tuple[str, ...] = ()
    first_ns: int = 0
    last_ns: int = 0
    ranks_by_last_calls: int = 0


@dataclass(frozen=True, slots=True)
class Incident:
    """What is known of the moment: empty strings where nothing tells."""

    id: str = ""
    job_id: str = ""
    attempt: str = ""
    reason: str = ""
    newest_ns: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next: a command that runs as it stands.

    Attributes:
        why: What it shows, and where to run it if that matters.
    """

    command: str
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now: advice that a script may follow. docs/decisions.md has the table.

    Attributes:
        action: wait; fix-code: the same again ends the same way; restart; restart-without
            `subjects`; look-first: at `subjects`, before anything is decided; stop: restarts have
            ended the same way too often.
        reason: Why, as a word that never changes.
        subjects: Ranks, hosts, GPUs… that the action is about; may be empty.
        text: All of it in one sentence for people.
        moving: Ranks outside of any call, blamed or not, that were seen to move or to work.
        pausing: Those that stand still for no longer than a pause of their own may take. While
            there are any of these two, the job may go on by itself: nothing should be ended.
    """

    action: Action
    reason: Reason
    confidence: Confidence
    subjects: tuple[Subject, ...] = ()
    text: str = ""
    moving: tuple[int, ...] = ()
    pausing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose incident it is, as the case tells: empty where it does not.

    Attributes:
        hosts: Of its ranks.
        time_ns: When it was seen, wall clock; 0 where unknown.
        ran_s: For how long the job had run by then, in seconds; 0 where unknown.
        command: What was run, without secrets.
        revision: Of the repository that it ran in: "4f2a9c1 (main)".
        case: Name of the case's directory.
        versions: "torch 2.13.0", "Python 3.11.7".
    """

    job: str = ""
    attempt: str = ""
    hosts: tuple[str, ...] = ()
    time_ns: int = 0
    ran_s: float = 0.0
    command: tuple[str, ...] = ()
    revision: str = ""
    case: str = ""
    versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Blamed:
    """How often a host had the culprit, of the incidents at one place.

    Attributes:
        chance: How likely it is that any host had it so often, were all alike; None where that
            means nothing.
    """

    host: str
    times: int
    chance: float | None = None


@dataclass(frozen=True, slots=True)
class UnlikeSide:
    """What some ranks have in common, and others have otherwise.

    Attributes:
        value: "" where it is not set.
        ranks: Below zero: nodes of which no rank is known.
    """

    value: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unlike:
    """A version, limit, variable or the arguments, unlike on some ranks; most ranks' side first."""

    name: str
    sides: tuple[UnlikeSide, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """One line of the doctor's checklist.

    Attributes:
        code: Of the check.
        name: What was looked at.
        mark: "ok", "info", "warn", "fail" or "skip".
        seen: What was seen, one sentence.
        remedy: What to do about it; "" where nothing is.
    """

    code: str
    name: str
    mark: str
    seen: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Before:
    """Earlier incidents of the same kind at the same line, by the reports of cases next to it.

    Attributes:
        times: How many there are, this one among them.
        place: "train.py:26".
        hosts: Those that had the culprit more than once.
        last_ns: When the one before was, wall clock.
        looked_at: How many reports were read.
    """

    times: int
    place: str
    hosts: tuple[Blamed, ...] = ()
    last_ns: int = 0
    looked_at: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict of one command about one incident. Causes stand before consequences.

    Attributes:
        next: Commands, the most telling first; empty where it is unknown where the evidence lies.
        decision: What to do now; None from commands that do not judge a job.
        identity: Whose it is; None where no case tells.
        before: The same in earlier cases; None where there is none.
        differences: What its case tells of ranks that is not alike on all of them.
        nodes: That were asked for evidence; empty where no case tells.
        checks: What the doctor looked at; empty of other commands.
    """

    status: Status
    summary: str
    job: Job = field(default_factory=Job)
    incident: Incident = field(default_factory=Incident)
    findings: tuple[Finding, ...] = ()
    ranks: tuple[RankStatus, ...] = ()
    stacks: Mapping[str, tuple[Frame, ...]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    tool_version: str = ""
    schema: str = SCHEMA
    next: tuple[Step, ...] = ()
    decision: Decision | None = None
    identity: Identity | None = None
    before: Before | None = None
    differences: tuple[Unlike, ...] = ()
    nodes: tuple[AskedNode, ...] = ()
    checks: tuple[Checked, ...] = ()

    def __str__(self) -> str:
        """The verdict in a dozen lines of text, as `unhang diagnose` prints it."""
        return SHOWN["text"](self) if "text" in SHOWN else self.summary

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        return SHOWN["html"](self) if "html" in SHOWN else escape(self.summary)

    @property
    def causes(self) -> tuple[Finding, ...]:
        """The findings of role cause."""
        return tuple(f for f in self.findings if f.role == "cause")

    @property
    def culprits(self) -> tuple[int, ...]:
        """All culprit ranks of all causes, ascending, each once."""
        return tuple(sorted({rank for f in self.causes for rank in f.culprits}))


SHOWN: dict[str, Callable[[Report], str]] = {}
"""How a report shows itself, by form; filled by `unhang.reports`, which stands above this."""


@dataclass(frozen=True, slots=True)
class SavedReport:
    """What another command found, as its report says that lies in the case or was named.

    Attributes:
        command: Whose it is ("doctor"), or "" where nothing tells.
        source: Its file, as shown to a person.
        time_ns: When it was made, wall clock; 0 where nothing tells.
        findings: Its findings, without calls, waits and sites; nothing in them is trusted.
    """

    command: str
    source: str
    time_ns: int
    status: Status
    summary: str
    findings: tuple[Finding, ...] = ()


_RENAMED = {"waiter": "from", "target": "to"}


@lru_cache(maxsize=64)
def _keys(kind: type) -> tuple[tuple[str, str], ...]:
    """Field and JSON key of a dataclass, in order."""
    return tuple((f.name, _RENAMED.get(f.name, f.name)) for f in fields(kind))


def to_json(value: object) -> Any:  # noqa: ANN401 - JSON is what json.dumps takes
    """Turn a Report, or any part of one, into what `json.dumps` takes.

    Keys are the field names, except that a wait has "from" and "to".
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {key: to_json(getattr(value, name)) for name, key in _keys(type(value))}
    return value
