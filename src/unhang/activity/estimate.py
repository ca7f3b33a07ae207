"""What a series of looks amounts to: working, blocked, polling, held by the kernel, or unknown.

CPU time alone is no proof that a process gets anywhere: a busy wait has as much of it. So a process
that computes, and shows nothing else, is said to compute and no more; what its stack shows decides
elsewhere whether it may be a loop without end.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from unhang.activity import thresholds as limit
from unhang.activity.series import Rates, Series

Sure: TypeAlias = Literal["high", "medium", "low"]


class Doing(Enum):
    """What a process does."""

    WORKING = "working"
    """It gets on, by itself or by what it has started or is fed with."""
    COMPUTING = "computing"
    """It uses CPU time; whether it gets anywhere is not seen."""
    POLLING = "polling"
    """It wakes again and again, and does no more than look."""
    BLOCKED = "blocked"
    """Its main thread has not gone on for a moment, for longer than slow work sleeps."""
    DISK = "uninterruptible"
    """The kernel holds it, as a slow disk or file system does."""
    STOPPED = "stopped"
    """By a signal or a debugger."""
    EXITED = "exited"
    UNKNOWN = "unknown"
    """Too few looks, or they contradict each other."""


class Sign(Enum):
    """What shows that a process gets on, in words that follow "it"."""

    DATA = "reads or writes data"
    STORAGE = "writes to storage or reads from it"
    RECEIVES = "receives data"
    FED = "is fed through a pipe or socket"
    CHILDREN = "waits for processes that work"
    TASKS = "waits for tasks of Ray that work"
    PRINTS = "prints again and again"
    TURNS = "works between its sleeps"
    STARVED = "computes on a machine without cores to spare"
    LINES = "passes many lines"
    STARTS = "starts one process after another"
    FLOWS = "has read or written data all the time"


class Activity(NamedTuple):
    """The estimate.

    Attributes:
        doing: What it does, by its newest looks.
        sure: How sure that is.
        signs: What shows it, the strongest first; empty unless it works.
        for_s: For how long its main thread has not gone on, in seconds; 0 where it goes on.
        busy: Since the look before it computed, read, wrote or printed, or waited for a disk.
        steady: What shows that it got on over the whole window, as no stuck process has: while
            there is any, no alarm is due.
    """

    doing: Doing = Doing.UNKNOWN
    sure: Sure = "low"
    signs: tuple[Sign, ...] = ()
    for_s: float = 0.0
    busy: bool = False
    steady: tuple[Sign, ...] = ()


_HELD = {"T": Doing.STOPPED, "t": Doing.STOPPED, "Z": Doing.EXITED, "X": Doing.EXITED}


def estimate(series: Series, *, lines: int = 0, kind: str | None = None) -> Activity:
    """Say what a process does.

    Args:
        series: The newest looks at it.
        lines: At how many different lines it was seen in them; 0 where nothing tells.
        kind: What its stack means, as `unhang.stacks.meaning` has it ("network", "process",
            "sleep"…); None where no stack was taken.
    """
    if not series.looks:
        return Activity()
    held = _HELD.get(series.looks[-1].state)
    steady = tuple(_steady(series.rates(), lines))
    told = Activity(for_s=series.asleep_s, busy=_busy(series), steady=steady)
    if held is not None:
        return told._replace(doing=held, sure="high")
    signs = tuple(_signs(series, kind))
    if signs:
        sure: Sure = "high" if len(signs) > 1 else "medium"
        return told._replace(doing=Doing.WORKING, sure=sure, signs=signs)
    doing = _without_signs(series)
    enough = len(series.looks) > limit.SETTLED_LOOKS
    sure = "low" if doing is Doing.UNKNOWN else "high" if enough else "medium"
    return told._replace(doing=doing, sure=sure)


def _without_signs(series: Series) -> Doing:
    rates = series.rates()
    if series.rates(limit.LEAST_LOOKS).cores > limit.COMPUTING_CORES:
        return Doing.COMPUTING
    if 2 * rates.disk_looks > rates.looks >= limit.LEAST_LOOKS:
        return Doing.DISK
    if len(series.quiet) >= limit.SETTLED_LOOKS:
        return Doing.BLOCKED
    return Doing.POLLING if rates.woken_looks >= limit.OFTEN else Doing.UNKNOWN


def _busy(series: Series) -> bool:
    newest = series.rates(2)
    return (
        newest.cores > limit.COMPUTING_CORES
        or newest.said_looks > 0
        or newest.moved_per_s > limit.FLOWING_BYTES
        or series.looks[-1].disk
    )


def _steady(window: Rates, lines: int) -> Iterator[Sign]:
    if lines > limit.FEW_LINES:
        yield Sign.LINES
    if window.started_looks >= limit.STARTING_LOOKS:
        yield Sign.STARTS
    if window.moved_per_s > limit.FLOWING_BYTES:
        yield Sign.FLOWS


def _signs(series: Series, kind: str | None) -> Iterator[Sign]:
    """What shows that it gets on now."""
    window = series.rates()
    yield from _data(series.rates(limit.LEAST_LOOKS), window, kind)
    stopped = _has_stopped(series)
    if _reads(window) and window.woken_looks >= limit.OFTEN and not stopped:
        yield Sign.FED
    yield from _helpers(series, kind)
    if window.said_looks >= limit.OFTEN and not stopped:
        yield Sign.PRINTS
    if _turns(series):
        yield Sign.TURNS
    elif _starved(series.rates(limit.SETTLED_LOOKS)):
        yield Sign.STARVED


def _data(now: Rates, window: Rates, kind: str | None) -> Iterator[Sign]:
    through = now.moved_per_s + now.traffic_per_s
    if through > limit.MOVING_BYTES:
        yield Sign.DATA
    if now.stored_per_s > limit.TRICKLING_BYTES:
        yield Sign.STORAGE
    # Without a stack what it reads elsewhere may be all there is; with one it waits on a socket.
    received = through if kind == "network" else now.traffic_per_s * (kind is None)
    if received > limit.TRICKLING_BYTES and (kind == "network" or _reads(window)):
        yield Sign.RECEIVES


def _reads(window: Rates) -> bool:
    return 2 * window.read_looks > window.looks


def _helpers(series: Series, kind: str | None) -> Iterator[Sign]:
    settled = series.rates(limit.SETTLED_LOOKS)
    waits = kind in ("process", "pipe", "sleep", None)
    if waits and settled.looks >= limit.LEAST_LOOKS and settled.helped_cores > limit.HELPED_CORES:
        yield Sign.CHILDREN
    if kind == "process" and series.rates(limit.LEAST_LOOKS).tasks_cores > limit.TASK_CORES:
        yield Sign.TASKS


def _turns(series: Series) -> bool:
    """Whether the main thread runs for longer, each time it wakes, than a look around takes."""
    newest, rarer = series.rates(limit.SETTLED_LOOKS), series.rates()
    if newest.looks < limit.LEAST_LOOKS:
        return False
    often = newest.wakes >= newest.looks - 1
    if often and newest.turn_s > limit.TURN_S and newest.ran_cores > limit.TURN_CORES:
        return True
    rare = rarer.wakes >= limit.OFTEN and rarer.turn_s > limit.RARE_TURN_S
    return rare and not _has_stopped(series)


def _has_stopped(series: Series) -> bool:
    """Whether what it did in the window was a burst, as imports are, and it has rested ever since.

    It rests for longer than a slow poll does, and than retries would, which wait twice as long each
    time. Of the recorded programs that work between rests the longest rest was 3.7 s, 1.5 times
    the longest before it; ranks that slept after they had imported torch had rested for 8.8 and
    13.1 s when they were judged, and not before.
    """
    quiet = series.quiet
    rests_s = quiet[-1].time_s - quiet[0].time_s if quiet else 0.0
    return rests_s >= max(limit.SETTLED_LOOKS * limit.APART_S, 2 * series.rested_s)


def _starved(settled: Rates) -> bool:
    """Whether it runs without a pause, and yet gets less of a core than a computation would."""
    enough = limit.TURN_CORES < settled.ran_cores < limit.COMPUTING_CORES
    return settled.looks >= limit.LEAST_LOOKS and settled.wakes <= 1 and enough
