"""The newest looks at one process, and the rates between them.

Counters come from /proc and only ever grow; whatever the kernel does not tell stays 0. A process
stands for all that it has started as well, but for the fields that say "main thread".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from unhang.activity.looks import ProcessLook
from unhang.activity.thresholds import LEAST_LOOKS, SETTLED_LOOKS, WINDOW_LOOKS


class Rates(NamedTuple):
    """What happened between the first and the last of some looks.

    Attributes:
        looks: How many there were; one tells nothing of movement.
        cores, ran_cores, helped_cores, tasks_cores: CPU time per second: of all, of the main
            thread, of those below, of Ray's other tasks.
        moved_per_s, stored_per_s, traffic_per_s: Bytes per second.
        wakes: How often the main thread has waited and gone on.
        woken_looks, said_looks, started_looks: In how many looks it had gone on, had written, had
            more processes than in the look before.
        turn_s: How long the main thread ran each time that it went on, in seconds; 0 without any.
        disk_looks: In how many looks the kernel held it uninterruptible.
        read_looks: In how many it waited to read from a pipe or socket.
    """

    looks: int = 0
    cores: float = 0.0
    ran_cores: float = 0.0
    helped_cores: float = 0.0
    tasks_cores: float = 0.0
    moved_per_s: float = 0.0
    stored_per_s: float = 0.0
    traffic_per_s: float = 0.0
    wakes: int = 0
    woken_looks: int = 0
    said_looks: int = 0
    started_looks: int = 0
    turn_s: float = 0.0
    disk_looks: int = 0
    read_looks: int = 0


_READS = ("pipe_read", "anon_pipe_read", "unix_stream_read", "wait_woken", "sk_wait", "__skb_wait")
"""Kernel functions in which a process waits to read (fs/pipe.c, net/unix, net/core of Linux)."""


_GROWS = ("time_s", "cpu_s", "ran_s", "woken", "moved", "stored", "said", "helped_s", "started")
"""What counts from a beginning that differs by process; Ray's tasks and TCP may be unknown (-1)."""


@dataclass(slots=True)
class Series:
    """The newest looks at one process since its job last got on."""

    looks: deque[ProcessLook] = field(default_factory=lambda: deque(maxlen=WINDOW_LOOKS))
    _known: dict[int, Rates] = field(default_factory=dict, repr=False, compare=False)
    _known_at: ProcessLook | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, looks: Iterable[ProcessLook]) -> Series:
        """A series of looks that were taken before; the newest count where they are too many."""
        series = cls()
        series.looks.extend(looks)
        return series

    def rates(self, newest: int = WINDOW_LOOKS) -> Rates:
        """What happened over the newest looks.

        Args:
            newest: How many of them; all that there are, where these are fewer.
        """
        last = self.looks[-1] if self.looks else None
        if last is not self._known_at:  # what is reckoned once is asked ten times
            self._known, self._known_at = {}, last
        newest = min(newest, len(self.looks))
        if newest not in self._known:
            self._known[newest] = _rates_of(list(self.looks)[len(self.looks) - newest :])
        return self._known[newest]

    def relative(self) -> tuple[ProcessLook, ...]:
        """The looks with what had grown since the first of them, as only that tells anything."""
        first = next(iter(self.looks), ProcessLook(0.0))
        return tuple(_minus(look, first) for look in self.looks)

    @property
    def quiet(self) -> tuple[ProcessLook, ...]:
        """The newest looks over which the main thread has not gone on; one where it just did."""
        calm = [look for look in self.looks if not look.disturbed]
        first = next(
            (at for at in range(len(calm) - 1, 0, -1) if _goes_on(*calm[at - 1 : at + 1])), 0
        )
        return tuple(calm[first:])

    @property
    def rested_s(self) -> float:
        """The longest rest of the main thread after which it went on, in seconds."""
        calm = [look for look in self.looks if not look.disturbed]
        longest, rest, since = 0.0, 0.0, calm[0].time_s if calm else 0.0
        for before, after in pairwise(calm):
            if _goes_on(before, after):
                longest, rest, since = max(longest, rest), 0.0, after.time_s
            else:
                rest = after.time_s - since
        return longest

    @property
    def asleep_s(self) -> float:
        """For how long the main thread has not gone on for a moment, as polls do; 0 where it has.

        A few looks tell where it has never gone on in them, and after it has printed: so does one
        that tries again and waits for longer each time. Else it takes more than a slow poll sleeps.
        """
        calm, quiet = [look for look in self.looks if not look.disturbed], self.quiet
        before = calm[-len(quiet) - 1 : -len(quiet)] if quiet else []
        sooner = not before or quiet[0].said > before[0].said
        enough = LEAST_LOOKS if sooner else SETTLED_LOOKS
        return _grown(quiet, lambda look: look.time_s) if len(quiet) >= enough else 0.0


def _rates_of(looks: Sequence[ProcessLook]) -> Rates:
    if len(looks) < 2:  # noqa: PLR2004 - a rate needs two ends
        return Rates(looks=len(looks))
    calm = [look for look in looks if not look.disturbed]
    wakes, ran_s = _grown(calm, lambda look: look.woken), _grown(calm, lambda look: look.ran_s)
    asked = [look for look in looks if look.traffic >= 0]
    of_ray = [look for look in looks if look.tasks_s >= 0]
    return Rates(
        looks=len(looks),
        cores=_per_s(looks, lambda look: look.cpu_s),
        ran_cores=_per_s(calm, lambda look: look.ran_s),
        helped_cores=_per_s(looks, lambda look: look.helped_s),
        tasks_cores=_per_s(of_ray, lambda look: look.tasks_s),
        moved_per_s=_per_s(looks, lambda look: look.moved),
        stored_per_s=_per_s(looks, lambda look: look.stored),
        traffic_per_s=_per_s(asked, lambda look: look.traffic),
        wakes=int(wakes),
        woken_looks=_grew(calm, lambda look: look.woken),
        said_looks=_grew(looks, lambda look: look.said),
        started_looks=_grew(looks, lambda look: look.started),
        turn_s=ran_s / wakes if wakes > 0 else 0.0,
        disk_looks=sum(look.state == "D" for look in looks),
        read_looks=sum(look.wait_channel.startswith(_READS) for look in looks),
    )


def _goes_on(before: ProcessLook, after: ProcessLook) -> bool:
    """Whether the main thread has gone on in between, or wants to and gets no core."""
    return before.woken != after.woken or before.ran_s != after.ran_s or after.state == "R"


def _minus(look: ProcessLook, first: ProcessLook) -> ProcessLook:
    grown = {name: round(getattr(look, name) - getattr(first, name), 6) for name in _GROWS}
    return look._replace(**grown)


def _grown(looks: Sequence[ProcessLook], of: Callable[[ProcessLook], float]) -> float:
    return of(looks[-1]) - of(looks[0]) if looks else 0.0


def _per_s(looks: Sequence[ProcessLook], of: Callable[[ProcessLook], float]) -> float:
    over_s = _grown(looks, lambda look: look.time_s)
    return _grown(looks, of) / over_s if over_s > 0 else 0.0


def _grew(looks: Sequence[ProcessLook], of: Callable[[ProcessLook], float]) -> int:
    return sum(of(before) < of(after) for before, after in pairwise(looks))
