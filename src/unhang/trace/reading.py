"""Read what the call trace left: the last calls of each process, and which calls are still open."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unhang.errors import InputError
from unhang.model import Frame, Note
from unhang.report import Finding, Job, RankStatus, Report, Site, Subject
from unhang.wording import fold_ranks, printable

__all__ = ["CallEvent", "ProcessTrace", "judge_traces", "read_traces"]

MAX_BYTES = 256 << 20
SILENT_S = 5.0
"""A process whose last call is this much older than the newest of all has fallen silent."""

_NAME = re.compile(r"calls-(\d+|x)-(\d+)\.[01]$")
_LINE = re.compile(r"^(\d+) (\d+) ([+-])(\d+) (.+):(\d+) (\S+)$")
_HEADER = re.compile(r"^# unhang trace 1 rank=(\d*) pid=(\d+) ppid=(\d+) turn=(\d+)$")


@dataclass(frozen=True, slots=True)
class CallEvent:
    """One line: a call that began (`begins`) or ended."""

    time_ns: int
    thread: int
    begins: bool
    depth: int
    frame: Frame


@dataclass(slots=True)
class ProcessTrace:
    """All kept events of one process, oldest first."""

    pid: int
    rank: int = -1
    parent: int = -1
    events: list[CallEvent] = field(default_factory=list)

    @property
    def last_ns(self) -> int:
        """When its last recorded call began or ended; 0 without any."""
        return self.events[-1].time_ns if self.events else 0

    @property
    def open_calls(self) -> tuple[Frame, ...]:
        """Calls of the last active thread that had not ended, innermost first."""
        if not self.events:
            return ()
        thread = self.events[-1].thread
        stack: dict[int, Frame] = {}
        for event in self.events:
            if event.thread != thread:
                continue
            stack = {depth: frame for depth, frame in stack.items() if depth < event.depth}
            if event.begins:
                stack[event.depth] = event.frame
        return tuple(stack[depth] for depth in sorted(stack, reverse=True))


def read_traces(folder: Path) -> tuple[list[ProcessTrace], list[Note]]:
    """Read all traces of a directory.

    Raises:
        InputError: If the directory does not exist or holds no trace.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no directory", "Give the directory that unhang trace wrote.")
    found: dict[int, dict[int, tuple[ProcessTrace, list[CallEvent]]]] = {}
    notes: list[Note] = []
    for path in sorted(folder.iterdir()):
        name = _NAME.match(path.name)
        if not name:
            continue
        read = _read_file(path, notes)
        if read is not None:
            turn, process, events = read
            found.setdefault(process.pid, {})[turn] = (process, events)
    if not found:
        raise InputError(f"{folder} holds no call trace", "Its files are named calls-RANK-PID.0.")
    return [_joined(turns) for _, turns in sorted(found.items())], notes


def _joined(turns: dict[int, tuple[ProcessTrace, list[CallEvent]]]) -> ProcessTrace:
    process = turns[max(turns)][0]
    for turn in sorted(turns):
        process.events.extend(turns[turn][1])
    return process


def _read_file(path: Path, notes: list[Note]) -> tuple[int, ProcessTrace, list[CallEvent]] | None:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES)
    except OSError as error:
        notes.append(Note("error", str(path), f"could not be read: {error.strerror}"))
        return None
    lines = data.split(b"\0", 1)[0].decode("utf-8", "replace").splitlines()
    header = _HEADER.match(lines[0]) if lines else None
    if header is None:
        notes.append(Note("warning", str(path), "is no call trace"))
        return None
    rank, pid, parent, turn = header.groups()
    process = ProcessTrace(int(pid), int(rank) if rank else -1, int(parent))
    return int(turn), process, [e for e in map(_event, lines[1:]) if e is not None]


def _event(line: str) -> CallEvent | None:
    found = _LINE.match(line)
    if not found:
        return None
    time_ns, thread, sign, depth, file, number, function = found.groups()
    frame = Frame(function, file, int(number))
    return CallEvent(int(time_ns), int(thread), sign == "+", int(depth), frame)


def _of_ranks(traces: Sequence[ProcessTrace]) -> list[ProcessTrace]:
    """The processes that are ranks: helpers inherit RANK from a parent that is traced too."""
    ranks = {trace.pid: trace.rank for trace in traces if trace.rank >= 0}
    return [t for t in traces if t.rank < 0 or ranks.get(t.parent) != t.rank]


def judge_traces(traces: Sequence[ProcessTrace], notes: Sequence[Note] = ()) -> Report:
    """Say which process fell silent first, and in which call."""
    known = [trace for trace in _of_ranks(traces) if trace.events]
    newest = max((trace.last_ns for trace in known), default=0)
    order = sorted(known, key=lambda trace: trace.last_ns)
    silent = [t for t in order if (newest - t.last_ns) / 1e9 > SILENT_S and t.open_calls]
    findings = tuple(_finding(i, trace, newest) for i, trace in enumerate(silent))
    ranks = sorted(trace.rank for trace in known if trace.rank >= 0)
    if silent:
        summary = f"{findings[0].summary} A trace tells where, not why."
    else:
        who = f"ranks {fold_ranks(ranks)}" if ranks else f"{len(known)} processes"
        summary = f"No process fell silent before the others ({who})."
    return Report(
        status="insufficient" if silent else "healthy",
        summary=summary,
        job=Job(ranks_seen=len(ranks), world_size=len(ranks)),
        findings=findings,
        ranks=tuple(
            RankStatus(t.rank, "unknown", detail=_last(t), pid=t.pid, stack_id=f"p{t.pid}")
            for t in sorted(known, key=lambda t: t.rank)
            if t.rank >= 0
        ),
        stacks={f"p{t.pid}": t.open_calls for t in known if t.open_calls},
        notes=tuple(notes),
    )


def _last(trace: ProcessTrace) -> str:
    frame = trace.events[-1].frame
    word = "entered" if trace.events[-1].begins else "left"
    return f"{word} {printable(frame.function)} at {printable(frame.file)}:{frame.line}"


def _finding(index: int, trace: ProcessTrace, newest: int) -> Finding:
    frame = trace.open_calls[0]
    who = f"Rank {trace.rank}" if trace.rank >= 0 else f"Process {trace.pid}"
    age = (newest - trace.last_ns) / 1e9
    ranks = (trace.rank,) if trace.rank >= 0 else ()
    return Finding(
        id=f"f{index + 1}",
        code="UH603",
        role="observation",
        confidence="medium",
        summary=f"{who} made its last traced call {age:.0f} s before the others: {_last(trace)}.",
        victims=ranks,
        subjects=(Subject("process", f"pid {trace.pid}", pid=trace.pid),),
        sites=(
            Site(ranks, "victim", frame.file, frame.line, frame.function, f"p{trace.pid}", age),
        ),
        evidence=tuple(
            f"open call: {f.function} at {f.file}:{f.line}" for f in trace.open_calls[:8]
        ),
        actions=("Sample it with unhang stacks, or trace its system calls with --syscalls.",),
    )
