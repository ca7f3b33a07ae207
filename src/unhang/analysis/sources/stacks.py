"""What the stacks of a case say about each rank: doing what, where, and whether it moved.

Several looks at one process become one `RankLook`. Whether a rank waits for peers, could be waiting
for them, or does something of its own follows from its stack's meaning; no rank is blamed
here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from unhang.activity.estimate import Activity, Doing, Sign, estimate
from unhang.activity.series import Series
from unhang.activity.thresholds import FEW_LINES, SETTLED_LOOKS
from unhang.analysis.sources.outside import OUTSIDE_KINDS, Respondent, holder_of, outside_of
from unhang.case import Case, Dump
from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.stacks.meaning import (
    Meaning,
    awaited_thread,
    is_served,
    main_thread,
    meaning_of,
    meaning_of_frames,
)
from unhang.stacks.ownership import same_file, starts_a_thread, user_frame
from unhang.stacks.roles import is_core
from unhang.stacks.tree.gathering import has_moved, latest
from unhang.wording import printable

_WAITS = frozenset({"collective", "init", "rpc"})
_MAY_WAIT = frozenset({"backward", "device-sync", "native"})
_UNSEEN = frozenset({"unknown"})
_FOR_WORK = frozenset({"lock", "network", "pipe", "sleep", "prompt", "native", "user-code"})
"""Where a rank may wait for work that others hand in: a queue, a socket, a pipe, a prompt. Storage,
a data loader or the end of a child hand in none: who hangs there hangs, however late it was."""
_CERTAIN = frozenset({"stopped", "dead"})
_HELD = frozenset({"stopped", "dead", "uninterruptible", "gil"})
_STAYS = _CERTAIN | {"abort"}
_ENDED = ("X", "Z")


_WAKES_S = 10.0, 300.0
"""Who sleeps for a shorter while may go round in a loop, who sleeps for longer may as well hang."""

_WORKER_LOOP = "torch/utils/data/_utils/worker.py"
"""Where a worker of a data loader calls the program: what is further out is its parent's."""

LAST_KNOWN = "heartbeat"
"""Tool of samples that hold the last known line of a process, not what it does now."""


class RankLook(Struct, frozen=True):
    """One rank as its stacks show it.

    Attributes:
        sample: The newest look at it, with all that it was given and did.
        meaning: What its main thread's stack means.
        moved: Whether its main thread stood elsewhere before; None where one look was taken.
        frames: Its main thread's stack in the last look, innermost first.
        doing: What it, or what it started, did while it was watched and looked at.
        inside: The collective in which it stands, even if it is stopped there; or "".
        age_s: Where `frames` are only its last known line: how old that was at the newest look, or
            at the newest end.
        worker: Where a data-loader worker, or a thread, stands in the program, for which it waits;
            innermost first, empty for none.
        wakes_s: Seconds until it stops sleeping; -1 where it does not sleep, or nothing tells.
        served: Threads in which it runs what other workers of RPC asked for.
        outside: For whose answer it waits, as far as is known no rank and none of its own; None
            for no such process, or where no source shows it.
        peer: The other end of its connection, where that is a rank of the job ("rank 2"), or it
            waits for data or storage behind it; of a file's lock its holder; else "".
        holder: The rank that holds the lock of the file for which it waits; -1 for none.
    """

    sample: ProcessSample
    meaning: Meaning
    moved: bool | None
    frames: tuple[Frame, ...]
    doing: Activity = Activity()
    inside: str = ""
    age_s: float | None = None
    worker: tuple[Frame, ...] = ()
    wakes_s: float = -1.0
    served: int = 0
    outside: Respondent | None = None
    peer: str = ""
    holder: int = -1

    @property
    def rank(self) -> int:
        """Its global rank."""
        return self.sample.rank

    @property
    def host(self) -> str:
        """Its node."""
        return self.sample.host

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.sample.pid

    @property
    def gone(self) -> bool:
        """It had ended when it was looked at."""
        if self.sample.exit_status is not None:
            return True
        return self.sample.state == "X" if self.sample.tool == LAST_KNOWN else self.sample.gone

    @property
    def works(self) -> bool | None:
        """It computed, read or wrote while it was looked at; None where it was not measured."""
        if not self.sample.looks:
            return None
        return self.doing.doing in (Doing.WORKING, Doing.COMPUTING)

    @property
    def in_loop(self) -> bool:
        """It was seen on a few lines again and again, and reads and writes next to nothing."""
        quiet = self.sample.looks and not {Sign.DATA, Sign.STORAGE}.intersection(self.doing.signs)
        lines, looks = self.sample.lines, self.sample.line_looks
        return bool(quiet) and looks >= SETTLED_LOOKS and 0 < lines <= FEW_LINES

    @property
    def paused_s(self) -> float:
        """For so long, and no longer than a pause takes, it has waited for what may still come.

        -1 where it has waited for longer, or nothing that it waits for can come: neither a peer nor
        a late moment. A lock may come without another thread of Python's: waits for it have
        time-outs, and native code lets go of locks, too.
        """
        stays = self.gone or self.meaning.kind in _WAITS | _STAYS
        may_go_on = not stays and self.sample.wakes_s <= _WAKES_S[1]
        return self.sample.paused_s if may_go_on else -1.0

    @property
    def is_held_for_now(self) -> bool:
        """It is stopped from outside, for no longer than a pause takes."""
        return self.meaning.kind == "stopped" and not self.gone and self.sample.paused_s >= 0

    @property
    def moves(self) -> bool:
        """It is busy or slow rather than stuck: its line changes, it works, or it will wake soon.

        A rank that waits for peers or for a device may spin, and uses CPU time for nothing.
        """
        if self.gone or self.certain or self.waits or self.age_s is not None:
            return False
        works = bool(self.works) and self.meaning.kind != "device-sync"
        return bool(self.moved) or works or self.wakes

    @property
    def wakes(self) -> bool:
        """It sleeps, and will go on by itself soon."""
        least = 0.0 if self.doing.for_s > 0 else _WAKES_S[0]
        return least <= self.wakes_s <= _WAKES_S[1]

    @property
    def spins(self) -> bool:
        """It loops, and nothing shows what it works at: it may never end."""
        at_work = self.meaning.within or self.sample.activity or self.wakes
        return self.moves and self.in_loop and not at_work

    @property
    def waits(self) -> bool:
        """It waits for peers: in a collective, a send or receive, or while setting up."""
        return self.meaning.kind in _WAITS

    @property
    def may_wait(self) -> bool:
        """It may wait for peers, below what its stack shows."""
        return self.meaning.kind in _MAY_WAIT or bool(self.sample.awaits)

    @property
    def idle(self) -> bool:
        """It is a worker that waits for its engine's next message, in no step."""
        return self.meaning.kind == "idle"

    @property
    def aside(self) -> bool:
        """Its main thread is not among what was taken of it, only threads that this one started."""
        main = any(thread.is_main for thread in self.sample.threads)
        return not main and any(map(starts_a_thread, self.frames))

    @property
    def unseen(self) -> bool:
        """Its stack could not be taken; at best its last known line is there."""
        return (self.meaning.kind in _UNSEEN or self.age_s is not None) and not self.held

    @property
    def held(self) -> bool:
        """It cannot go on whatever its code says: stopped, dead, in the kernel, or without GIL."""
        return self.meaning.kind in _HELD or self.gone

    @property
    def may_get_work(self) -> bool:
        """It stands where work may come in that others hand it."""
        return self.meaning.kind in _FOR_WORK and not (self.held or self.sample.awaits)

    @property
    def certain(self) -> bool:
        """No second look is needed: it is stopped or dead."""
        return self.meaning.kind in _CERTAIN

    @property
    def serves(self) -> bool:
        """Whether its main thread only takes requests, or waits for threads that do the work."""
        return self.meaning.kind in ("network", "lock")

    @property
    def gives_orders(self) -> bool:
        """Whether it is an engine's core, for whose orders workers wait."""
        return is_core(self.sample.command)

    @property
    def says(self) -> str:
        """What it does and where, after "rank 5 is"."""
        if self.gone:
            return "gone: its process ended"
        if self.age_s is not None:
            does = self.meaning.says if self.held else "without a stack"
            return f"{does}; seen last {self.age_s:.1f} s before{at_site(self.meaning.site)}"
        within = f", while {self.meaning.within}" if self.meaning.within else ""
        within += f", in its {printable(self.sample.activity, 40)}" if self.sample.activity else ""
        within += f", for another {self.wakes_s:,.0f} s" if self.wakes_s >= 1.0 else ""
        within += (
            f", for {printable(self.sample.awaits, 60)!r} in a store" if self.sample.awaits else ""
        )
        if self.sample.lock:
            held = f", which {self.peer} holds" if self.peer else ""
            within += f", {printable(self.sample.lock.rpartition('/')[2], 60)}{held}"
        else:
            within += f", for {self.peer}" if self.peer else ""
        within += f", for {self.outside.names}" if self.outside and self.outside.address else ""
        worker = at_site(user_frame(self.worker))
        worker = f"; its worker stands{worker}" if worker else ""
        return f"{self.meaning.says}{within}{at_site(self.meaning.site)}{worker}"


def at_site(frame: Frame | None) -> str:
    """A place in the user's code: " at load (data.py:31)", or nothing."""
    if frame is None:
        return ""
    return f" at {frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})"


def looks_of(samples: Iterable[ProcessSample]) -> dict[int, RankLook]:
    """The ranks among the samples, ascending; of two processes with one rank the one with a stack.

    Helpers, launchers and processes without a rank say nothing about a rank and are left out.
    """
    found: dict[int, RankLook] = {}
    samples = list(samples)
    ranks = [s for s in samples if s.rank >= 0 and s.role == "rank"]
    newest_ns = _newest_ns(ranks)
    for looks in latest(ranks):
        look = _look(looks, newest_ns)
        known = found.get(look.rank)
        if known is None or (known.unseen or known.gone):
            found[look.rank] = look
    workers = _workers_of(samples)
    placed = {
        rank: replace(look, worker=workers[rank]) if _awaits_worker(look, workers) else look
        for rank, look in sorted(found.items())
    }
    here = {(look.host, look.pid): rank for rank, look in placed.items()}
    return {rank: _with_peer(look, here) for rank, look in placed.items()}


def _with_peer(look: RankLook, ranks: Mapping[tuple[str, int], int]) -> RankLook:
    """With whom it waits for: another rank by a connection of theirs, or who is outside.

    Where it waits for data or storage, its own code or node may be as much the reason as the server
    behind that: who this is, is told, and the rank stays the one that others wait for.
    """
    sample = look.sample
    other = ranks.get((look.host, sample.peer_pid))
    if look.gone or look.held or look.waits or look.may_wait:
        return look
    if other is not None:
        return replace(look, peer=f"rank {other}", holder=other if sample.lock else -1)
    if sample.lock:
        return replace(look, peer=holder_of(sample))
    asks = look.meaning.kind in OUTSIDE_KINDS
    if not asks and not sample.peer:
        return look
    outside = outside_of(sample, look.meaning)
    if asks:
        return replace(look, outside=outside)
    return replace(look, peer=outside.names if outside and outside.address else "")


def _awaits_worker(look: RankLook, workers: Mapping[int, tuple[Frame, ...]]) -> bool:
    return look.meaning.kind == "data-loader" and look.rank in workers


def _workers_of(samples: Iterable[ProcessSample]) -> dict[int, tuple[Frame, ...]]:
    """By rank, where the first of its data-loader workers stands that is in the program's code."""
    found: dict[int, tuple[Frame, ...]] = {}
    for sample in samples:
        thread = main_thread(sample) if sample.parent_rank >= 0 else None
        frames = thread.frames if thread else ()
        at = [i for i, frame in enumerate(frames) if same_file(frame.file, _WORKER_LOOP)]
        inner = frames[: at[-1]] if at else ()
        if user_frame(inner) is not None:
            found.setdefault(sample.parent_rank, inner)
    return found


def doubles_of(samples: Iterable[ProcessSample]) -> dict[int, tuple[RankLook, ...]]:
    """Ranks that several living processes of this moment say they are, while they set up groups."""
    ranks = [s for s in samples if s.rank >= 0 and s.role == "rank" and s.phase == "initialising"]
    newest_ns = _newest_ns(ranks)
    found: dict[int, list[RankLook]] = {}
    for looks in latest(ranks):
        look = _look(looks, newest_ns)
        if not (look.gone or look.unseen):
            found.setdefault(look.rank, []).append(look)
    return {rank: tuple(looks) for rank, looks in sorted(found.items()) if len(looks) > 1}


def looks_of_others(samples: Iterable[ProcessSample]) -> list[RankLook]:
    """What gives orders to ranks, or serves them: engines, launchers, helpers, by host, number."""
    others = [sample for sample in samples if sample.rank < 0 and sample.role != "unknown"]
    looks = [_look(each, _newest_ns(others)) for each in latest(others)]
    return sorted(looks, key=lambda look: (look.host, look.pid))


def looks_without_rank(samples: Iterable[ProcessSample]) -> list[RankLook]:
    """Processes about which nothing tells the rank, and that may be ranks, by host and number."""
    bare = [s for s in samples if s.rank < 0 and s.parent_rank < 0 and s.role == "unknown"]
    newest_ns = _newest_ns(bare)
    looks = [_look(each, newest_ns) for each in latest(bare)]
    return sorted(looks, key=lambda look: (look.host, look.pid))


def looks_with_dumps(case: Case, looks: Mapping[int, RankLook]) -> dict[int, RankLook]:
    """The looks at a case's samples, and of ranks without any the main thread as their dump has it.

    Only our own recorder writes that into dumps. It is one look, from inside: good for showing
    where a rank stood, not for saying that it does not move.
    """
    inside = (_of_dump(d) for d in case.dumps if d.main_stack and d.rank not in looks)
    return dict(sorted({**looks_of(inside), **looks}.items()))


def _of_dump(dump: Dump) -> ProcessSample:
    main = ThreadStack("MainThread", 0, dump.main_stack, is_main=True)
    return ProcessSample(
        rank=dump.rank, host=dump.host, pid=dump.pid, threads=(main,), time_ns=dump.time_ns
    )


def _newest_ns(samples: Iterable[ProcessSample]) -> int:
    """The last moment about which anything is known: of ranks that all ended, it is an end."""
    return max((max(sample.time_ns, sample.ended_ns) for sample in samples), default=0)


def _with_stack(looks: list[ProcessSample]) -> ProcessSample:
    """The newest look at a process, with the newest stack that was taken of it while it lives.

    A sampler that gets no stack under load takes nothing away from what was seen a moment before;
    nor does the empty one of an interpreter that is about to end.
    """
    last = looks[-1]
    if len(looks) == 1 or last.gone or last.exit_status is not None or last.state in _ENDED:
        return last
    sampled = (look for look in looks if look.tool != LAST_KNOWN)
    seen = [look for look in sampled if (main := main_thread(look)) is not None and main.frames]
    if not seen or seen[-1] is last:
        return last
    return dataclasses.replace(last, threads=seen[-1].threads, tool=seen[-1].tool, error="")


def _look(looks: list[ProcessSample], newest_ns: int) -> RankLook:
    last = _with_stack(looks)
    known = last.tool == LAST_KNOWN and last.time_ns > 0
    meaning, thread = meaning_of(last), main_thread(last)
    frames = thread.frames if thread else ()
    return RankLook(
        sample=last,
        meaning=meaning,
        moved=has_moved(looks),
        frames=frames,
        doing=estimate(Series.of(last.looks), kind=meaning.kind),
        inside=meaning_of_frames(frames).op,
        age_s=(newest_ns - last.time_ns) / 1e9 if known else None,
        worker=awaited.frames if (awaited := awaited_thread(last)) is not None else (),
        wakes_s=last.wakes_s if thread is not None and thread.is_main else -1.0,
        served=sum(map(is_served, last.threads)) if last.worker else 0,
    )
