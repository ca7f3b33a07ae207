"""Supervisors that meet over the loopback: real sockets, with looks at ranks that are none."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import wait_for
from ports import free_port

from unhang.casedir.manifest import NodePart, RankPart, create_case, write_part
from unhang.casedir.sharing import Announcement
from unhang.run.incident.verdict import Verdict, heard, sent
from unhang.run.meeting import assembly, joining
from unhang.run.meeting.beats import NodeBeat
from unhang.run.meeting.company import ToldVerdict
from unhang.run.meeting.invitation import Invitation
from unhang.run.meeting.joining import Joining
from unhang.run.watching.watch import ProgressLook, RankProgress

TOKEN = b"0123456789abcdef"


class Node:
    """A supervisor without a job: what it sees is given."""

    def __init__(self, port: int, name: str, ranks: Sequence[int], token: bytes = TOKEN) -> None:
        self.said: list[str] = []
        self.name, self.ranks, self.finished = name, ranks, 7
        self.run = f"{name}-1-1"
        invitation = Invitation("127.0.0.1", port, token, "job")
        self.meeting = Joining(invitation, self.run, lambda: None, self.said.append)
        self.meeting.start()

    def look(self) -> ProgressLook:
        """What it sees of all ranks, once the others have been told of its own."""
        rows = [
            RankProgress(rank, 9, self.finished, self.finished, waiting=True, busy=False)
            for rank in self.ranks
        ]
        mine = ProgressLook(time.monotonic(), rows, elsewhere=True)
        beat = NodeBeat.of(mine, 0, 4, 1.0, self.ranks)
        return self.meeting.now().look(mine, lambda: beat)

    def case_in(self, folder: Path) -> Path:
        """A case with this node's part in it."""
        case = create_case(folder / self.name, "job", 1e9, run=self.run)
        for rank in self.ranks:
            (case / "dumps" / "gloo").mkdir(exist_ok=True)
            (case / "dumps" / "gloo" / f"rank_{rank}").write_bytes(self.name.encode() * 100_000)
        (case / "stacks" / f"{self.run}.json").write_text("[]")
        parts = [RankPart(rank, self.name) for rank in self.ranks]
        write_part(case, NodePart(self.run, self.name, "job", 0, 4, ranks=parts))
        return case


@contextmanager
def met(*names: str, token: bytes = TOKEN) -> Iterator[list[Node]]:
    """Nodes of two ranks each; the first leads, and the others have joined it in order."""
    port, nodes = free_port(), []
    try:
        for number, name in enumerate(names):
            node = Node(port, name, range(2 * number, 2 * number + 2), token)
            nodes.append(node)
            wait_for(lambda: nodes[-1].meeting.now().is_shared, "that it leads or follows")
        yield nodes
    finally:
        for node in nodes:
            node.meeting.close()


def seen(node: Node, others: Sequence[Node]) -> list[int]:
    """Ranks that a leader sees, as the others look too."""
    for other in others:
        other.look()
    return sorted(rank.rank for rank in node.look().ranks)


def run_beside(work: Callable[[], object]) -> threading.Thread:
    """What waits for another node, in a thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def in_time() -> bool:
    """No user is impatient."""
    return True


def test_the_first_at_the_host_leads_and_sees_what_all_see() -> None:
    """As one: nothing is elsewhere."""
    with met("a", "b") as (a, b):
        assert (a.meeting.now().leads, b.meeting.now().follows) == (True, True)
        wait_for(lambda: seen(a, [b]) == [0, 1, 2, 3], "that all are seen")
        assert not a.look().elsewhere
        assert [rank.rank for rank in b.look().ranks] == [2, 3], "only one sees all"
        assert a.meeting.now().host_of(3) != ""


def test_evidence_of_all_becomes_one_case_with_one_verdict(tmp_path: Path) -> None:
    """The one that leads announces it, waits for the others, and tells what it has found."""
    with met("a", "b") as (a, b):
        wait_for(lambda: seen(a, [b]) == [0, 1, 2, 3], "that all are seen")
        case = a.case_in(tmp_path)
        a.meeting.now().announce(case, Announcement(a.run, "hang", "it stands", 0.0))
        assert a.meeting.now().news() is None
        wait_for(lambda: b.meeting.now().news() is not None, "that the other hears of it")
        assert b.meeting.now().news() is None, "once"
        assert [each.run for each in a.meeting.now().without_part(case)] == [b.run]
        assert a.meeting.now().why_not_all() != ""
        told: list[ToldVerdict | None] = []
        theirs = b.case_in(tmp_path)
        giving = run_beside(lambda: told.append(b.meeting.now().hand_over(theirs, in_time)))
        wait_for(lambda: not a.meeting.now().without_part(case), "its part")
        seen(a, [b])
        wait_for(lambda: a.meeting.now().why_not_all() == "", "that all have answered")
        for rank in (2, 3):
            assert (case / "dumps" / "gloo" / f"rank_{rank}").read_bytes() == b"b" * 100_000
        assert json.loads((case / "parts" / f"{b.run}.json").read_text())["host"] == "b"
        a.meeting.now().tell(sent(Verdict("\x1b[1mall\x1b[0m of it", "problem", "Rank 3 stands.")))
        giving.join(30)
        assert told[0] is not None
        verdict = heard(told[0], theirs)
        assert verdict is not None
        assert (verdict.status, verdict.summary) == ("problem", "Rank 3 stands.")
        assert verdict.text.startswith("all of it\n")
        assert verdict.case == theirs
        a.meeting.now().tell_of_end(case, "kill")
        wait_for(lambda: b.meeting.now().is_being_ended(theirs), "the order")
        assert (b.meeting.now().order(), b.meeting.now().order()) == ("kill", "")


def test_what_one_of_them_sees_is_raised_to_the_one_that_leads(tmp_path: Path) -> None:
    """A rank of it has ended; all take part."""
    with met("a", "b", "c") as (a, b, c):
        b.meeting.now().announce(tmp_path, Announcement(b.run, "rank-ended", "rank 2 ended", 0.0))
        found: list[Announcement | None] = []
        for node in (a, c):
            wait_for(lambda: found.append(node.meeting.now().news()) or found[-1], "the news")  # noqa: B023 - within the turn
        assert [(each.run, each.kind) for each in found if each] == [(b.run, "rank-ended")] * 2
        assert b.meeting.now().news() is None


def test_another_is_elected_where_the_one_that_leads_is_lost() -> None:
    """Incidents go on being numbered, and none is heard of twice."""
    with met("a", "b", "c") as (a, *others):
        wait_for(lambda: seen(a, others) == [*range(6)], "that all are seen")
        a.meeting.now().announce(Path(), Announcement(a.run, "hang", "it stands", 0.0))
        for node in others:
            wait_for(lambda: node.meeting.now().news() is not None, "the news")  # noqa: B023 - within the turn
        lose(a)
        b, c = elected(others)
        wait_for(lambda: seen(b, [c]) == [2, 3, 4, 5], "that all that are left are seen")
        assert b.look().elsewhere, "ranks 0-1 are of a node that is lost"
        assert b.meeting.now().why_not_all() != ""
        assert c.meeting.now().news() is None
        b.meeting.now().announce(Path(), Announcement(b.run, "hang", "it stands", 0.0))
        wait_for(lambda: c.meeting.now().news() is not None, "the next incident")


def elected(nodes: Sequence[Node]) -> list[Node]:
    """The one that leads after an election, and the others, which follow it."""

    def sorted_out() -> list[Node]:
        return sorted(nodes, key=lambda node: not node.meeting.now().leads)

    wait_for(lambda: [n.meeting.now().leads for n in sorted_out()] == [True, False], "who leads")
    wait_for(lambda: sorted_out()[1].meeting.now().follows, "who follows")
    return sorted_out()


def test_another_leads_where_it_is_when_its_turn_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of other nodes none has the host's address; and that one is followed once it is back."""
    monkeypatch.setattr(assembly, "TURN_S", 0.1)
    monkeypatch.setattr(joining, "RETRY_S", 0.05)
    monkeypatch.setattr(joining, "EARLIER_S", 0.5)
    with met("a", "b", "c") as (a, b, c):
        for node in (b, c):
            monkeypatch.setattr(node.meeting, "_listening", lambda *_: None)
        lose(a)
        wait_for(lambda: b.meeting.now().leads and c.meeting.now().follows, "an election")
        wait_for(lambda: seen(b, [c]) == [2, 3, 4, 5], "that all that are left are seen")
        again = Node(a.meeting._standing.invitation.port, "a", (0, 1))
        try:
            wait_for(lambda: seen(again, [b, c]) == [*range(6)], "that all follow it again")
        finally:
            again.meeting.close()


def test_a_node_that_is_lost_is_named_with_its_ranks() -> None:
    """The judge says what was not looked at, and where."""
    with met("a", "b") as (a, b):
        wait_for(lambda: seen(a, [b]) == [0, 1, 2, 3], "that all are seen")
        lose(b)
        a.meeting.now().announce(Path(), Announcement(a.run, "hang", "it stands", 0.0))
        wait_for(lambda: a.meeting.now().without_part(Path())[0].why, "that it is lost")
        (absent,) = a.meeting.now().without_part(Path())
        assert absent.ranks == (2, 3)


@pytest.mark.parametrize("job", ["job", "another"])
def test_who_has_another_token_or_is_of_another_job_stays_alone(job: str) -> None:
    """It says why, and the others do not notice."""
    with met("a", "b") as (a, b):
        port = a.meeting._standing.invitation.port
        said: list[str] = []
        token = b"another token 16" if job == "job" else TOKEN
        stranger = Joining(
            Invitation("127.0.0.1", port, token, job), "z-1-1", lambda: None, said.append
        )
        stranger.start()
        try:
            wait_for(lambda: said, "why it is alone")
            assert not stranger.now().is_shared
            assert "no other supervisor" in stranger.now().why_not_all()
            wait_for(lambda: seen(a, [b]) == [0, 1, 2, 3], "that the others are as they were")
        finally:
            stranger.close()


def test_hostile_connections_hold_nothing_up() -> None:
    """Silence, noise, and a number of them."""
    with met("a", "b") as (a, b):
        port = a.meeting._standing.invitation.port
        links = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        for number, link in enumerate(links):
            link.sendall(
                (b"GET / HTTP/1.1\r\n\r\n", b"", b"unhang-meet/1\n" + bytes(64))[number % 3]
            )
        wait_for(lambda: seen(a, [b]) == [0, 1, 2, 3], "that all are seen")
        for link in links:
            link.close()


def test_nothing_listens_before_it_leads() -> None:
    """Who follows has a port, at which no connection is taken."""
    with met("a", "b") as (_, b):
        kept = b.meeting._kept
        assert kept is not None
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(kept.getsockname(), 5)


def lose(node: Node) -> None:
    """Its connections end without a word, as on a node that dies."""
    role = node.meeting.now()
    node.meeting._closed.set()
    role._closed = True  # type: ignore[attr-defined]  # of both kinds of roles
    role._bell.ring()  # type: ignore[attr-defined]  # the same
