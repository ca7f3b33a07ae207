"""Who meets whom: calls of ranks that have come, and which of them may end.

A collective meets in its group by its number there; a send meets a receive, on NCCL by order, on
Gloo by tag. It refuses to know who waits: calls that may end are handed on.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from unhang.rehearse.matching.agreement import FROM_ROOT, MemberMeeting, PairChannel, agree
from unhang.rehearse.matching.issue import Issue, IssueSite
from unhang.rehearse.matching.parties import Frames, MadeCall, OneLaunch, RankGroup
from unhang.rehearse.matching.talking import Message

_NOWHERE: Final = IssueSite("", "", 0)


class Encounters:
    """All calls of a rehearsal that wait for their partners.

    Args:
        ended: Called with what may end, as one.

    Attributes:
        met: How many calls had their partners.
        lacking: Ranks that do not run and without which a call cannot end; of a send or receive, by
            the rank that made it, of a root by itself.
    """

    def __init__(self, ended: Callable[[OneLaunch], None]) -> None:
        self.met = 0
        self.lacking: dict[int, int] = {}
        self._ended = ended
        self._channels: dict[tuple[object, ...], PairChannel] = defaultdict(PairChannel)

    def come(self, call: MadeCall) -> None:
        """A rank has made a call."""
        needed = _needed(call.issue)
        if needed >= 0 and needed not in call.circle.running:
            exchange = call.told["peer"] >= 0
            self.lacking.setdefault(needed, call.process.rank if exchange else needed)
        elif call.told["peer"] >= 0:
            self._post(call)
        else:
            self._meet(call)

    def _meet(self, call: MadeCall) -> None:
        circle, rank = call.circle, call.process.rank
        meeting = circle.meetings.setdefault(call.seq, MemberMeeting(circle.running))
        leaving = meeting.arrive(rank, call.issue, 0.0, call)
        if len(meeting.arrived) == len(meeting.members):
            calls: list[MadeCall] = [meeting.arrived[each][2] for each in meeting.members]
            part = len(circle.running) < len(circle.ranks)
            exchange = part and call.told["op"].startswith("all_to_all")
            if not agree([each.issue for each in calls], tolerant=exchange) or unpaired(calls):
                circle.apart = circle.apart or calls
            del circle.meetings[call.seq]
        if circle.apart:
            return  # in its group nothing moves behind a call about which its members disagree
        for other, _ in leaving:
            self._ends(other, _members(circle, meeting))

    def _post(self, call: MadeCall) -> None:
        issue, circle, me = call.issue, call.circle, call.process.rank
        tag = call.told["tag"] if circle.backend == "gloo" else call.in_pair
        if issue.peer < 0:
            first = self._from_any(call, tag)
            if first is None:
                self._channels[circle.number, "any", me, tag].receives.append((issue, call))
                return
            issue = first
        sends = issue.op == "send"
        source, target = (me, issue.peer) if sends else (issue.peer, me)
        channel = self._channels[circle.number, source, target, tag]
        waiting = self._channels[circle.number, "any", target, tag].receives
        if sends and waiting and not channel.receives:
            _, other = waiting.popleft()
            self._passes(call, other)
            return
        for other in channel.post(issue, call):
            self._passes(*((call, other) if sends else (other, call)))

    def _from_any(self, call: MadeCall, tag: int) -> Issue | None:
        """A receive from any rank, as one from the first that sends already."""
        for source in call.circle.ranks:
            channel = self._channels[call.circle.number, source, call.process.rank, tag]
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
        self.end_if_met(call.launch)

    def end_if_met(self, launch: OneLaunch) -> None:
        """End calls whose launch is closed and whose partners are all there."""
        if not launch.has_met():
            return
        for call in launch.calls:
            call.ended_ns = time.time_ns()
        self._ended(launch)


def _needed(issue: Issue) -> int:
    """The one rank without which a call cannot end; -1 for none."""
    if issue.op in FROM_ROOT:
        return issue.root
    return issue.peer


def _members(circle: RankGroup, meeting: MemberMeeting) -> list[MadeCall | None]:
    """The calls of a group's members; for one that does not run, that of another."""
    there = [
        meeting.arrived[rank][2] if rank in meeting.arrived else None for rank in circle.running
    ]
    calls = dict(zip(circle.running, there, strict=True))
    return [
        calls[rank] if rank in calls else there[n % len(there)]
        for n, rank in enumerate(circle.ranks)
    ]


def unpaired(calls: Sequence[MadeCall]) -> list[tuple[int, int]]:
    """Giver and taker, by places in the group, that disagree about how much passes between them."""
    gives, takes = ([call.told[side] for call in calls] for side in ("gives", "takes"))
    places = range(len(calls))
    if any(len(each) != len(calls) for each in (*gives, *takes)):
        return []
    return [(i, j) for i in places for j in places if gives[i][j] != takes[j][i]]


def issue_of(circle: RankGroup, told: Message, frames: Frames) -> Issue:
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
