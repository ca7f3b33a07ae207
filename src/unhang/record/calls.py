"""Recording calls: from "about to be made" to "seen to have ended", for our own ring.

The rules are torch's: one sequence number a collective or coalesced group, sends and receives in
a number space of their own. An error of ours never reaches the job: it is noted, and the call goes
on unrecorded.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections import deque
from collections.abc import Callable
from time import time_ns
from types import FrameType
from typing import Any, Final

from unhang.record.groups import channel_of
from unhang.record.process import Process
from unhang.record.ring import Channel, Entry, Foreign
from unhang.record.sites import capture

__all__ = ["Recorder", "is_timeout"]

MOST_FAILED_CALLS: Final = 100
POLL_AT_ONCE: Final = 8
TIMEOUT: Final = re.compile(r"tim(e|ed)[ -]?out", re.IGNORECASE)


class Recorder:
    """Makes entries and follows torch's Work objects until they end.

    Attributes:
        on_timeout: Called, in the thread that made the call, after a call ran into its time-out.
    """

    def __init__(self, state: Process, on_timeout: Callable[[], None] | None = None) -> None:
        self.state = state
        self.beat = state.beat
        self.on_timeout = on_timeout
        self._stacks = state.settings.stacks
        self._weak: dict[int, Entry] = {}
        self._strong: deque[Entry] = deque(maxlen=state.settings.buffer_size)

    # -------------------------------------------------------------- a call begins

    def begin_p2p(
        self, group: Foreign, op: str, args: tuple[Any, ...], frame: FrameType | None
    ) -> Entry:
        """Record a send or receive: `args` is (tensors, peer, tag), or (tensors, tag)."""
        channel = channel_of(group)
        tensors = described(args[0])
        peer = args[1] if op != "recv_anysource" else "?"
        backend = channel.backend or channel.by_device.get(args[0][0].device.type, "")
        name = (
            f"{backend}:send {channel.rank}->{peer}"
            if op == "send"
            else f"{backend}:recv {channel.rank}<-{peer}"
        )
        entry = self._entry(channel, name, tensors, tensors, frame)
        entry.is_p2p = True
        entry.tag = args[-1] if isinstance(args[-1], int) else 0
        if channel.coalescing is None or "p2p" not in channel.coalescing:
            channel.p2p_seq += 1
        if channel.coalescing is not None:
            channel.coalescing.add("p2p")
        entry.p2p_seq = channel.p2p_seq
        self.state.ring.append(entry)
        return entry

    def begin_collective(
        self, group: Foreign, op: str, inputs: Foreign, outputs: Foreign, frame: FrameType | None
    ) -> Entry:
        """Record a collective of a group that torch does not record."""
        channel = channel_of(group)
        first = inputs
        while isinstance(first, (list, tuple)) and first:
            first = first[0]
        device = getattr(getattr(first, "device", None), "type", "")
        backend = channel.backend or channel.by_device.get(device, "")
        entry = self._entry(
            channel, f"{backend}:{op}", described(inputs), described(outputs), frame
        )
        if channel.coalescing is None or "collective" not in channel.coalescing:
            channel.seq += 1
        if channel.coalescing is not None:
            channel.coalescing.add("collective")
        entry.seq = channel.seq
        entry.p2p_seq = channel.p2p_seq
        self.state.ring.append(entry)
        return entry

    def begin_closing(self, group: Foreign, frame: FrameType | None) -> Entry | None:
        """Record the end of a coalesced group, as NCCL does; None where the group is empty."""
        channel = channel_of(group)
        spaces, channel.coalescing = channel.coalescing, None
        if not spaces:
            return None
        entry = self._entry(channel, f"{channel.backend}:coalesced", (), (), frame)
        entry.is_p2p = "p2p" in spaces
        entry.seq, entry.p2p_seq = channel.seq, channel.p2p_seq
        self.state.ring.append(entry)
        return entry

    def _entry(
        self,
        channel: Channel,
        name: str,
        inputs: tuple[Any, ...],
        outputs: tuple[Any, ...],
        frame: FrameType | None,
    ) -> Entry:
        if self._strong:
            self._poll_some()
        stack = capture(frame) if self._stacks else ()
        entry = Entry(channel, name, inputs, outputs, stack, threading.get_ident(), time_ns())
        channel.op_id += 1
        entry.op_id = channel.op_id
        entry.seq = channel.seq
        return entry

    # -------------------------------------------------------------- a call ends

    def follow(self, entry: Entry, work: Foreign, *, keep: bool) -> None:
        """The backend took the call: watch its Work until it ends.

        Args:
            entry: The call.
            work: Torch's Work object, or None where the call was done at once.
            keep: Hold the Work until it is seen to have ended. Needed where C++ takes it from
                our hands; where the program owns it a weak reference does, so that a send nobody
                waits for keeps no tensor alive.
        """
        now = time_ns()
        entry.enqueued(now)
        if work is None:
            entry.completed(now)
        elif keep:
            if ended(work):
                entry.completed(now)
                return
            entry.work = work
            self._weak[id(work)] = entry
            self._strong.append(entry)
        else:
            key = id(work)
            entry.work = weakref.ref(work, lambda _: self._abandoned(key))
            self._weak[key] = entry

    def _abandoned(self, key: int) -> None:
        """A Work has gone: without a wait nobody will ever learn how the call ended."""
        entry = self._weak.pop(key, None)
        if entry is not None:
            entry.abandon()

    def wait_begins(self, work: Foreign) -> None:
        """Somebody begins to wait for a Work."""
        entry = self._weak.get(id(work))
        if entry is not None and not entry.wait_ns:
            entry.wait_ns = time_ns()

    def wait_ended(self, work: Foreign) -> None:
        """A wait came back: without a device the call has ended, with one torch must be asked."""
        entry = self._weak.get(id(work))
        if entry is not None and (entry.channel.on_cpu or ended(work)):
            self._weak.pop(id(work), None)
            entry.completed(time_ns())

    def wait_failed(
        self, work: Foreign, error: BaseException, last: tuple[str, Channel] | None
    ) -> None:
        """A wait raised: the call failed. `last` is the newest call, if the Work is its own."""
        entry = self._weak.pop(id(work), None)
        if entry is not None:
            self.call_failed(entry.name, entry.channel, error, entry)
        elif last is not None:
            self.call_failed(*last, error)
        else:
            self.call_failed(str(getattr(work, "_get_op_type", str)()), None, error)

    def call_failed(
        self, name: str, channel: Channel | None, error: BaseException, entry: Entry | None = None
    ) -> None:
        """Note that a call raised, and with what; a time-out is a reason to dump."""
        if not isinstance(error, Exception):
            return
        now = time_ns()
        if entry is not None:
            entry.failed(error, now)
        if len(self.state.failed_calls) < MOST_FAILED_CALLS:
            self.state.failed_calls.append(
                {
                    "name": name,
                    "group": channel.name if channel else "",
                    "description": channel.description if channel else "",
                    "op_id": sequence_of(channel) if channel else -1,
                    "own_record_id": entry.number if entry is not None else -1,
                    "time_ns": now,
                    "error": f"{type(error).__name__}: {error}"[:1000],
                }
            )
        if self.on_timeout is not None and is_timeout(error):
            self.on_timeout()

    def _poll_some(self) -> None:
        """Let go of the oldest Works that have ended: a few at each call."""
        strong = self._strong
        for _ in range(min(len(strong), POLL_AT_ONCE)):
            entry = strong[0]
            if entry.work is not None and not ended(entry.work):
                return
            self._end_strong(strong.popleft())

    def poll(self) -> None:
        """Look at every Work that is followed (once a second, and before a dump)."""
        for entry in list(self._strong):
            if entry.work is not None and ended(entry.work):
                self._end_strong(entry)
        for entry in list(self._weak.values()):
            reference = entry.work
            work = reference() if isinstance(reference, weakref.ref) else None
            if work is not None and ended(work):
                entry.completed(time_ns())

    def _end_strong(self, entry: Entry) -> None:
        if entry.work is not None:
            self._weak.pop(id(entry.work), None)
        entry.completed(time_ns())

    def pending(self) -> list[Entry]:
        """Calls of our ring that are not known to have ended."""
        self.poll()
        return [entry for entry in self.state.ring.entries() if entry.pending]


def ended(work: Foreign) -> bool:
    """Whether a Work says that it is over; one that cannot say is not."""
    try:
        return bool(work.is_completed())
    except (RuntimeError, ValueError, NotImplementedError, AttributeError, TypeError):
        return False


def sequence_of(channel: Channel) -> int:
    """The number of operations of the group so far, as torch counts them; -1 if it cannot say."""
    group: Foreign = channel.ref()
    try:
        return int(group._get_sequence_number_for_group())
    except (RuntimeError, AttributeError, TypeError):
        return -1


def is_timeout(error: BaseException) -> bool:
    """Whether an exception of torch's is a time-out: they have no type of their own."""
    return isinstance(error, Exception) and bool(TIMEOUT.search(str(error)))


def described(value: Foreign) -> tuple[tuple[Any, Any], ...]:
    """Shape and dtype of each tensor in tensors, lists of tensors and lists of those."""
    if isinstance(value, (list, tuple)):
        return tuple(pair for item in value for pair in described(item))
    shape = getattr(value, "shape", None)
    return () if shape is None else ((shape, value.dtype),)
