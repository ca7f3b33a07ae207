"""What the recorder knows of the process that it lives in: one object, made when it is armed.

Identity is strict: a process is rank R only once `init_process_group` has returned in it. Before
that, and in launchers and data-loader workers, which inherit RANK, it has a role and no rank.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from time import time_ns
from typing import Final

from unhang.rankenv import LAUNCHERS, attempt_of, rank_env
from unhang.record.calls.ring import Ring
from unhang.record.contact import marks
from unhang.record.contact.beat import Beat
from unhang.record.contact.beatlayout import Phase, Word
from unhang.record.contact.marks import Mark
from unhang.record.settings import Settings, read_settings
from unhang.record.statement import Meeting, handed_on
from unhang.telltale import without_secrets


class Failures:
    """What went wrong inside the recorder: kept and reported, never raised into the job."""

    __slots__ = ("_counts",)

    MOST = 50

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, what: str, error: BaseException | str = "") -> None:
        """Note a failure; equal ones are counted."""
        text = what
        if isinstance(error, BaseException):
            text += f": {type(error).__name__}: {error}"
        elif error:
            text += f": {error}"
        text = without_secrets(text[:500])
        if text in self._counts or len(self._counts) < self.MOST:
            self._counts[text] = self._counts.get(text, 0) + 1

    def texts(self) -> tuple[str, ...]:
        """All failures, oldest first, with how often where that is more than once."""
        return tuple(
            text if count == 1 else f"{text} ({count} times)"
            for text, count in list(self._counts.items())
        )


@dataclass(frozen=True, slots=True, repr=False)
class GroupFact:
    """A process group as torch's Python side knows it: the truth that Gloo's dumps lack.

    Attributes:
        ranks: Global ranks in group order.
        backend: Names that its backends give themselves, with commas.
        timeout_ms: -1 where the backend does not say.
        hooked: Those of them for which a hook of torch's records.
    """

    name: str
    description: str
    ranks: tuple[int, ...]
    backend: str
    timeout_ms: int
    hooked: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False, repr=False)
class ArmedProcess:
    """The state of the recorder in this process.

    Attributes:
        directory: The job's runtime directory, or None where there is none to be had.
        groups: Every group ever seen, by name, description and members: they outlive
            `destroy_process_group`.
        failures: What went wrong in the recorder itself (`problems` in dumps).
        failed_calls: Calls of the job that raised (`failures` in dumps).
        exception: The uncaught exception, as it goes into dumps.
        incidents: How many incidents were written so far, by kind.
        told: What it gave `init_process_group`, as far as it names ranks and a place to meet.
        limited: What the job itself has so little of that we keep only the heartbeat, or "".
    """

    settings: Settings
    pid: int
    beat: Beat
    ring: Ring
    directory: Path | None = None
    job_id: str = ""
    armed_by: str = ""
    armed_ns: int = 0
    role: str = "unknown"
    phase: Phase = Phase.IMPORTED
    rank: int | None = None
    world_size: int | None = None
    step: int | None = None
    failures: Failures = field(default_factory=Failures)
    groups: dict[tuple[str, str, tuple[int, ...]], GroupFact] = field(default_factory=dict)
    failed_calls: list[dict[str, object]] = field(default_factory=list)
    exception: dict[str, object] | None = None
    incidents: dict[str, int] = field(default_factory=dict)
    socket: str = ""
    worker_socket: str = ""
    fifo: str = ""
    faults: str = ""
    limited: str = ""
    told: Meeting = field(default_factory=Meeting)

    @property
    def hooked(self) -> list[str]:
        """The backends of all groups for which a hook of torch's records."""
        return sorted({name for fact in list(self.groups.values()) for name in fact.hooked})

    def enter(self, phase: Phase) -> None:
        """Go on to the next phase, and say so in the heartbeat and the mark."""
        self.phase = phase
        self.beat.set(Word.PHASE, phase)
        self.write_mark()

    def becomes(self, rank: int, world_size: int) -> None:
        """`init_process_group` has returned: this process is a rank from now on."""
        self.role, self.rank, self.world_size = "rank", rank, world_size
        self.beat.set(Word.RANK, rank)
        self.beat.set(Word.WORLD_SIZE, world_size)
        self.beat.set(Word.LOCAL_RANK, env_local_rank())
        self.beat.set(Word.ATTEMPT, attempt_of(os.environ))
        self.enter(Phase.READY)

    def mark(self) -> Mark:
        """What others may read of this process."""
        return Mark(
            **{name: getattr(self, name) for name in _OF_BOTH},
            start_ticks=marks.start_ticks(),
            host=socket.gethostname(),
            pid_ns=marks.pid_namespace(),
            uid=os.geteuid(),
            attempt=attempt_of(os.environ),
            local_rank=env_local_rank() if self.role == "rank" else None,
            **handed_on(self._met(), Meeting),
            backend=",".join(sorted({group.backend for group in list(self.groups.values())})),
            hooked=",".join(self.hooked),
            groups=len(self.groups),
            heartbeat=str(self.beat.path or ""),
            dumps=str(self.cases),
            run=os.environ.get("UNHANG_RUN", ""),
            updated_ns=time_ns(),
            command=_program(),
            torch=_torch_version(),
            failures=self.failures.texts(),
            exception="{type}: {message}".format_map(self.exception)[:500]
            if self.exception
            else "",
        )

    def _met(self) -> Meeting:
        """How it came to its job: by its own word first, then by its environment."""
        env, told = rank_env(os.environ), replace(self.told, phase=self.phase.name.lower())
        rank = env.rank if env and told.env_rank is None else told.env_rank
        size = told.told_size or (env.world_size if env else 0) or self.world_size or 0
        return replace(told, env_rank=rank, told_size=size)

    def write_mark(self) -> None:
        """Write the mark; without a runtime directory there is no reader."""
        if self.directory is None:
            return
        try:
            marks.write_mark(self.directory, self.mark())
        except OSError as error:
            self.failures.add("mark not written", error)

    @property
    def cases(self) -> Path:
        """Where incident directories are made, if that is possible."""
        return Path(self.settings.directory or "unhang-cases").absolute()

    def private_path(self, suffix: str) -> Path | None:
        """A path of this process in the job's runtime directory, or None."""
        return None if self.directory is None else self.directory / f"{self.pid}.{suffix}"


_CONVERTED: Final = {"phase", "groups", "failures", "exception"}
_OF_BOTH: Final = (
    {e.name for e in fields(Mark)} & {e.name for e in fields(ArmedProcess)}
) - _CONVERTED
"""What the mark says as it is here; the others it says in its own words."""

_current: ArmedProcess | None = None


def process() -> ArmedProcess:
    """The state of this process, made at the first call; a forked child gets one of its own."""
    global _current  # noqa: PLW0603 - there is one process
    if _current is None or _current.pid != os.getpid():
        _current = _fresh()
    return _current


def reset() -> None:
    """Forget everything (after fork: sockets, files and identity are the parent's)."""
    global _current  # noqa: PLW0603 - there is one process
    _current = None


def _fresh() -> ArmedProcess:
    """A state in plain memory: no file, no socket, no mark yet (see `unhang.record.arm`)."""
    settings = read_settings()
    state = ArmedProcess(
        settings=settings,
        pid=os.getpid(),
        beat=Beat(None, pid=os.getpid(), start_ticks=marks.start_ticks()),
        ring=Ring(settings.buffer_size),
        job_id=marks.job_from_env(),
        role=_role(),
    )
    for problem in settings.problems:
        state.failures.add(problem)
    return state


def _program() -> str:
    """The interpreter and what it runs; the arguments are left out, they may hold secrets."""
    words = iter(sys.orig_argv)
    kept = [next(words, "")]
    for word in words:
        letters = word[1:] if word.startswith("-") and word[1:2] != "-" else ""
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            next(words, "")
        elif letters[:1] not in ("X", "W") and "c" in letters:
            return " ".join([*kept, "-c"])[:1000]
        elif letters[:1] not in ("X", "W") and letters.endswith("m"):
            return " ".join([*kept, "-m", next(words, "")])[:1000]
        elif not word.startswith("-"):
            return " ".join([*kept, word])[:1000]
    return kept[0][:1000]


def _role() -> str:
    """What this process is as long as it is no rank."""
    words = sys.orig_argv[1:12]
    if any(Path(word).name in LAUNCHERS or word in LAUNCHERS for word in words):
        return "launcher"
    if "--multiprocessing-fork" in words or any("spawn_main" in word for word in words):
        return "helper"
    return "unknown"


def env_local_rank() -> int | None:
    """The rank's number on its node as the environment has it, or None."""
    told = rank_env(os.environ)
    return told.local_rank if told and told.local_rank >= 0 else None


def _torch_version() -> str:
    torch = sys.modules.get("torch")
    return str(getattr(torch, "__version__", ""))[:40]
