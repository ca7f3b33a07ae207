"""From samples to the tree: which threads are shown, for whom, and what is known about each.

A stack in the tree begins with a lane (main thread, another thread, a helper process) and ends with
a fact (what it means, whether it moved), both as frames of their own. So partial trees of nodes
carry them too, and equal ranks fold together exactly if they stand at the same place in the same
state.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from unhang.model import UNKNOWN_RANK, Frame, ProcessSample, ThreadStack
from unhang.stacks.meaning import main_thread, meaning_of, meaning_of_frames, thread_matters
from unhang.stacks.once import each_once
from unhang.stacks.ownership import is_library

LANE, FACT, FOLD = "[lane]", "[fact]", "[fold]"
"""Files of the frames that are none."""

_KEPT = 3  # frames of a stack in which no frame is the user's
_BUSY = 0.5  # of one core between two looks
_DIGITS = re.compile(r"\d+")


class StackRow(NamedTuple):
    """One stack of the tree.

    Attributes:
        member: The rank; the process id where the process belongs to no rank.
        frames: Lane, frames with the outermost first, fact.
    """

    member: int
    frames: tuple[Frame, ...]


def latest(samples: Iterable[ProcessSample]) -> list[list[ProcessSample]]:
    """The looks at each process, in order; the last one is the state that counts."""
    looks: defaultdict[tuple[str, int, int, int], list[ProcessSample]] = defaultdict(list)
    for sample in samples:
        looks[sample.host, sample.pid, sample.rank, sample.parent_rank].append(sample)
    return [sorted(group, key=lambda s: s.sample) for group in looks.values()]


def has_moved(looks: Sequence[ProcessSample]) -> bool | None:
    """Whether the main thread stood elsewhere in the first look; None where two do not tell.

    One line in itself again, deeper and deeper, is one place: a signal's handler that waits for a
    lock is entered with each signal.
    """
    threads = ((sample.tool, main_thread(sample)) for sample in looks)
    if len(looks) < 2:  # noqa: PLR2004 - two looks compare
        return None
    seen = [(tool, [f for f, _ in groupby(t.frames)]) for tool, t in threads if t and t.frames]
    if len(seen) < 2 or len({tool for tool, _ in seen}) > 1:  # noqa: PLR2004 - two looks compare
        return None
    return any(frames != seen[0][1] for _, frames in seen[1:])


def fact_of(looks: Sequence[ProcessSample]) -> str:
    """What is known of a process, in a phrase: "waiting in all_reduce; unchanged"."""
    last = looks[-1]
    if not last.threads and last.error:
        return f"no stack: {last.error}"
    meaning = meaning_of(last)
    said = [meaning.says]
    if meaning.within:
        said.append(f"while {meaning.within}")
    moved = has_moved(looks)
    if moved is not None:
        said.append("moving" if moved else "unchanged, and busy" if _busy(looks) else "unchanged")
    if last.error:
        said.append(last.error)
    return "; ".join(said)


def _busy(looks: Sequence[ProcessSample]) -> bool:
    first, last = looks[0], looks[-1]
    seconds = (last.time_ns - first.time_ns) / 1e9
    return min(first.cpu_s, last.cpu_s) >= 0 < seconds and (
        last.cpu_s - first.cpu_s > _BUSY * seconds
    )


def rows_of(samples: Iterable[ProcessSample], *, full: bool = False) -> Iterator[StackRow]:
    """The stacks that the tree shows.

    Args:
        samples: All looks at all processes.
        full: All threads, helpers and library frames, instead of those that matter.
    """
    processes = latest(samples)
    hosts = {looks[-1].host for looks in processes}
    for looks in processes:
        last = looks[-1]
        member = last.rank if last.rank != UNKNOWN_RANK else last.parent_rank
        where = _lane_of(last, several_hosts=len(hosts) > 1)
        if member == UNKNOWN_RANK:
            member = max(last.pid, 0)
        main = main_thread(last)
        frames = main.frames if main else ()
        yield StackRow(member, _framed(where, frames, fact_of(looks), full=full))
        if last.role in ("helper", "launcher") and not full:
            continue
        for thread in last.threads:
            if thread is not main and (full or thread_matters(thread)):
                lane = _thread_lane(where, thread)
                fact = _thread_fact(thread)
                yield StackRow(member, _framed(lane, thread.frames, fact, full=full))


def _lane_of(sample: ProcessSample, *, several_hosts: bool) -> str:
    if sample.rank != UNKNOWN_RANK:
        return "ranks"
    if sample.parent_rank != UNKNOWN_RANK:
        names = {"data-loader": "data-loader workers of ranks", "launcher": "launchers of ranks"}
        return names.get(sample.role, "helpers of ranks")
    kind = {"launcher": "launchers", "data-loader": "data-loader workers"}
    where = f" on {sample.host or 'an unknown host'}" if several_hosts else ""
    return kind.get(sample.role, "processes") + where


def _thread_lane(where: str, thread: ThreadStack) -> str:
    """Threads are alike if their names differ in numbers only ("pt_autograd_0", "…_1")."""
    name = _DIGITS.sub("#", thread.name) or "a thread without a name"
    return f"thread {name} of {where}"


def _thread_fact(thread: ThreadStack) -> str:
    says = meaning_of_frames(thread.frames).says
    return f"{says}; holds the GIL" if thread.holds_gil else says


def _framed(lane: str, frames: tuple[Frame, ...], fact: str, *, full: bool) -> tuple[Frame, ...]:
    return _between(lane, fact)(_outermost_first(frames) if full else _folded(frames))


@lru_cache(maxsize=1_024)
def _between(lane: str, fact: str) -> Callable[[tuple[Frame, ...]], tuple[Frame, ...]]:
    """Puts stacks between a lane and a fact; of one stack it gives one object, quick to merge."""
    first, last = Frame(lane, LANE, 0), Frame(fact, FACT, 0)
    return each_once(lambda shown: (first, *shown, last))


@each_once
def _outermost_first(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    return frames[::-1]


@each_once
def _folded(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    return folded(frames[::-1])


def folded(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The user's own frames, with one mark for library frames between them.

    Those around the whole say nothing, those inside are part of the fact. Of a stack without any
    frame of the user's, the innermost frames are kept.
    """
    shown: list[Frame] = []
    gap = False
    for frame in frames:
        if is_library(frame):
            gap = True
            continue
        if gap and shown:
            shown.append(Frame("…", FOLD, 0))
        shown.append(frame)
        gap = False
    if not shown and len(frames) > _KEPT:
        return Frame("…", FOLD, 0), *frames[-_KEPT:]
    return tuple(shown) or tuple(frames)
