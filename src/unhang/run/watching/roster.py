"""The ranks of this run on this node: who they are, how far they have come, who has gone.

It reads marks, heartbeats and /proc, all of them from outside: a look costs the ranks nothing.
It decides nothing; `watch` does.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unhang.activity.estimate import Activity
from unhang.activity.looks import ProcessLook
from unhang.collect.processes import Process, ProcessTable, read_processes
from unhang.collect.ranks import find_ranks, is_launcher
from unhang.model import MemoryKill
from unhang.record.contact.beatlayout import TICK_S, GroupBeat
from unhang.record.contact.heartbeat import Heartbeat, read_heartbeat
from unhang.record.contact.marks import Mark, alive, is_of_here, read_marks
from unhang.run.watching.memory import MemoryCounts
from unhang.run.watching.moving import Movement
from unhang.run.watching.newborn import BEFORE, STARTING, TRACKERS, Newborns
from unhang.run.watching.outputs import OwnFiles
from unhang.run.watching.outside import UNARMED, Outsiders
from unhang.run.watching.procs import exit_status, reaped_status
from unhang.run.watching.watch import ProgressLook, RankProgress

_IN_JOB = ("initialising", "ready", UNARMED)
_LEFT = ("destroyed", "exited")
_KEPT_NS = int(3 * TICK_S * 1e9)
_KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True, slots=True)
class WatchedRank:
    """One rank of this node, or a process that is about to become one.

    Attributes:
        rank: As the process says, or as its environment says as long as it initialises.
        certain: False for the latter.
        unarmed: Why there is no recorder in it, or "" where there is one.
    """

    mark: Mark
    rank: int
    certain: bool
    unarmed: str = ""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.mark.pid


@dataclass(frozen=True, slots=True)
class Gone:
    """A member whose process has ended.

    Attributes:
        status: As shells say it; None where it was waited for before we could look.
        clean: It ended on its own, without error, as far as is known.
        time_ns: When it began to end by its own word, or was seen to have ended.
        order: 0 for the first of the run to go.
        memory_kill: What the kernel killed for memory in the meantime; None where nothing tells of
            any.
    """

    member: WatchedRank
    status: int | None
    clean: bool
    time_ns: int
    order: int
    memory_kill: MemoryKill | None = None


@dataclass(slots=True)
class Roster:
    """Follows the processes of one run on this node.

    Attributes:
        child: The command's process: ranks without a recorder are looked for below it. 0: nowhere.
        members: Alive, of the newest attempt, by rank.
        gone: Ended, in order.
        attempt: How often the launcher has restarted the job.
        world_size: What the ranks say; 0 as long as none said anything.
        statuses: Exit statuses by pid, read the moment that the processes ended.
        descriptors: pidfds of members by pid, as far as they are open.
        outputs: The files that ranks print into by themselves.
        weigh: Look for work also while calls wait, which costs a look at all processes.
    """

    job: str
    run: str
    child: int = 0
    members: list[WatchedRank] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    attempt: int = 0
    world_size: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    descriptors: dict[int, int] = field(default_factory=dict)
    outputs: OwnFiles = field(default_factory=OwnFiles)
    _counted: set[tuple[int, int]] = field(default_factory=set)
    _movement: Movement = field(default_factory=Movement)
    _finished: dict[int, int] = field(default_factory=dict)
    _moves: dict[int, int] = field(default_factory=dict)
    _groups: dict[int, dict[tuple[str, int], GroupBeat]] = field(default_factory=dict)
    _renewed: bool = False
    weigh: bool = False
    _memory: MemoryCounts = field(default_factory=MemoryCounts)
    _outsiders: Outsiders = field(init=False)
    _newborns: Newborns = field(init=False)

    def __post_init__(self) -> None:
        self._outsiders = Outsiders(self.job, self.run, self.child)
        self._newborns = Newborns(self.job, self.run, self.child)

    def refresh(self) -> list[Gone]:
        """Read the marks again; returns the members that have gone since the last time.

        `statuses` has how processes ended whose end was seen elsewhere.
        """
        # Whether others live cannot be seen, so they have not gone either.
        marks = [m for m in read_marks(self.job) if m.run == self.run and is_of_here(m)]
        found = [member for mark in marks if (member := member_of(mark)) is not None]
        outsiders = self._outsiders.search(marks, time.monotonic(), anew=self._renewed)
        found += [WatchedRank(o.mark, o.rank, certain=True, unarmed=o.why) for o in outsiders]
        newborns = self._newborns.search(marks, time.monotonic())
        found += [WatchedRank(each.mark, each.rank, certain=False) for each in newborns]
        living = [member for member in found if alive(member.mark)]
        living += self._still_coming(found)
        present = {_key(member) for member in living}
        # Also those that came and went between two looks.
        seen = {_key(m): m for m in (*self.members, *found)}
        passed = {k: m for k, m in seen.items() if k not in present and not alive(m.mark)}
        gone = self._ended(m for key, m in passed.items() if key not in self._counted)
        self._counted |= passed.keys()
        for member in (*passed.values(), *living):
            self.attempt = max(self.attempt, member.mark.attempt)
            self.world_size = member.mark.world_size or self.world_size
        self.members = sorted(
            (m for m in living if m.mark.attempt == self.attempt), key=lambda m: m.rank
        )
        self.outputs.note((member.rank, member.pid) for member in living)
        self._memory.follow({member.pid for member in living}, time.monotonic())
        self.gone += gone
        self._renewed = bool(gone)
        return gone

    def _still_coming(self, found: Sequence[WatchedRank]) -> Iterator[WatchedRank]:
        """Newborns that are no longer searched for, because a peer has joined, and live on."""
        keys, ranks = {_key(member) for member in found}, {member.rank for member in found}
        for member in self.members:
            if _key(member) not in keys and member.rank not in ranks and alive(member.mark):
                yield member

    def look(self) -> ProgressLook:
        """What all members have done, as of now; those that have left the job are left out.

        A process may need seconds to end after it has left, and its last counters say nothing.
        Once all others have ended, such a one is the last that the launcher waits for: then its
        work is what is seen of it.
        """
        now = time.monotonic()
        inside = [member for member in self.members if member.mark.phase in (*_IN_JOB, *BEFORE)]
        last = [] if inside else self._last_to_end()
        inside += last
        alone = all(member.mark.phase in BEFORE for member in inside)
        beats = {member.pid: read_heartbeat(member.mark.heartbeat) for member in inside}
        waiting = {pid: is_waiting(beat) for pid, beat in beats.items()}
        whole = {pid: self._with_all_groups(pid, beat) for pid, beat in beats.items()}
        finished = {pid: finished_calls(beat) for pid, beat in whole.items()}
        begun = {pid: begun_calls(beat) for pid, beat in whole.items()}
        unarmed = {m.pid for m in inside if m.unarmed or m.mark.phase in BEFORE or m in last}
        # Whether idle ranks work matters only where nothing else tells that the job is alive.
        quiet = finished == self._finished
        unclear = quiet and not any(waiting.values())
        self._finished = finished
        doing = self._doings(beats, now, look=unclear or bool(unarmed))
        if not quiet:
            self._movement.begin(beats.keys() - unarmed)
        coming = {m.pid for m in inside if m.mark.phase in BEFORE and not alone}
        for pid in unarmed - coming:  # Work is all that is seen of its progress.
            self._moves[pid] = self._moves.get(pid, 0) + doing[pid].busy
            finished[pid] = begun[pid] = self._moves[pid]
        ranks = [
            RankProgress(
                m.rank,
                m.pid,
                finished[m.pid],
                begun[m.pid],
                waiting[m.pid] if m.pid not in coming else False,
                busy=doing[m.pid].busy,
                coming=m.pid in coming,
                works=bool(doing[m.pid].steady) and not is_inside(beats[m.pid]),
                counted=counted_calls(whole[m.pid]),
                ended=ended_calls(beats[m.pid]),
                inside=stands_in_call(beats[m.pid]),
            )
            for m in inside
        ]
        return ProgressLook(now, ranks, elsewhere=self._others_are_elsewhere())

    def _with_all_groups(self, pid: int, beat: Heartbeat | None) -> Heartbeat | None:
        """The same with groups that it no longer tells of: going and coming back is no news."""
        if beat is None:
            return None
        known = self._groups.setdefault(pid, {})
        known.update(((each.recorder, each.pg_id), each) for each in beat.groups)
        return replace(beat, groups=tuple(known.values()))

    def _last_to_end(self) -> list[WatchedRank]:
        """Who has left the job and is still there, when some have ended and no rank is inside."""
        here, gone = self.of_attempt(self.attempt)
        return [member for member in here if gone and member.mark.phase in _LEFT]

    def _doings(
        self, beats: Mapping[int, Heartbeat | None], now: float, *, look: bool
    ) -> dict[int, Activity]:
        wall_ns = time.time_ns()
        for pid, beat in beats.items():
            if beat is not None:
                # A thread that keeps the GIL lets no line pass, and the recorder note none.
                kept = beat.tick_ns > 0 and wall_ns - beat.tick_ns > _KEPT_NS
                self._movement.passes(pid, beat.at, wall_ns if kept else beat.seen_ns)
        if not (look or self.weigh):
            return dict.fromkeys(beats, Activity())
        table = read_processes()
        return {
            pid: self._movement.weigh(
                pid,
                table,
                now,
                beat.thread if beat is not None else 0,
                rpc=beat is not None and bool(beat.worker),
            )
            for pid, beat in beats.items()
        }

    def _others_are_elsewhere(self) -> bool:
        """Whether other nodes have ranks of this job: what these do is not seen here."""
        here, gone = self.of_attempt(self.attempt)
        return len({m.rank for m in here} | {g.member.rank for g in gone}) < self.world_size

    def heartbeat(self, member: WatchedRank) -> Heartbeat | None:
        """Its heartbeat, which outlives it."""
        return read_heartbeat(member.mark.heartbeat)

    def lines(self, pid: int) -> tuple[int, int]:
        """How often a member was seen at a line since its job got on, and at how many."""
        return self._movement.lines(pid)

    def looks(self, pid: int) -> tuple[ProcessLook, ...]:
        """The newest looks at a member, oldest first."""
        return self._movement.looks(pid)

    def disturbed(self, pids: Iterable[int]) -> None:
        """These members were looked into."""
        self._movement.disturbed(pids)

    def launchers(self, table: ProcessTable) -> list[Process]:
        """Launchers below the command that have started no rank, by what they are."""
        below = ProcessTable.of(table.below(self.child)) if self.child else ProcessTable({})
        if any(target.role == "rank" for target in find_ranks(below)):
            return []
        launchers = {p.pid: p for p in below.by_pid.values() if p.python and is_launcher(p)}
        # Who has started a program does not wait for other nodes: it runs a single process.
        programs = {
            process.pid
            for process in below.by_pid.values()
            if process.python and process.pid not in launchers
            if not any(word in process.command for word in TRACKERS)
        }
        return [
            launcher
            for pid, launcher in launchers.items()
            if not any(process.pid in programs for process in below.below(pid))
        ]

    def of_attempt(self, attempt: int) -> tuple[list[WatchedRank], list[Gone]]:
        """Those of an attempt that are alive, and those that have ended, in order."""
        alive = self.members if attempt == self.attempt else []
        return alive, [gone for gone in self.gone if gone.member.mark.attempt == attempt]

    def note_end(self, pid: int) -> int | None:
        """How a process has ended, as far as it is known; kept for later."""
        status = self.statuses.get(pid)
        if status is None:
            status = exit_status(pid)
        if status is None and pid in self.descriptors:
            status = reaped_status(self.descriptors[pid])
        if status is not None:
            self.statuses[pid] = status
        return status

    def gone_now(self, member: WatchedRank) -> Gone:
        """A member that has just ended, before the next `refresh` counts it."""
        return self._ended([member])[0]

    def _ended(self, members: Iterable[WatchedRank]) -> list[Gone]:
        """How these have ended; of those that a signal may have killed, whether for memory."""
        gone = [self._gone(member) for member in self._with_last_marks([*members])]
        pids = [each.member.pid for each in gone if _may_be_killed(each)]
        kills = self._memory.kills_at_end(pids)
        return [_with_kill(each, kills.get(each.member.pid)) for each in gone]

    def _with_last_marks(self, ended: Sequence[WatchedRank]) -> list[WatchedRank]:
        """The same by what their marks say now: they may have joined and failed since a look."""
        marks = read_marks(self.job) if ended else []
        last = {_key(member): member for member in map(member_of, marks) if member}
        return [last.get(_key(member), member) for member in ended]

    def _gone(self, member: WatchedRank) -> Gone:
        status = self.note_end(member.pid)
        if status == _RAY_ENDS and _RAY_WORKER in member.mark.command:
            status = None
        # Of those without a recorder, who knows; that a newborn is a rank is but a guess.
        left_well = member.mark.phase in ("exited", "destroyed", UNARMED, STARTING)
        clean = status == 0 or (status is None and left_well and not member.mark.exception)
        told_ns = member.mark.updated_ns if member.mark.phase == "exited" else 0
        return Gone(member, status, clean, told_ns or time.time_ns(), len(self.gone))


_RAY_WORKER = "/ray/_private/workers/default_worker.py"
_RAY_ENDS = 1
"""Ray ends its workers by _exit(1), also those that have done all they had to (seen in 2.60)."""


def _may_be_killed(gone: Gone) -> bool:
    """Whether a signal may have ended it; who is killed says nothing before."""
    said = gone.member.mark.exception or gone.member.mark.phase == "exited"
    return gone.status == _KILLED or (gone.status is None and not said)


def _with_kill(gone: Gone, kill: MemoryKill | None) -> Gone:
    return replace(gone, memory_kill=kill, clean=gone.clean and not (kill and kill.is_certain))


def _key(member: WatchedRank) -> tuple[int, int]:
    """What names a process for ever."""
    return member.mark.pid, member.mark.start_ticks


def member_of(mark: Mark) -> WatchedRank | None:
    """The rank that a mark speaks of; None for launchers, helpers and those outside a job."""
    if mark.role == "rank" and mark.rank is not None:
        return WatchedRank(mark, mark.rank, certain=True)
    # With a heartbeat it has begun to initialise; an error may have ended it before we looked.
    failed = mark.exception and mark.heartbeat
    if mark.env_rank is not None and (mark.phase in _IN_JOB or failed):
        return WatchedRank(mark, mark.env_rank, certain=False)
    return None


def finished_calls(beat: Heartbeat | None) -> int:
    """A number that changes with every call that ends well, and with every reported step."""
    if beat is None:
        return -1
    joined = beat.phase in ("ready", "destroyed")
    ended = beat.waited + beat.enqueued - beat.failed
    return int(joined) + counted_calls(beat) + ended + (beat.step or 0)


def ended_calls(beat: Heartbeat | None) -> int:
    """A number that changes with every call and wait through Python that ends, well or not."""
    return 0 if beat is None else beat.waited + beat.enqueued


def counted_calls(beat: Heartbeat | None) -> int:
    """What the counters of groups say of that, as of the last tick."""
    groups = beat.groups if beat is not None else ()
    return sum(max(group.last_completed, 0) + 1 for group in groups)


def counts_late(beat: Heartbeat | None) -> bool:
    """Whether the counters of groups are older than the newest call."""
    return beat is not None and beat.tick_ns < beat.last_ns


def begun_calls(beat: Heartbeat | None) -> int:
    """A number that changes with every call and every wait that begins, and with every step."""
    if beat is None:
        return -1
    joined = beat.phase in ("ready", "destroyed")
    enqueued = sum(max(group.last_enqueued, 0) + 1 for group in beat.groups)
    return int(joined) + enqueued + beat.calls + beat.waits + (beat.step or 0)


def is_waiting(beat: Heartbeat | None) -> bool | None:
    """Whether a call of it is pending; None without a heartbeat."""
    if beat is None:
        return None
    if is_inside(beat):
        return True
    # Gloo's threads write the number of the last finished call in any order: where all calls came
    # from Python, waits that have ended tell better.
    called = sum(max(group.last_enqueued, 0) for group in beat.groups)
    if called == beat.calls and beat.waited >= beat.calls:
        return False
    return any(group.last_enqueued > group.last_completed for group in beat.groups)


def stands_in_call(beat: Heartbeat | None) -> bool:
    """Whether the thread of its program waits in its last call: it is seen at the line of that.

    Another thread may wait in a call for as long as the program runs, as one for orders does.
    """
    if beat is None or not is_inside(beat) or beat.seen_ns < beat.last_ns:
        return False
    return bool(beat.line) and (beat.file, beat.line) == (beat.seen_file, beat.seen_line)


def is_inside(beat: Heartbeat | None) -> bool:
    """Whether its program itself waits, inside a call that was made from Python."""
    if beat is None:
        return False
    inside = beat.waits > beat.waited or beat.calls > beat.enqueued
    return inside or beat.phase == "initialising"
