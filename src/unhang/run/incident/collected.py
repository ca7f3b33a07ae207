"""One rank of an incident: what came of it, what it was given, what it left behind."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field, replace
from typing import Any

from unhang.casedir.manifest import RankPart
from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.record.calls.making import MAKES
from unhang.record.contact.beatlayout import bytes_of
from unhang.record.contact.heartbeat import Heartbeat
from unhang.record.contact.latest import read_page
from unhang.record.statement import Meeting, ProgramState, handed_on
from unhang.run.watching.roster import (
    Gone,
    WatchedRank,
    begun_calls,
    counts_late,
    finished_calls,
    is_inside,
)
from unhang.stacks.formats import faulthandlers
from unhang.stacks.ownership import is_library

_AFTER_LOOKS = 2
_ALL_TO_ALL = "all_to_all"
_MOST_FAULTS = 1 << 20
_AS_GOOD_NS = 2_000_000_000


@dataclass(slots=True)
class Collected:
    """What came of one rank, in the making.

    Attributes:
        went_on: Calls of it have ended since the evidence was begun to be taken, and others begun.
    """

    member: WatchedRank
    gone: Gone | None = None
    beat: Heartbeat | None = None
    state: str = ""
    came: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    went_on: bool = False

    def compare(self, now: Heartbeat | None) -> None:
        """Note whether it has gone on since its heartbeat was read, as the watch does."""
        before = self.beat
        if before is None or now is None or now.lost_ns != before.lost_ns:
            return
        if counts_late(before):  # That they catch up is no news.
            before, now = replace(before, groups=()), replace(now, groups=())
        ended = finished_calls(now) != finished_calls(before)
        self.went_on = ended and begun_calls(now) != begun_calls(before)


def told_by(rank: Collected) -> dict[str, Any]:
    """The fields of a sample that tell how far a rank has come, and what it was given."""
    mark, beat = rank.member.mark, rank.beat
    told = {**handed_on(mark, Meeting), "went_on": rank.went_on}
    if beat is not None:
        told |= handed_on(beat, ProgramState)
    if beat is not None and beat.op:
        told |= {"last_op": beat.op, "last_call": beat.calls}
        told["last_numel"] = -1 if beat.numel is None else beat.numel
        told["makes"] = tuple(beat.group.split(" ")) if beat.op == MAKES else ()
        told["splits"] = _splits(mark.heartbeat) if beat.op == _ALL_TO_ALL else ()
        told["last_site"] = f"{beat.file}:{beat.line}"
    return told


def _splits(heartbeat: str) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """What the last calls of a rank send to, and expect from, each member of their group."""
    from unhang.ingest.pages.page import splits_in

    return splits_in(read_page(heartbeat)) if heartbeat else ()


def last_words(rank: Collected) -> list[ProcessSample]:
    """What a rank without stacks left behind: its last line, and its end.

    That is what faulthandler wrote as a fatal signal came, or else by its heartbeat.
    """
    beat = rank.beat
    frame, seen_ns = _last_place(beat)
    fatal = fatal_threads(rank)
    last = ThreadStack("MainThread", rank.member.pid, (frame,), is_main=True) if frame else None
    sample = ProcessSample(
        rank=rank.member.rank,
        host=rank.member.mark.host or socket.gethostname(),
        pid=rank.member.pid,
        threads=fatal or ((last,) if last else ()),
        state=rank.state if rank.gone is None else "X",
        command=rank.member.mark.command,
        time_ns=rank.gone.time_ns if fatal and rank.gone else seen_ns,
        sample=_AFTER_LOOKS,
        tool="heartbeat",
        error="" if fatal or last else "the rank left no heartbeat with a line",
        exit_status=None if rank.gone is None else rank.gone.status,
        ended_ns=0 if rank.gone is None else rank.gone.time_ns,
        memory_kill=None if rank.gone is None else rank.gone.memory_kill,
    )
    return [replace(sample, **told_by(rank))]


def fatal_text(rank: Collected) -> bytes:
    """What faulthandler wrote in a rank that a fatal signal has ended; b"" where it wrote none."""
    path = rank.member.mark.faults
    return bytes_of(path, _MOST_FAULTS) if path and rank.gone is not None else b""


def fatal_threads(rank: Collected) -> tuple[ThreadStack, ...]:
    """The stacks of that moment, the main thread's first; none where that one shows no line."""
    text = fatal_text(rank).decode("utf-8", "replace")
    written = [each for each in faulthandlers.parse(text) if each.error]
    threads = written[-1].threads if written else ()
    return threads if threads and threads[0].is_main and threads[0].frames else ()


def _last_place(beat: Heartbeat | None) -> tuple[Frame | None, int]:
    """Where a rank was last, and when: rather in its own code a while ago than in a library now.

    Inside a call it is nowhere else.
    """
    places = beat.last_places if beat is not None else []
    known = [(Frame(function, file, line), at_ns) for function, file, line, at_ns in places]
    as_good = [
        each for each in known if known[0][1] - each[1] < _AS_GOOD_NS and not is_inside(beat)
    ]
    own = (each for each in as_good if not is_library(each[0]))
    return next(iter((*own, *known)), (None, 0))


def part_of(rank: Collected) -> RankPart:
    """A rank as the manifest has it."""
    beat = rank.beat
    last: dict[str, object] = {}
    frame, seen_ns = _last_place(beat)
    if beat is not None and frame is not None:
        last = {
            "file": frame.file,
            "line": frame.line,
            "function": frame.function,
            "op": beat.op,
            "age_s": round(max(0.0, (time.time_ns() - seen_ns) / 1e9), 3),
        }
    return RankPart(
        rank=rank.member.rank,
        host=rank.member.mark.host,
        pid=rank.member.pid,
        state=rank.state,
        phase=rank.member.mark.phase,
        came=rank.came,
        missing=rank.missing,
        exit_status=None if rank.gone is None else rank.gone.status,
        last_seen=last,
    )
