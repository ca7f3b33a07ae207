"""Run a plan: asynchronous hosts, in-order devices, and calls that end when their peers meet them.

Every time in the result is the maximum of the times that it depends on plus a duration, so the
order in which the engine looks at ranks cannot change any result; a queue of ready work replaces a
clock. Whoever is stuck in the end is stuck because the peers that it needs never came: nobody is
told to hang except by the injected fault itself.

What it models: one stream per group and rank (NCCL), one per pair for unbatched sends and receives;
synchronous calls order later work of the rank behind them; hosts run ahead until they synchronise.
On Gloo the host itself waits. Broadcast and scatter are chains from the root, which finishes by
itself; reduce and gather are the reverse. Sends are rendezvous. Refused: bandwidth, topology,
protocols; a collective takes a constant time once everybody is there.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from lab.model.job import (
    Bundle,
    Compute,
    DeviceStop,
    HostSync,
    Issue,
    Join,
    Plan,
    Step,
    Stop,
)
from unhang.rehearse.matching.agreement import MemberMeeting, PairChannel

_ENQUEUE_S = 12e-6
_TRANSFER_S = 180e-6


@dataclass(slots=True, eq=False)
class Record:
    """What the recorder notes about one call; times in seconds since the start of the job.

    Attributes:
        issue: The call; for a closing entry of a bundle, its first member.
        closing: Name of the closing entry that this is, or "".
        member: True for a member of a bundle, which has no launch of its own.
        enqueued: Whether the library's enqueue returned.
        seen: False where the finish is real but the host's device queries fail.
    """

    rank: int
    number: int
    issue: Issue
    seq: int
    p2p_seq: int
    op_id: int
    created: float
    closing: str = ""
    member: bool = False
    enqueued: bool = True
    seen: bool = True
    started: float | None = None
    finished: float | None = None


@dataclass(slots=True, eq=False)
class _Launch:
    """One launch on a rank's stream: a single call or a whole bundle."""

    rank: int
    step: Issue | Bundle
    records: list[Record]
    ready: float
    delay: float
    waits_for: int = 0
    waiters: list[_Launch] = field(default_factory=list)
    transfers: int = 0
    latest: float = 0.0
    started: float | None = None
    finished: float | None = None


@dataclass(slots=True, eq=False)
class _Host:
    """Where one rank's host stands."""

    rank: int
    now: float
    rng: random.Random
    position: int = 0
    delay: float = 0.0
    streams: dict[object, _Launch] = field(default_factory=dict)
    current: list[_Launch] = field(default_factory=list)
    pending: list[_Launch] = field(default_factory=list)
    blocked_on: list[_Launch] = field(default_factory=list)
    device_dead: bool = False
    blind: int = 0
    records: list[Record] = field(default_factory=list)
    counters: dict[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan.

    Attributes:
        records: Per rank, in program order.
        ended: Ranks whose program ran to its end.
        positions: Per rank, the index of the step at which its host stands.
        end_s: The latest moment at which anything happened.
    """

    plan: Plan
    records: list[list[Record]]
    ended: frozenset[int]
    positions: list[int]
    end_s: float

    def head(self, rank: int) -> Record | None:
        """The earliest call of a rank that has a launch of its own and has not finished."""
        for record in self.records[rank]:
            if record.finished is None and not record.member:
                return record
        return None


def run(plan: Plan, seed: int) -> Outcome:
    """Run a plan to the end, or until nothing moves any more. Equal arguments, equal outcome."""
    engine = _Engine(plan, seed)
    engine.go()
    return engine.outcome()


class _Engine:
    """State of one run; see the module's docstring for the rules."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.hosts = [
            _Host(rank, now=0.0, rng=random.Random(f"{seed}/{rank}"))  # noqa: S311 - reproducible on purpose
            for rank in range(plan.world_size)
        ]
        self.meetings: dict[tuple[int, int], MemberMeeting] = {}
        self.channels: dict[tuple[int, int, int], PairChannel] = defaultdict(PairChannel)
        self.queue: deque[Callable[[], None]] = deque()
        self.end = 0.0

    def go(self) -> None:
        """Work until nothing is ready."""
        for host in self.hosts:
            self._advance(host)
            while self.queue:
                self.queue.popleft()()

    def outcome(self) -> Outcome:
        """The result, once nothing moves any more."""
        for host in self.hosts:
            if host.blind:
                _go_blind(host)
        ended = frozenset(
            h.rank for h in self.hosts if h.position >= len(self.plan.programs[h.rank])
        )
        return Outcome(
            plan=self.plan,
            records=[h.records for h in self.hosts],
            ended=ended,
            positions=[h.position for h in self.hosts],
            end_s=max([self.end, *(h.now for h in self.hosts)]),
        )

    # -- hosts ---------------------------------------------------------------------------------

    def _advance(self, host: _Host) -> None:
        """Run a host's program until it blocks or ends."""
        program = self.plan.programs[host.rank]
        while host.position < len(program):
            if not self._perform(host, program[host.position]):
                return
            host.position += 1

    def _perform(self, host: _Host, step: Step) -> bool:
        """Do one step; False if the host stays in it."""
        if isinstance(step, (Issue, Bundle)):
            return self._issue(host, step)
        if isinstance(step, Compute):
            factor = self.plan.slow.get(host.rank, 1.0) * self._jitter(host)
            host.now += step.host_s * factor
            host.delay += step.device_s * factor
        elif isinstance(step, Join):
            host.current = [*host.current, *host.pending]
            host.pending = []
        elif isinstance(step, HostSync):
            return self._block(host, [*host.streams.values(), *host.pending])
        elif isinstance(step, DeviceStop):
            host.device_dead = True
            host.blind = step.blind
        elif isinstance(step, Stop):
            return False
        return True

    def _jitter(self, host: _Host) -> float:
        return 1.0 + self.plan.pace * host.rng.random()

    def _block(self, host: _Host, launches: list[_Launch]) -> bool:
        """Wait for launches; False while one of them is unfinished."""
        host.blocked_on = [launch for launch in launches if launch.finished is None]
        if host.blocked_on:
            return False
        host.now = max([host.now, *(x.finished for x in launches if x.finished is not None)])
        return True

    def _issue(self, host: _Host, step: Issue | Bundle) -> bool:
        if host.blocked_on:
            # Back from the wait for this very call, on a backend whose calls block the host.
            finished = [x.finished for x in host.blocked_on if x.finished is not None]
            host.blocked_on = []
            host.now = max([host.now, *finished])
            return True
        host.now += _ENQUEUE_S * self._jitter(host)
        records = _records_of(host, step)
        host.records.extend(records)
        if step.inside:
            for record in records:
                record.enqueued = False
            return False
        launch = self._launch(host, step, records)
        if self.plan.groups[step.group].backend == "gloo" and step.sync:
            host.blocked_on = [launch]
            return False
        return True

    def _launch(self, host: _Host, step: Issue | Bundle, records: list[Record]) -> _Launch:
        launch = _Launch(host.rank, step, records, ready=host.now, delay=host.delay)
        host.delay = 0.0
        stream = _stream_of(step, host.rank)
        before = {id(x): x for x in (host.streams.get(stream), *host.current) if x is not None}
        for earlier in before.values():
            if earlier.finished is None:
                launch.waits_for += 1
                earlier.waiters.append(launch)
            else:
                launch.ready = max(launch.ready, earlier.finished)
        host.streams[stream] = launch
        if step.sync:
            host.current = [launch]
        else:
            host.pending.append(launch)
        if host.device_dead:
            launch.waits_for += 1
        if not launch.waits_for:
            self._start(launch)
        return launch

    # -- devices -------------------------------------------------------------------------------

    def _start(self, launch: _Launch) -> None:
        launch.started = launch.ready + launch.delay
        for record in launch.records:
            record.started = launch.started
        step = launch.step
        if step.is_p2p:
            self._post(launch, step)
        else:
            self._meet(launch, step)

    def _meet(self, launch: _Launch, step: Issue | Bundle) -> None:
        key = (step.group, launch.records[-1].seq)
        meeting = self.meetings.get(key)
        if meeting is None:
            members = self.plan.groups[step.group].members
            meeting = self.meetings[key] = MemberMeeting(
                members, self.plan.frozen.get(key), tolerant=self.plan.tolerant
            )
        for done, at in meeting.arrive(launch.rank, step, launch.started or 0.0, launch):
            self._later(done, at)

    def _post(self, launch: _Launch, step: Issue | Bundle) -> None:
        issues = step.issues if isinstance(step, Bundle) else (step,)
        launch.transfers = len(issues)
        launch.latest = launch.started or 0.0
        for issue in issues:
            mine, theirs = launch.rank, issue.peer
            source, target = (mine, theirs) if issue.op == "send" else (theirs, mine)
            matched = self.channels[(step.group, source, target)].post(issue, launch)
            for other in matched:
                self._transferred(launch, other)
                self._transferred(other, launch)

    def _transferred(self, launch: _Launch, other: _Launch) -> None:
        launch.transfers -= 1
        launch.latest = max(launch.latest, other.started or 0.0)
        if not launch.transfers:
            self._later(launch, launch.latest)

    def _later(self, launch: _Launch, at: float) -> None:
        jitter = self._jitter(self.hosts[launch.rank])
        self.queue.append(lambda: self._finish(launch, at + _TRANSFER_S * jitter))

    def _finish(self, launch: _Launch, at: float) -> None:
        launch.finished = at
        self.end = max(self.end, at)
        for record in launch.records:
            record.finished = at
        for waiter in launch.waiters:
            waiter.ready = max(waiter.ready, at)
            waiter.waits_for -= 1
            if not waiter.waits_for:
                self._start(waiter)
        launch.waiters = []
        host = self.hosts[launch.rank]
        if host.blocked_on and all(x.finished is not None for x in host.blocked_on):
            self._advance(host)


def _go_blind(host: _Host) -> None:
    """After a device error the last finishes are never noticed by the host."""
    done = [r for r in host.records if r.finished is not None and not r.member]
    for record in done[len(done) - host.blind :]:
        record.seen = False


def _stream_of(step: Issue | Bundle, rank: int) -> object:
    if isinstance(step, Issue) and step.is_p2p:
        return (step.group, min(rank, step.peer), max(rank, step.peer))
    return step.group


def _records_of(host: _Host, step: Issue | Bundle) -> list[Record]:
    """Number the entries of one launch as torch does (one sequence number a launch)."""
    counter = host.counters.setdefault(step.group, [0, 0, 0])
    counter[1 if step.is_p2p else 0] += 1
    issues = step.issues if isinstance(step, Bundle) else (step,)
    made = []
    for issue in issues:
        counter[2] += 1
        made.append(_record(host, issue, counter, member=isinstance(step, Bundle)))
    if isinstance(step, Bundle):
        closing = _record(host, issues[0], counter, member=False, offset=len(made))
        closing.closing = step.closing
        made.append(closing)
    for offset, record in enumerate(made):
        record.number = len(host.records) + offset
    return made


def _record(
    host: _Host, issue: Issue, counter: list[int], *, member: bool, offset: int = 0
) -> Record:
    return Record(
        rank=host.rank,
        number=0,
        issue=issue,
        seq=counter[0],
        p2p_seq=counter[1],
        op_id=counter[2],
        created=host.now + offset * 1e-7,
        member=member,
    )
