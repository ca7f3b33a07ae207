"""Read what the call trace left: the last calls of each process, and which calls are still open.

What that means is for the analysis to say.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unhang.errors import InputError
from unhang.model import Frame, LastCall, Note
from unhang.regular import open_regular, reason

MAX_BYTES = 256 << 20
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


def read_traces(
    folder: Path, without: Collection[Path] = ()
) -> tuple[list[ProcessTrace], list[Note]]:
    """Read all traces of a directory, but for some files.

    Raises:
        InputError: If the directory does not exist or holds no trace.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a directory", "Give the directory that unhang trace wrote."
        )
    found: dict[int, dict[int, tuple[ProcessTrace, list[CallEvent]]]] = {}
    notes: list[Note] = []
    for path in sorted(folder.iterdir()):
        name = _NAME.match(path.name)
        if not name or path in without:
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
        with open_regular(path) as file:
            data = file.read(MAX_BYTES)
    except OSError as error:
        notes.append(Note("error", str(path), f"could not be read: {reason(error)}"))
        return None
    lines = data.split(b"\0", 1)[0].decode("utf-8", "replace").splitlines()
    header = _HEADER.match(lines[0]) if lines else None
    if header is None:
        notes.append(Note("warning", str(path), "is not a call trace"))
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


def last_calls(traces: Iterable[ProcessTrace]) -> tuple[LastCall, ...]:
    """Where each traced process was last heard of, in order of time; helpers of ranks left out."""
    known = [trace for trace in _of_ranks(list(traces)) if trace.events]
    found = (
        LastCall(
            rank=trace.rank,
            pid=trace.pid,
            time_ns=trace.last_ns,
            frame=trace.events[-1].frame,
            entered=trace.events[-1].begins,
            open_calls=trace.open_calls,
        )
        for trace in known
    )
    return tuple(sorted(found, key=lambda call: (call.time_ns, call.rank, call.pid)))
