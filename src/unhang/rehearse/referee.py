"""Who may go on: every call of every rank, met by the rules of `agreement`, and who waits for what.

Messages of ranks come in, answers go out; nothing here knows sockets or files. A rank that waits
for a call that has not ended gets no answer until it has. Where every rank waits or has ended and
no answer is due, nothing will ever move: that is the end state.

What it models: hosts that wait where the script waits, so asynchronous calls float until then;
calls of one group in their order; sends that end when they are received. NCCL's sends and receives
meet by order, Gloo's by tag. Refused: time-outs, and hosts of NCCL that run ahead of their device.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from unhang.rehearse.agreement import MemberMeeting, PairChannel, agree
from unhang.rehearse.issue import Issue, IssueSite
from unhang.rehearse.keys import SharedKeys
from unhang.rehearse.talking import Message

__all__ = ["LivingRank", "MadeCall", "RankGroup", "Referee", "unpaired"]

Frames: TypeAlias = tuple[tuple[str, str, int], ...]
Waiter: TypeAlias = int
"""A connection's number."""

_NOWHERE: Final = IssueSite("", "", 0)


@dataclass(slots=True, eq=False)
class OneLaunch:
    """Calls that end together, as a batch of sends and receives does on NCCL.

    Attributes:
        closed: No call joins it any more.
    """

    calls: list[MadeCall] = field(default_factory=list)
    closed: bool = False

    def has_met(self) -> bool:
        """Whether all of it may end."""
        return self.closed and all(call.met_ns for call in self.calls)


@dataclass(slots=True, eq=False)
class MadeCall:
    """One call of one rank, and what became of it.

    Attributes:
        told: As the rank told it.
        met_ns, ended_ns: When its partners were there, and when it ended: later in a batch, which
            ends as one. 0 for not yet.
        seq, p2p_seq, op_id: Numbers in its group, as torch's recorder counts.
        senders: Calls whose values it takes, in the order of the group; None where none came.
        takers: How many still have to take its values.
    """

    process: LivingRank
    circle: RankGroup
    told: Message
    frames: Frames
    issue: Issue
    seq: int
    p2p_seq: int
    op_id: int
    created_ns: int
    launch: OneLaunch
    met_ns: int = 0
    ended_ns: int = 0
    senders: list[MadeCall | None] = field(default_factory=list)
    takers: int = 0
    source: int = -1

    @property
    def number(self) -> int:
        """The how manieth of its process."""
        return int(self.told["number"])


@dataclass(slots=True, eq=False)
class RankGroup:
    """A process group, by name and members: ranks that disagree about these never meet."""

    number: int
    name: str
    description: str
    ranks: tuple[int, ...]
    backend: str
    timeout_ms: int
    counters: dict[int, list[int]] = field(default_factory=dict)
    meetings: dict[int, MemberMeeting] = field(default_factory=dict)
    apart: list[MadeCall] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class LivingRank:
    """One rank, or the launcher of some.

    Attributes:
        alive: It has said that it is there: a process that only tells its end is no rank of a job
            that has started its ranks itself.
        waits: What its main thread waits for: calls, or the keys of a store.
        place: Where it waits.
        asked: Groups that it called `new_group` for: members, and where.
        polls: It asks again and again whether a call has ended, and does nothing else.
        code: Its exit code; None while it runs.
    """

    pid: int
    rank: int
    main: Waiter = -1
    joined: bool = False
    launcher: bool = False
    waits: str = ""
    place: Frames = ()
    polls: bool = False
    code: int | None = None
    error: str = ""
    error_frames: Frames = ()
    ended_ns: int = 0
    calls: dict[int, MadeCall] = field(default_factory=dict)
    stacks: dict[tuple[Waiter, int], Frames] = field(default_factory=dict)
    batches: dict[int, OneLaunch] = field(default_factory=dict)
    groups: list[RankGroup] = field(default_factory=list)
    asked: list[tuple[tuple[int, ...], Frames]] = field(default_factory=list)


class Referee:
    """State of one rehearsal. `hear` takes a message; `answers` are what is to be sent."""

    def __init__(self, ranks: int) -> None:
        self.world = ranks
        self.processes: dict[int, LivingRank] = {}
        self.circles: dict[str, RankGroup] = {}
        self.channels: dict[tuple[object, ...], PairChannel] = defaultdict(PairChannel)
        self.keys = SharedKeys()
        self.answers: list[tuple[Waiter, Message]] = []
        self.unreal: list[MadeCall] = []
        self.reads: dict[tuple[str, int], str] = {}
        self.spent: list[tuple[int, int, int]] = []
        self.met = 0
        self._threads: dict[Waiter, LivingRank] = {}
        self._waiting: dict[Waiter, tuple[LivingRank, MadeCall]] = {}

    # -- what ranks say ----------------------------------------------------------------------------

    def hear(self, waiter: Waiter, message: Message) -> None:
        """Take one message of a connection.

        Raises:
            KeyError, TypeError, ValueError: It is none of ours.
        """
        if message["t"] == "hello":
            self._hello(waiter, message)
            return
        process = self._threads[waiter]
        polls = message["t"] == "test" or message.get("do") == "check"
        process.polls = polls
        getattr(self, f"_on_{message['t']}")(waiter, process, message)

    def lost(self, waiter: Waiter) -> None:
        """A connection has ended; of a main thread, with its process."""
        process = self._threads.pop(waiter, None)
        self._waiting.pop(waiter, None)
        if process is not None and process.main == waiter and process.code is None:
            self._end(process, -1)

    def exited(self, pid: int, code: int) -> None:
        """A process has ended, as its parent saw it."""
        process = self.processes.get(pid)
        if process is not None and (process.code is None or process.code < 0):
            self._end(process, code)

    def _hello(self, waiter: Waiter, message: Message) -> None:
        pid, rank = int(message["pid"]), int(message["rank"])
        process = self.processes.setdefault(pid, LivingRank(pid, rank))
        self._threads[waiter] = process
        if message["main"]:
            process.main = waiter

    def _on_alive(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        del waiter, message
        process.waits = ""

    def _on_launches(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        del waiter
        process.launcher, self.world = True, int(message["count"])

    def _on_init(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        del waiter
        process.rank, process.joined = int(message["rank"]), True
        self.world = int(message["world"])
        parent = self.processes.get(int(message["parent"]))
        if parent is not None and not parent.joined:
            parent.launcher = True

    def _on_end(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        del waiter
        process.error, process.error_frames = message["error"], _frames(message["frames"])
        self._end(process, int(message["code"]))

    def _end(self, process: LivingRank, code: int) -> None:
        process.code, process.waits = code, ""
        process.ended_ns = process.ended_ns or time.time_ns()

    def _on_group(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        del waiter
        key = message["key"]
        if key not in self.circles:
            self.circles[key] = RankGroup(
                len(self.circles), message["name"], message["description"],
                tuple(message["ranks"]), message["backend"], int(message["timeout_ms"]),
            )  # fmt: skip
        process.groups.append(self.circles[key])

    def _on_asked(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        place = self._stack(waiter, process, message)
        process.asked.append((tuple(message["ranks"]), place))

    def _on_unreal(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        del waiter
        self.unreal.append(process.calls[message["number"]])

    def _on_read(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        del waiter, process
        self.reads[message["file"], int(message["line"])] = message["what"]

    # -- calls -------------------------------------------------------------------------------------

    def _on_call(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        circle = self.circles[message["group"]]
        frames = self._stack(waiter, process, message)
        p2p = message["peer"] >= 0
        counter = circle.counters.setdefault(process.rank, [0, 0, 0])
        counter[1 if p2p else 0] += 1
        counter[2] += 1
        issue = _issue(circle, message, frames)
        seq, p2p_seq, op_id = counter
        launch = OneLaunch(closed=True)
        if message["batch"] >= 0:
            launch = process.batches.setdefault(message["batch"], OneLaunch())
        call = MadeCall(
            process, circle, message, frames, issue, seq, p2p_seq, op_id, time.time_ns(), launch
        )
        launch.calls.append(call)
        process.calls[call.number] = call
        if p2p:
            self._post(call)
        else:
            self._meet(call)

    def _on_closed(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        del waiter
        launch = process.batches.pop(message["batch"])
        launch.closed = True
        self._end_if_met(launch)

    def _stack(self, waiter: Waiter, process: LivingRank, message: Message) -> Frames:
        key = (waiter, int(message["stack"]))
        if "frames" in message:
            process.stacks[key] = _frames(message["frames"])
        return process.stacks[key]

    def _meet(self, call: MadeCall) -> None:
        circle, rank = call.circle, call.process.rank
        meeting = circle.meetings.setdefault(call.seq, MemberMeeting(circle.ranks))
        leaving = meeting.arrive(rank, call.issue, 0.0, call)
        if len(meeting.arrived) == len(meeting.members):
            calls = [each for each in self._members(meeting) if each is not None]
            if not agree([each.issue for each in calls]) or unpaired(calls):
                circle.apart = circle.apart or calls
            del circle.meetings[call.seq]
        if circle.apart:
            return  # in its group nothing moves behind a call about which its members disagree
        for other, _ in leaving:
            self._ends(other, self._members(meeting))

    def _members(self, meeting: MemberMeeting) -> list[MadeCall | None]:
        there = meeting.arrived
        return [there[rank][2] if rank in there else None for rank in meeting.members]

    def _post(self, call: MadeCall) -> None:
        issue, circle, me = call.issue, call.circle, call.process.rank
        tag = call.told["tag"] if circle.backend == "gloo" else 0
        if issue.peer < 0:
            first = self._from_any(call, tag)
            if first is None:
                self.channels[circle.number, "any", me, tag].receives.append((issue, call))
                return
            issue = first
        sends = issue.op == "send"
        source, target = (me, issue.peer) if sends else (issue.peer, me)
        channel = self.channels[circle.number, source, target, tag]
        waiting = self.channels[circle.number, "any", target, tag].receives
        if sends and waiting and not channel.receives:
            _, other = waiting.popleft()
            self._passes(call, other)
            return
        for other in channel.post(issue, call):
            self._passes(*((call, other) if sends else (other, call)))

    def _from_any(self, call: MadeCall, tag: int) -> Issue | None:
        """A receive from any rank, as one from the first that sends already."""
        for source in call.circle.ranks:
            channel = self.channels[call.circle.number, source, call.process.rank, tag]
            if channel.sends:
                return replace(call.issue, peer=source)
        return None

    def _passes(self, send: MadeCall, receive: MadeCall) -> None:
        receive.source = receive.circle.ranks.index(send.process.rank)
        self._ends(send, [])
        self._ends(receive, [send])

    def _ends(self, call: MadeCall, senders: list[MadeCall | None]) -> None:
        """The partners of a call are there; it ends with all of its launch."""
        self.met += 1
        call.met_ns = time.time_ns()
        call.senders = senders
        self._end_if_met(call.launch)

    def _end_if_met(self, launch: OneLaunch) -> None:
        """End calls, and let the threads that wait for them hear of it."""
        if not launch.has_met():
            return
        for call in launch.calls:
            call.ended_ns = time.time_ns()
        for waiter, (_, awaited) in list(self._waiting.items()):
            if awaited.launch is launch:
                self._answer_wait(waiter, awaited)

    # -- waiting -----------------------------------------------------------------------------------

    def _on_wait(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        call = process.calls[message["number"]]
        place = self._stack(waiter, process, message)
        if call.ended_ns:
            self._answer_wait(waiter, call)
            return
        self._waiting[waiter] = (process, call)
        if waiter == process.main:
            process.waits, process.place = "call", place

    def _on_test(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        call = process.calls[message["number"]]
        if call.ended_ns:
            self._answer_wait(waiter, call)
        else:
            self.answers.append((waiter, {"done": False}))

    def _answer_wait(self, waiter: Waiter, call: MadeCall) -> None:
        self._waiting.pop(waiter, None)
        if waiter == call.process.main:
            call.process.waits = ""
        met = [
            s and [s.process.rank, s.number, s.told["gives"], s.told["carried"]]
            for s in call.senders
        ]
        self.answers.append((waiter, {"done": True, "met": met, "source": call.source}))

    def _on_took(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        """A rank has read what its call received: what all have read is spent."""
        del waiter
        for sender in process.calls[message["number"]].senders:
            if sender is not None:
                sender.takers += 1
                if sender.takers == (1 if sender.told["peer"] >= 0 else len(sender.circle.ranks)):
                    self.spent.append((sender.process.rank, sender.number, sender.told["kept"]))

    # -- the store ---------------------------------------------------------------------------------

    def _on_store(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        place = self._stack(waiter, process, message) if "stack" in message else ()
        value = self.keys.ask(waiter, message)
        if value is None:
            if waiter == process.main:
                process.waits, process.place = f"key {self.keys.awaited(waiter)}", place
            return
        self.answers.append((waiter, {"value": value}))
        for other, late in self.keys.due():
            answered = self._threads.get(other)
            if answered is not None and answered.main == other:
                answered.waits = ""
            self.answers.append((other, {"value": late}))

    # -- the end -----------------------------------------------------------------------------------

    @property
    def ranks(self) -> dict[int, LivingRank]:
        """The ranks of the job, ascending: not what started them."""
        launched = any(p.launcher for p in self.processes.values())
        known = [p for p in self.processes.values() if not p.launcher]
        found = {p.rank: p for p in known if p.joined or not launched}
        return dict(sorted(found.items()))

    @property
    def is_over(self) -> bool:
        """Whether every rank has ended."""
        ranks = self.ranks
        return len(ranks) >= self.world and all(p.code is not None for p in ranks.values())

    @property
    def is_stuck(self) -> bool:
        """Whether ranks wait, and no other rank is left that could help them."""
        ranks = self.ranks.values()
        return len(ranks) >= self.world and all(
            p.waits or p.polls or p.code is not None for p in ranks
        )

    @property
    def needs_quiet(self) -> bool:
        """Whether being stuck is sure only after a while: other threads, or ranks that poll."""
        mains = {p.main for p in self.processes.values()}
        threads = [w for w in self._threads if w not in mains and w not in self._waiting]
        return bool(threads) or any(p.polls for p in self.ranks.values())

    def calls(self) -> int:
        """How many calls were made."""
        return sum(len(p.calls) for p in self.processes.values())


def unpaired(calls: Sequence[MadeCall]) -> list[tuple[int, int]]:
    """Giver and taker, by places in the group, that disagree about how much passes between them."""
    gives, takes = ([call.told[side] for call in calls] for side in ("gives", "takes"))
    places = range(len(calls))
    if any(len(each) != len(calls) for each in (*gives, *takes)):
        return []
    return [(i, j) for i in places for j in places if gives[i][j] != takes[j][i]]


def _frames(rows: list[Any]) -> Frames:
    return tuple((str(name), str(file), int(line)) for name, file, line in rows)


def _issue(circle: RankGroup, told: Message, frames: Frames) -> Issue:
    """A call as the rules see it; ranks are those of the job."""
    ranks, p2p = circle.ranks, told["peer"] >= 0
    function, file, line = frames[0] if frames else ("", "", 0)
    inputs = tuple(tuple(shape) for shape in told["inputs"])
    outputs = tuple(tuple(shape) for shape in told["outputs"])
    dtypes = told["dtypes"] or told["output_dtypes"]
    sizes = inputs or outputs
    uneven = told["kind"] == "all_gather" and circle.backend == "nccl" and len(set(outputs)) > 1
    return Issue(
        circle.number,
        told["op"],
        sizes if p2p else inputs,
        sizes if p2p else outputs,
        IssueSite(function, file, line) if frames else _NOWHERE,
        dtype=dtypes[0] if dtypes else "",
        peer=ranks[told["peer"]] if p2p and told["peer"] < len(ranks) else -1,
        root=ranks[told["root"]] if told["root"] >= 0 else -1,
        sync=told["sync"],
        reduction=told["reduction"],
        uneven=uneven,
    )
