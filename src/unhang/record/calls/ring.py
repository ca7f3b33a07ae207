"""The ring of our own recorder: fixed size, in memory, filled by the threads that make the calls.

An entry says of a call what torch's recorder would say, in Python objects as they come; turning
them into torch's layout waits until a caller wants a dump.
"""

from __future__ import annotations

import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, TypeAlias

from unhang.record.calls.sites import RawStack, frames_of
from unhang.record.contact.latest import DTYPE_NAMES
from unhang.telltale import without_secrets

Foreign: TypeAlias = Any
"""An object of torch's, whose types cannot be named here: torch is imported lazily, if at all."""

AGREEING: Final = 8
"""So often the count of a group's calls must have been as expected before it is asked less often:
then every so many calls."""

TensorFact: TypeAlias = tuple[Any, Any]
"""Shape and dtype of a tensor, as torch's objects."""

SCHEDULED: Final = "scheduled"
STARTED: Final = "started"
COMPLETED: Final = "completed"
FAILED: Final = "failed"


@dataclass(slots=True, eq=False, repr=False)
class Channel:
    """One process group as the recorder sees it, with its counters as torch counts them.

    Attributes:
        ref: Weak reference to the ProcessGroup: the recorder keeps no group alive.
        backend: Name of its only backend, or "" where it has several.
        by_device: Backend name by device type, where it has several.
        pg_id: Our number for it: groups in the order in which this process first used them.
        bare: No recorder of torch's sees any of its calls.
        on_host: Whether the last call's tensors were on the host: there the end of a wait is the
            end of the call.
        counters: `seq` and `p2p_seq`, where the compiled methods (`quick`) count as well. Then
            what torch's own count of the next call should be (0: not known), and how many times
            that may be taken as it is; below 0 how often it has to be right before.
        op_id: As these, the last number given out; the first call gets 1.
        last_enqueued, last_completed: Sequence numbers of collectives, as NCCL's `pg_status`.
        coalescing: Which number spaces the open coalesced group has used; None outside of one.
    """

    ref: weakref.ref[Any]
    name: str
    description: str
    backend: str
    by_device: dict[str, str]
    rank: int
    timeout_ms: int
    pg_id: int
    bare: bool = False
    on_host: bool = True
    counters: array[int] = field(default_factory=lambda: array("q", (0, 0, 0, -AGREEING)))
    op_id: int = 0
    last_enqueued: int = -1
    last_completed: int = -1
    coalescing: set[str] | None = None

    @property
    def seq(self) -> int:
        """Number of the last collective."""
        return self.counters[0]

    @seq.setter
    def seq(self, value: int) -> None:
        self.counters[0] = value

    @property
    def p2p_seq(self) -> int:
        """Number of the last send or receive."""
        return self.counters[1]

    @p2p_seq.setter
    def p2p_seq(self, value: int) -> None:
        self.counters[1] = value

    def begins(self, space: str) -> bool:
        """Whether a call takes a new number of its space: once only inside a coalesced group."""
        spaces = self.coalescing
        if spaces is None:
            return True
        if space in spaces:
            return False
        spaces.add(space)
        return True


class RingEntry:
    """One call. Times are wall clock in ns, 0 where not known.

    `work` is torch's Work object, a weak reference to it, or None; `wait_ns` is when the
    program began to wait for it; `tag` is that of a send or receive. `abandoned` says that it
    let go of it without waiting, so that it blocks no rank. `on_host` that the end of a wait is the
    end of the call; `future` is what the program took from the Work instead of waiting.
    """

    # Defaults of the class, not slots: a call stores only what differs from them.
    number: int = -1
    seq: int = -1
    p2p_seq: int = 0
    op_id: int = -1
    is_p2p: bool = False
    started_ns: int = 0
    completed_ns: int = 0
    state: str = SCHEDULED
    tag: int = 0
    wait_ns: int = 0
    abandoned: bool = False
    on_host: bool = True
    error: str = ""
    work: Foreign = None
    future: Foreign = None

    def __init__(
        self,
        channel: Channel,
        name: str,
        tensors: tuple[tuple[TensorFact, ...], tuple[TensorFact, ...]],
        stack: RawStack,
        thread: int,
        created_ns: int,
    ) -> None:
        self.channel = channel
        self.name = name
        self.inputs, self.outputs = tensors
        self.stack = stack
        self.thread = thread
        self.created_ns = created_ns

    @property
    def pending(self) -> bool:
        """Whether the call is not known to have ended, and a program may wait for it."""
        return self.state in (SCHEDULED, STARTED) and not self.abandoned

    def abandon(self) -> None:
        """The program can no longer wait for the call."""
        self.abandoned = self.pending
        self.work = self.future = None

    def enqueued(self, now_ns: int) -> None:
        """The backend took the call."""
        if self.state == SCHEDULED:
            self.state = STARTED
            self.started_ns = now_ns
            if not self.is_p2p:
                self.channel.last_enqueued = max(self.channel.last_enqueued, self.seq)

    def completed(self, now_ns: int) -> None:
        """The call was seen to have ended well; the first sight counts."""
        if self.pending:
            self.state = COMPLETED
            self.completed_ns = now_ns
            self.work = self.future = None
            if not self.is_p2p:
                self.channel.last_completed = max(self.channel.last_completed, self.seq)

    def failed(self, error: BaseException, now_ns: int) -> None:
        """The call was seen to have raised."""
        if self.pending:
            self.state = FAILED
            self.error = without_secrets(f"{type(error).__name__}: {error}"[:1000])
            self.completed_ns = now_ns
            self.work = self.future = None

    def as_torch(self, *, stacks: bool = True) -> dict[str, object]:
        """The entry in the layout of torch's recorder (2.10), with keys of ours behind.

        `error`, `tag`, `wait_ns` and `abandoned` are there where they say something. A failed call
        is `started` and not retired: torch's readers know three states only.
        """
        row: dict[str, object] = {
            "frames": frames_of(self.stack),
            "record_id": self.number,
            "pg_id": self.channel.pg_id,
            "process_group": (self.channel.name, self.channel.description),
            "thread_name": "python",
            "thread_id": str(self.thread),
            "collective_seq_id": self.seq,
            "p2p_seq_id": self.p2p_seq,
            "op_id": self.op_id,
            "profiling_name": self.name,
            "time_created_ns": self.created_ns,
            "input_sizes": [_sizes(shape) for shape, _ in self.inputs],
            "input_dtypes": [_dtype_name(dtype) for _, dtype in self.inputs],
            "output_sizes": [_sizes(shape) for shape, _ in self.outputs],
            "output_dtypes": [_dtype_name(dtype) for _, dtype in self.outputs],
            "state": STARTED if self.state == FAILED else self.state,
            "time_discovered_started_ns": self.started_ns or None,
            "time_discovered_completed_ns": self.completed_ns or None,
            "retired": self.state == COMPLETED,
            "timeout_ms": self.channel.timeout_ms,
            "is_p2p": self.is_p2p,
        }
        if not stacks:
            del row["frames"]
        if self.state == COMPLETED and self.started_ns:
            row["duration_ms"] = (self.completed_ns - self.started_ns) / 1e6
        if self.error:
            row["time_discovered_completed_ns"] = None
        for key in ("error", "tag", "wait_ns", "abandoned"):
            if getattr(self, key):
                row[key] = getattr(self, key)
        return row


def _sizes(shape: Iterable[object]) -> list[int]:
    """A shape as numbers; a symbolic dimension is -1 (asking it for its value adds guards)."""
    return [size if type(size) is int else -1 for size in shape]


def _dtype_name(dtype: object) -> str:
    name = str(dtype).rpartition(".")[2]
    return DTYPE_NAMES.get(name, name)


class Ring:
    """The last `size` entries, oldest first; appending is atomic under the GIL.

    Attributes:
        size: How many it keeps.
        count: One number, which the compiled methods (`quick`) count in as well.
        beside: Further entries, kept elsewhere, in any order.
    """

    __slots__ = ("_entries", "beside", "count", "size")

    def __init__(self, size: int) -> None:
        self._entries: deque[RingEntry] = deque(maxlen=size)
        self.size = size
        self.count = array("q", [0])
        self.beside: Callable[[], list[RingEntry]] = list

    @property
    def total(self) -> int:
        """How many entries there were so far."""
        return self.count[0]

    def append(self, entry: RingEntry) -> None:
        """Number the entry and keep it; the oldest makes room."""
        entry.number = self.count[0]
        self.count[0] += 1
        self._entries.append(entry)

    def keep(self, entry: RingEntry) -> None:
        """Keep an entry that has its number."""
        self._entries.append(entry)

    @property
    def dropped(self) -> int:
        """How many entries have made room for younger ones."""
        return max(0, self.total - self.size)

    def entries(self) -> list[RingEntry]:
        """A copy of what the ring holds now, oldest first."""
        while True:
            try:
                found = [*self._entries, *self.beside()]
            except RuntimeError:  # another thread has appended since: look again
                continue
            found.sort(key=attrgetter("number"))
            return found[-self.size :]
