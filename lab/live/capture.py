"""Run a live fault until exactly the right ranks are stuck, then keep what the recorder holds.

A capture is a case directory: `dumps/gloo/rank_N` as torch's recorder gives its bytes, and
`truth.json` beside them. It is written whole or not at all, never over another one, and nothing is
judged here.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from lab.live.faults import Expected, LiveFault
from lab.live.job import Job, RankState, armed_environ, started
from lab.live.markers import Marker, read_markers
from lab.live.neutral import neutral_dump
from lab.truth import TRUTH_FILE, Cause, Point, Truth, to_json
from unhang.errors import OutputError, ToolError, UsageError
from unhang.wording import rank_phrase

MAX_RANKS = 8
DUMPS = Path("dumps") / "gloo"

_POLL_S = 0.05
_IN_FLIGHT_S = 1.5
"""A call younger than a second is in flight as far as a dump tells: a hang is captured later."""
_ATTEMPTS = 3
_PORT_TAKEN = "EADDRINUSE"


class _PortTakenError(Exception):
    """Somebody took the port between our looking and the job's listening."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to capture: see `checked_request`."""

    fault: LiveFault
    ranks: int
    odd: int
    timeout_s: float
    redact: bool


def checked_request(
    fault: LiveFault,
    *,
    ranks: int | None = None,
    odd: int | None = None,
    timeout_s: float = 120.0,
    redact: bool = False,
) -> Request:
    """Fill in what was left out and refuse what cannot be run.

    Args:
        fault: Which fault.
        ranks: Number of processes.
        odd: Which rank has the fault.
        timeout_s: How long the job may take to get stuck, in seconds.
        redact: Whether paths of this machine are replaced in the dumps.

    Raises:
        UsageError: The fault cannot be run like that, or torch is not installed.
    """
    ranks = fault.ranks if ranks is None else ranks
    smallest = max(fault.at_least, fault.multiple_of)
    if not smallest <= ranks <= MAX_RANKS or ranks % fault.multiple_of:
        step = f", a multiple of {fault.multiple_of}" if fault.multiple_of > 1 else ""
        raise UsageError(
            f"{fault.name} cannot be run with {ranks} ranks",
            f"Choose {smallest} to {MAX_RANKS} ranks{step}.",
        )
    odd = min(fault.odd, ranks - 1) if odd is None else odd
    if not fault.odd_from <= odd < ranks:
        raise UsageError(
            f"rank {odd} cannot be the odd one of {fault.name}",
            f"Choose a rank from {fault.odd_from} to {ranks - 1}.",
        )
    if timeout_s <= 0:
        raise UsageError("the time limit must be positive", "Leave --timeout out for 120 s.")
    if find_spec("torch") is None:
        raise UsageError(
            "live faults need torch, which is not installed here",
            "Its CPU build is enough: pip install torch; saved captures need none: "
            "unhang diagnose DIR",
        )
    return Request(fault, ranks, odd, timeout_s, redact)


def capture(request: Request, directory: Path) -> Truth:
    """Run the job and write the capture to `directory`, which must not exist.

    Raises:
        OutputError: The directory exists, or cannot be written.
        ToolError: The job did something else than getting stuck where it should.
    """
    if directory.exists():
        raise OutputError(
            f"{directory} exists, and captures are not overwritten", "Name another place with -o."
        )
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unhang-", dir=directory.parent) as scratch:
            fresh = Path(scratch) / "capture"
            truth = _captured(request, fresh, Path(scratch))
            fresh.rename(directory)
    except OSError as error:
        raise OutputError(
            f"{directory} cannot be written: {error.strerror or error}",
            "Name another place with -o.",
        ) from error
    return truth


def _captured(request: Request, fresh: Path, scratch: Path) -> Truth:
    markers = read_markers(request.fault.path)
    for _ in range(_ATTEMPTS):
        try:
            (fresh / DUMPS).mkdir(parents=True)
            states = _run(request, markers, fresh / DUMPS, scratch)
        except _PortTakenError:
            shutil.rmtree(fresh)
            continue
        truth = _truth(request, markers, states)
        (fresh / TRUTH_FILE).write_text(to_json(truth), encoding="utf-8")
        return truth
    raise ToolError(f"no port was free for the job in {_ATTEMPTS} attempts")


def _run(
    request: Request, markers: Sequence[Marker], dumps: Path, logs: Path
) -> tuple[RankState, ...]:
    environ = {**request.fault.environ, "ODD_RANK": str(request.odd)}
    if request.fault.armed:
        environ |= armed_environ(logs)
    with started(request.fault.path, request.ranks, environ, logs, request.timeout_s) as job:
        states = _await_hang(request, markers, job)
        while True:
            alive = [rank for rank, state in enumerate(states) if state.life == "running"]
            answers = job.ask({rank: f"dump {dumps / f'rank_{rank}'}" for rank in alive})
            before, states = states, _await_hang(request, markers, job)
            if states == before:  # a peer's error may have reached a rank while it was dumped
                break
    if lost := [rank for rank in alive if not answers.get(rank, {}).get("bytes")]:
        raise ToolError(
            f"ranks {lost} gave no dump", "torch's recorder for Gloo needs torch 2.9 or newer."
        )
    if request.redact:
        for path in dumps.iterdir():
            path.write_bytes(neutral_dump(path.read_bytes(), request.fault.path.parent))
    return states


def _await_hang(request: Request, markers: Sequence[Marker], job: Job) -> tuple[RankState, ...]:
    while True:
        states = job.states()
        _refuse_surprises(request, job, states)
        if _is_stuck(request, markers, states):
            time.sleep(_IN_FLIGHT_S)
            return job.states()
        if time.monotonic() > job.deadline:
            where = "; ".join(f"rank {rank}: {state}" for rank, state in enumerate(states))
            raise ToolError(
                f"the job did not get stuck in time, within {request.timeout_s:g} s ({where})",
                "A busy machine may need a longer --timeout; old torch records no Gloo calls.",
            )
        time.sleep(_POLL_S)


def _refuse_surprises(request: Request, job: Job, states: Sequence[RankState]) -> None:
    """Raise if a rank ended or failed that should not have."""
    ending = request.fault.ending
    for one, state in zip(job.ranks, states, strict=True):
        if _PORT_TAKEN in state.raised:
            raise _PortTakenError
        if state.raised and ending not in ("killed", "aborted"):
            raise ToolError(f"rank {one.rank} raised {state.raised}", one.tail())
        expected = ending == "aborted" or (ending == "killed" and one.rank == request.odd)
        if state.life == "ended" and not expected:
            raise ToolError(f"rank {one.rank} ended with {state.exit_code}", one.tail())


def _is_stuck(request: Request, markers: Sequence[Marker], states: Sequence[RankState]) -> bool:
    culprits = request.fault.expected[0].culprits(request.ranks, request.odd)
    ended = False
    for rank, state in enumerate(states):
        if state.life != "running":
            ended = True
        elif not _stands(markers, "culprits" if rank in culprits else "victims", state):
            return False
    return ended or not request.fault.ending


def _stands(markers: Sequence[Marker], role: str, state: RankState) -> bool:
    """Whether a rank is at one of its marked lines, and in a call where it must be."""
    return any(
        marker.holds(role, state.line, state.step)
        and (state.waits or not marker.waits or bool(state.raised))
        for marker in markers
    )


def _truth(request: Request, markers: Sequence[Marker], states: Sequence[RankState]) -> Truth:
    fault = request.fault
    silent = tuple(rank for rank, state in enumerate(states) if state.life != "running")
    raised = [rank for rank, state in enumerate(states) if state.raised]
    notes = [fault.meaning]
    if silent:
        notes.append(f"No dump from {rank_phrase(silent)}: {fault.ending}.")
    if raised:
        notes.append(f"Already with a connection error when dumped: {rank_phrase(raised)}.")
    lines = tuple(
        Point(file=fault.script, line=marker.line)
        for marker in markers
        if marker.site or (fault.armed and marker.armed_site)
    )
    best, *others = (_right(request, one, silent, lines) for one in _applicable(fault, states))
    return replace(best, fault=fault.name, either=tuple(others), notes=tuple(notes))


def _applicable(fault: LiveFault, states: Sequence[RankState]) -> tuple[Expected, ...]:
    """The right verdicts for what the dumps can show."""
    nobody_waits = not any(state.waits for state in states)
    special = any(expected.nobody_waits for expected in fault.expected)
    return tuple(e for e in fault.expected if e.nobody_waits == (special and nobody_waits))


def _right(
    request: Request, expected: Expected, silent: tuple[int, ...], lines: tuple[Point, ...]
) -> Truth:
    """One verdict that is right."""
    if expected.status == "healthy":
        return Truth((expected.status,), (), request.ranks, expected.codes)
    culprits = silent if expected.casualties else expected.culprits(request.ranks, request.odd)
    ceiling = "medium" if expected.casualties else "high"
    cause = Cause(expected.codes, culprits, ceiling=ceiling)
    return Truth((expected.status,), (cause,), request.ranks, lines=lines)
