"""Asks the ranks of this node for their newest calls, so that a slow one is seen in the meantime.

Torch's worker server answers in a thread of C++ that needs no GIL, about 50 ms of CPU time for a
full ring; the job's own threads do nothing for it. A thread of ours asks, so that the watch over
hangs never waits. Only Gloo is asked: its calls wait, so who comes last to them is late. To NCCL a
host comes ahead of its device; the recorder of its older class asks that device, and of what a hook
records (NCCL2) the server gives unfinished calls alone. Ranks that send and receive have roles,
whose own times differ by the program: they are not compared.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final

from unhang.model import SlowRank
from unhang.record.contact.client import AskError, RefusedError, ask_worker
from unhang.record.contact.heartbeat import read_heartbeat
from unhang.record.contact.marks import Mark
from unhang.run.watching.pace import Arrival, Pace

EVERY_S: Final = 8.0
SUSPECTED_S: Final = EVERY_S / 2
"""The next look at ranks when one seems to be slow, and how long each may take to answer."""
PER_RANK_S: Final = 0.5
"""With many ranks on a node the looks come less often: 1 % of a core for each of them at most."""


@dataclass(slots=True)
class Pacing:
    """Follows the ranks of one run; `news` is a queue of what it has noticed."""

    pace: Pace = field(default_factory=Pace)
    news: SimpleQueue[SlowRank] = field(default_factory=SimpleQueue)
    _next_s: float = 0.0
    _thread: threading.Thread | None = None

    def look(self, marks: Sequence[Mark], now_s: float) -> SlowRank | None:
        """Begin a look if it is time for one; returns what an earlier one has found."""
        busy = self._thread is not None and self._thread.is_alive()
        if not busy and now_s >= self._next_s and _comparable(marks):
            every_s = SUSPECTED_S if self.pace.suspects else EVERY_S
            self._next_s = now_s + max(every_s, PER_RANK_S * len(marks))
            with suppress(RuntimeError):  # no room for a thread: the watch over hangs goes on
                self._thread = threading.Thread(target=self._ask, args=(list(marks),), daemon=True)
                self._thread.start()
        try:
            return self.news.get_nowait()
        except Empty:
            return None

    def _ask(self, marks: Sequence[Mark]) -> None:
        calls: dict[int, list[Arrival]] = {}
        try:
            for mark in marks:
                data = ask_worker(mark.worker_socket, "fr_trace_json", SUSPECTED_S, mark.pid)
                calls[mark.rank or 0] = arrivals_of(json.loads(data))
        except (AskError, RefusedError, OSError, ValueError, RecursionError):
            return  # a rank that does not answer is the hang watch's business
        found = self.pace.see(calls)
        if found is not None:
            self.news.put(found)


def _comparable(marks: Sequence[Mark]) -> bool:
    """Whether these are the ranks of one Gloo job, without roles, that can all be asked."""
    if len(marks) < 2 or len({mark.rank for mark in marks}) != len(marks):  # noqa: PLR2004 - a pair
        return False
    if not all(m.worker_socket and m.backend == "gloo" and m.phase == "ready" for m in marks):
        return False
    beats = [read_heartbeat(mark.heartbeat) for mark in marks]
    return all(beat is not None and not beat.recorded for beat in beats)


def arrivals_of(dump: object) -> list[Arrival]:
    """The collectives of one rank, in order; what is not as torch writes it is left out."""
    entries = dump.get("entries") if isinstance(dump, Mapping) else None
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping) or entry.get("is_p2p"):
            continue
        keys = ("pg_id", "collective_seq_id", "time_created_ns")
        values = [value for key in keys if isinstance(value := entry.get(key), int)]
        if len(values) == len(keys) and min(values) >= 0:
            found.append(Arrival(*values))
    return sorted(found, key=lambda each: (each.group, each.seq))
