"""Following torch's Work objects from the moment a backend takes a call until the call has ended.

Torch calls nothing in Python when a Work ends: it is seen where the program waits for it, and else
by asking, a few Works at each call and all of them once a second. Times of ends are therefore times
of discovery, as in torch's own recorder.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from time import time_ns
from typing import Any, Final

from unhang.record.calls.ring import Foreign, RingEntry

MOST_HELD: Final = 256
ASKED_AT_ONCE: Final = 4


class WorkRef(weakref.ref[Any]):
    """A weak reference that knows the identity of what it was to."""

    __slots__ = ("key",)
    key: int


class Followed:
    """The calls that backends have taken and that have not been seen to end.

    Attributes:
        by_id: Them by the identity of their Work; empty most of the time where torch records.
        beside: Asks further Works, which are followed elsewhere.
    """

    __slots__ = ("_futures", "_held", "beside", "by_id")

    def __init__(self) -> None:
        self.by_id: dict[int, RingEntry] = {}
        self._held: deque[RingEntry] = deque()
        self._futures: deque[RingEntry] = deque(maxlen=MOST_HELD)
        self.beside: Callable[[], object] = bool

    def add(self, entry: RingEntry, work: Foreign, *, hold: bool) -> None:
        """Follow a Work.

        Args:
            entry: The call.
            work: Torch's Work object, or None where the call was done at once.
            hold: Keep the Work until it ends, `MOST_HELD` at most. Needed where C++ takes it from
                our hands; where the program owns it a weak reference does, so that a send without a
                wait keeps no tensor alive.
        """
        now = time_ns()
        entry.enqueued(now)
        if work is None or entry.channel.backend == "fake":  # whose Works never say that they end
            entry.completed(now)
            return
        key = id(work)
        self.by_id[key] = entry
        if not hold:
            entry.work = WorkRef(work, self._let_go)
            entry.work.key = key
            return
        entry.work = work
        held = self._held
        held.append(entry)
        if len(held) > 1:
            self._ask_oldest()

    def waited(self, entry: RingEntry, work: Foreign, now_ns: int) -> None:
        """A wait came back: on the host that is the end, on a device torch must be asked."""
        if entry.on_host or ended(work):
            self.by_id.pop(id(work), None)  # another thread may have seen the end
            entry.completed(now_ns)

    def took_future(self, work: Foreign, future: Foreign) -> None:
        """The program took a Work's future instead of waiting for it (DDP does)."""
        entry = self.by_id.get(id(work))
        if entry is not None and entry.future is None:
            entry.future = future
            self._futures.append(entry)

    def drop(self, work: Foreign) -> RingEntry | None:
        """Follow a Work no longer; returns its call."""
        return self.by_id.pop(id(work), None)

    def ask_all(self) -> None:
        """Ask every Work, and every future, that is still there."""
        self.beside()
        for entry in list(self.by_id.values()):
            reference = entry.work
            work = reference() if isinstance(reference, weakref.ref) else reference
            if work is not None and ended(work):
                self._end(entry, id(work))
        for entry in list(self._futures):
            future = entry.future
            if future is not None and future.done():
                entry.completed(time_ns())
            if not entry.pending:
                with contextlib.suppress(ValueError):  # another thread has looked too
                    self._futures.remove(entry)

    def _ask_oldest(self) -> None:
        """Let go of the oldest Works that have ended, and of the very oldest if there are many."""
        held = self._held
        for _ in range(min(ASKED_AT_ONCE, len(held) - 1)):
            entry = held[0]
            work = entry.work
            if work is not None:
                if not ended(work):
                    break
                self._end(entry, id(work))
            held.popleft()
        if len(held) > MOST_HELD:
            entry = held.popleft()
            if entry.work is not None:
                self._gone(id(entry.work))

    def _end(self, entry: RingEntry, key: int) -> None:
        self.by_id.pop(key, None)
        entry.completed(time_ns())

    def _let_go(self, reference: WorkRef) -> None:
        """What a reference was to has gone."""
        self._gone(reference.key)

    def _gone(self, key: int) -> None:
        """A Work has gone, or is let go: only its future may still tell how the call ended."""
        entry = self.by_id.pop(key, None)
        if entry is not None and entry.future is None:
            entry.abandon()


def ended(work: Foreign) -> bool:
    """Whether a Work says that it is over; one that cannot say is not."""
    try:
        return bool(work.is_completed())
    except (RuntimeError, ValueError, NotImplementedError, AttributeError, TypeError):
        return False
