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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from unhang.rehearse.matching.agreement import FROM_ROOT
from unhang.rehearse.matching.encounters import Encounters, issue_of
from unhang.rehearse.matching.keys import SharedKeys
from unhang.rehearse.matching.parties import (
    Frames,
    LivingRank,
    MadeCall,
    OneLaunch,
    RankGroup,
    Waiter,
)
from unhang.rehearse.matching.talking import Message

_POLL_S: Final = 1.0
"""A rank that polls asks again within so long: it sleeps no longer than 0.05 s in a rehearsal."""


class Referee:
    """State of one rehearsal. `hear` takes a message; `answers` are what is to be sent."""

    def __init__(self, ranks: int, running: Sequence[int] = ()) -> None:
        self.world, self.running = ranks, frozenset(running)
        self.started = ranks
        self.processes: dict[int, LivingRank] = {}
        self.circles: dict[str, RankGroup] = {}
        self.keys = SharedKeys()
        self.answers: list[tuple[Waiter, Message]] = []
        self.unreal: list[MadeCall] = []
        self.reads: dict[tuple[str, int], str] = {}
        self.spent: list[tuple[int, int, int]] = []
        self.encounters = Encounters(self._launch_ended)
        self._threads: dict[Waiter, LivingRank] = {}
        self._said: dict[Waiter, Message] = {}
        self._polled_s: dict[Waiter, float] = {}
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
        polls = _is_poll(message, self._said.get(waiter, {}))
        self._polled_s[waiter] = time.monotonic() if polls else 0.0
        self._said[waiter] = message
        if waiter == process.main:
            process.place = ()
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
        self.started = self.world

    def _on_init(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        if "stack" in message:
            process.begun = self._stack(waiter, process, message)
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
                tuple(r for r in message["ranks"] if not self.running or r in self.running),
                bool(message.get("pairs_apart")),
            )  # fmt: skip
        process.groups.append(self.circles[key])

    def _on_asked(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        place = self._stack(waiter, process, message)
        process.asked.append((tuple(message["ranks"]), place))

    def _on_step(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        del waiter, message
        process.steps.append(len(process.calls))

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
        issue = issue_of(circle, message, frames)
        seq, p2p_seq, op_id = counter
        launch = OneLaunch(closed=True)
        if message["batch"] >= 0:
            launch = process.batches.setdefault(message["batch"], OneLaunch())
        call = MadeCall(
            process, circle, message, frames, issue, seq, p2p_seq, op_id, time.time_ns(), launch
        )
        launch.calls.append(call)
        process.calls[call.number] = call
        self.encounters.come(call)

    def _on_closed(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        del waiter
        launch = process.batches.pop(message["batch"])
        launch.closed = True
        self.encounters.end_if_met(launch)

    def _stack(self, waiter: Waiter, process: LivingRank, message: Message) -> Frames:
        key = (waiter, int(message["stack"]))
        if "frames" in message:
            process.stacks[key] = _frames(message["frames"])
        return process.stacks[key]

    def _launch_ended(self, launch: OneLaunch) -> None:
        """Let the threads that wait for its calls hear of it."""
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
            if waiter == process.main:
                process.place = self._stack(waiter, process, message)
            self.answers.append((waiter, {"done": False}))

    def _answer_wait(self, waiter: Waiter, call: MadeCall) -> None:
        self._waiting.pop(waiter, None)
        if waiter == call.process.main:
            call.process.waits = ""
        met = [
            s and [s.process.rank, s.number, s.told["gives"], s.told["carried"]]
            for s in call.senders
        ]
        answer = {"done": True, "met": met, "source": call.source, "stands_in": _stands_in(call)}
        self.answers.append((waiter, answer))

    def _on_took(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        """A rank has read what its call received: what all have read is spent."""
        del waiter
        for sender in {id(s): s for s in process.calls[message["number"]].senders if s}.values():
            sender.takers += 1
            if sender.takers == (1 if sender.told["peer"] >= 0 else len(sender.circle.running)):
                self.spent.append((sender.process.rank, sender.number, sender.told["kept"]))

    # -- the store ---------------------------------------------------------------------------------

    def _on_store(self, waiter: Waiter, process: LivingRank, message: Message) -> None:
        place = self._stack(waiter, process, message) if "stack" in message else ()
        value = self.keys.ask(waiter, message)
        if waiter == process.main and self.asks_again(waiter):
            process.place = place
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
    def size(self) -> int:
        """How many ranks run."""
        return len(self.running) or self.world

    @property
    def coming(self) -> int:
        """How many processes there can be: a script may ask for more ranks than were started."""
        return min(self.size, self.started) if self.started > 1 else self.size

    @property
    def is_over(self) -> bool:
        """Whether every rank has ended."""
        ranks = self.ranks
        return len(ranks) >= self.coming and all(p.code is not None for p in ranks.values())

    @property
    def is_stuck(self) -> bool:
        """Whether ranks wait, and no other rank is left that could help them."""
        ranks = self.ranks.values()
        return len(ranks) >= self.coming and all(
            p.waits or self._polls(p) or p.code is not None for p in ranks
        )

    def _polls(self, process: LivingRank) -> bool:
        """Whether its main thread asked again and again, and just did."""
        return time.monotonic() - self._polled_s.get(process.main, 0.0) < _POLL_S

    def asks_again(self, waiter: Waiter) -> bool:
        """Whether the last message of a connection was only a poll."""
        return self._polled_s.get(waiter, 0.0) > 0

    @property
    def needs_quiet(self) -> bool:
        """Whether being stuck is sure only after a while: other threads, or ranks that poll."""
        mains = {p.main for p in self.processes.values()}
        threads = [w for w in self._threads if w not in mains and w not in self._waiting]
        return bool(threads) or any(map(self._polls, self.ranks.values()))

    @property
    def met(self) -> int:
        """How many calls had their partners."""
        return self.encounters.met

    def calls(self) -> int:
        """How many calls were made."""
        return sum(len(p.calls) for p in self.processes.values())


@dataclass(slots=True)
class RehearsalEnd:
    """What became of a rehearsal.

    Attributes:
        referee: Every call, and who waits for what.
        end: "over" where every rank ended, "stuck" where none can move, "late" at the time limit.
        torch: The version that ran.
        seconds: How long it took.
    """

    referee: Referee
    end: str
    torch: str = ""
    seconds: float = 0.0


def _is_poll(message: Message, before: Message) -> bool:
    """Whether a rank only asks how things stand; a key that is read may be one step of many."""
    if message["t"] == "test" or message.get("do") in ("check", "count"):
        return True
    same = ("do", "name", "key", "amount")
    if message["t"] != "store" or any(message.get(k) != before.get(k) for k in same):
        return False
    return message["do"] == "get" or not message.get("amount", 1)


def _stands_in(call: MadeCall) -> bool:
    """Whether values that it takes are another's than of the member whose they would be."""
    part = len(call.circle.running) < len(call.circle.ranks)
    return part and call.told["peer"] < 0 and call.issue.op not in FROM_ROOT


def _frames(rows: list[Any]) -> Frames:
    return tuple((str(name), str(file), int(line)) for name, file, line in rows)
