"""Recording calls: from "about to be made" to "seen to have ended", for our own ring.

The rules are torch's: one sequence number a collective or coalesced group, sends and receives in
a number space of their own. An error of ours never reaches the job: it is noted, and the call goes
on unrecorded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import get_ident
from time import time_ns
from types import FrameType
from typing import Any, Final

from unhang.record.calls.follow import Followed
from unhang.record.calls.ring import Channel, Foreign, RingEntry, TensorFact
from unhang.record.calls.sites import SiteStacks
from unhang.record.contact.beatlayout import Word
from unhang.record.process import ArmedProcess
from unhang.telltale import without_secrets

MOST_FAILED_CALLS: Final = 100
MOST_TENSOR_FACTS: Final = 4096
TIMEOUT: Final = re.compile(r"tim(e|ed)[ -]?out", re.IGNORECASE)
LOST: Final = re.compile(r"\b(peer|remote|connection|socket|abort)", re.IGNORECASE)


class Recorder:
    """Makes entries and sees them end.

    Next to a job the caches belong to others, and what is touched first costs up to a microsecond a
    function: so what every send passes is written out in few functions, here and in `wrap`.

    Attributes:
        followed: The calls under way.
        full: Whether groups that torch does not record are recorded at all.
        on_timeout: Called, in the thread that made the call, after a call ran into its time-out.
    """

    def __init__(self, state: ArmedProcess, on_timeout: Callable[[], None] | None = None) -> None:
        self.state = state
        self.beat = state.beat
        self.ring = state.ring
        self.followed = Followed()
        self.on_timeout = on_timeout
        self.full = state.settings.full != "never"
        self.stacks = SiteStacks() if state.settings.stacks else None
        self.tensors: dict[TensorFact, tuple[TensorFact, ...]] = {}

    # -------------------------------------------------------------- a call begins

    def begin_p2p(
        self,
        channel: Channel,
        op: str,
        args: tuple[Any, ...],
        frame: FrameType | None,
        site: int = 0,
    ) -> RingEntry:
        """Record a send or receive: `args` is (tensors, peer, tag), or (tensors, tag).

        `site` is any number for where the program is: a stack seen with it before is tried first.
        """
        tensors, tag = args[0], args[-1]
        tensor = tensors[0]
        backend = channel.backend or channel.by_device.get(tensor.device.type, "")
        if op == "send":
            name = f"{backend}:send {channel.rank}->{args[1]}"
        else:
            peer = args[1] if op == "recv" else "?"
            name = f"{backend}:recv {channel.rank}<-{peer}"
        facts = self.tensors.get((tensor.shape, tensor.dtype)) if len(tensors) == 1 else None
        facts = facts or self.described(tensors)
        stack = () if self.stacks is None else self.stacks.of(site, frame)
        entry = RingEntry(channel, name, (facts, facts), stack, get_ident(), time_ns())
        channel.op_id += 1
        entry.op_id = channel.op_id
        entry.on_host = channel.on_host = tensor.is_cpu
        entry.is_p2p = True
        entry.tag = tag if isinstance(tag, int) else 0
        if channel.coalescing is None or channel.begins("p2p"):
            channel.p2p_seq += 1
        entry.seq, entry.p2p_seq = channel.seq, channel.p2p_seq
        self.ring.append(entry)
        return entry

    def begin_collective(
        self,
        channel: Channel,
        op: str,
        tensors: tuple[Foreign, Foreign],
        frame: FrameType | None,
        site: int = 0,
    ) -> RingEntry:
        """Record a collective; `tensors` are inputs and outputs: tensors, lists of them, or ()."""
        inputs, outputs = tensors
        facts = self.described(inputs)
        others = facts if inputs is outputs else self.described(outputs)
        tensor = _first(inputs) if facts else None
        backend = channel.backend
        if not backend and tensor is not None:
            backend = channel.by_device.get(tensor.device.type, "")
        entry = self._entry(channel, f"{backend}:{op}", (facts, others), frame, site)
        entry.on_host = channel.on_host = tensor is None or tensor.is_cpu
        if channel.begins("collective"):
            channel.seq += 1
        entry.seq, entry.p2p_seq = channel.seq, channel.p2p_seq
        self.ring.append(entry)
        return entry

    def begin_closing(self, channel: Channel, frame: FrameType | None) -> RingEntry | None:
        """Record the end of a coalesced group, as NCCL does; None where the group is empty."""
        spaces, channel.coalescing = channel.coalescing, None
        if not spaces:
            return None
        entry = self._entry(channel, f"{channel.backend}:coalesced", ((), ()), frame, 0)
        entry.is_p2p = "p2p" in spaces
        entry.on_host = channel.on_host
        entry.seq, entry.p2p_seq = channel.seq, channel.p2p_seq
        self.ring.append(entry)
        return entry

    def _entry(
        self,
        channel: Channel,
        name: str,
        tensors: tuple[tuple[TensorFact, ...], tuple[TensorFact, ...]],
        frame: FrameType | None,
        site: int,
    ) -> RingEntry:
        stack = () if self.stacks is None else self.stacks.of(site, frame)
        entry = RingEntry(channel, name, tensors, stack, get_ident(), time_ns())
        channel.op_id += 1
        entry.op_id = channel.op_id
        return entry

    def described(self, value: Foreign) -> tuple[TensorFact, ...]:
        """Shape and dtype of each tensor in tensors, lists of tensors and lists of those.

        Equal ones are one object: a job has few, and the garbage collector need not see them.
        """
        if not isinstance(value, (list, tuple)):
            fact = (value.shape, value.dtype)
            return self.tensors.get(fact) or self._new_fact(fact)
        if len(value) == 1:
            return self.described(value[0])
        return tuple(fact for item in value for fact in self.described(item))

    def _new_fact(self, fact: TensorFact) -> tuple[TensorFact, ...]:
        if len(self.tensors) >= MOST_TENSOR_FACTS:
            self.tensors.clear()
        return self.tensors.setdefault(fact, (fact,))

    # -------------------------------------------------------------- a call ends

    def wait_failed(
        self,
        work: Foreign,
        error: BaseException,
        last: tuple[str, Channel | None] | None,
        entry: RingEntry | None = None,
    ) -> None:
        """A wait raised: the call failed.

        Args:
            work: Torch's Work object.
            error: What was raised.
            last: Name and channel of the newest call, if the Work is its own.
            entry: The call, where the caller has it already.
        """
        entry = entry or self.followed.drop(work)
        if entry is not None:
            self.call_failed(entry.name, entry.channel, error, entry)
        elif last is not None:
            self.call_failed(*last, error)
        else:
            self.call_failed(str(getattr(work, "_get_op_type", str)()), None, error)

    def call_failed(
        self,
        name: str,
        channel: Channel | None,
        error: BaseException,
        entry: RingEntry | None = None,
    ) -> None:
        """Note that a call raised, and with what; a time-out is a reason to dump."""
        if not isinstance(error, Exception):
            return
        now = time_ns()
        if is_timeout(error) or LOST.search(str(error)):
            self.beat.set(Word.LOST_NS, now)
        if entry is not None:
            entry.failed(error, now)
        if len(self.state.failed_calls) < MOST_FAILED_CALLS:
            self.state.failed_calls.append(
                {
                    "op": name,
                    "group": channel.name if channel else "",
                    "description": channel.description if channel else "",
                    "op_id": sequence_of(channel) if channel else -1,
                    "own_record_id": entry.number if entry is not None else -1,
                    "time_ns": now,
                    "error": without_secrets(f"{type(error).__name__}: {error}"[:1000]),
                }
            )
        if self.on_timeout is not None and is_timeout(error):
            self.on_timeout()

    def pending(self) -> list[RingEntry]:
        """Calls of our ring that are not known to have ended."""
        self.followed.ask_all()
        return [entry for entry in self.state.ring.entries() if entry.pending]


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


def _first(value: Foreign) -> Foreign:
    """The first tensor in tensors, lists of tensors and lists of those."""
    while isinstance(value, (list, tuple)):
        value = value[0]
    return value
