"""What the patrol does about alarms, under a clock of our own and without processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unhang.collect.processes import Process, ProcessTable
from unhang.run import docket, patrol, starters
from unhang.run.guard import Guard
from unhang.run.incident.handling import What
from unhang.run.incident.verdict import Verdict
from unhang.run.patrol import Patrol
from unhang.run.watching.watch import ProgressLook, RankProgress

PAUSES = Verdict("", "problem", pausing=(1,), action="")
STUCK = Verdict("", "problem", action="look-first")
GUESS = Verdict("", "problem", reason="away", confidence="low", guessed=True)


class FakeJob(Patrol):
    """A job of which rank 0 waits in a call and rank 1 stands elsewhere; verdicts are given.

    Attributes:
        now: The clock, which alarms and looks move.
        leaves_at: When rank 0 leaves its call by an error.
    """

    def __init__(self, folder: Path, hang_after_s: float, grace_s: float, acting_s: float) -> None:
        orders = SimpleNamespace(
            job="job", run="run", hang_after_s=hang_after_s, auto=False, grace_s=grace_s, notify=(),
            on_hang="kill", quiet=True, command=(), streams=(), folder=str(folder), named="",
            plan=SimpleNamespace(apply=dict, torch=""), meet=None,
        )  # fmt: skip
        self.now, self.acting_s, self.leaves_at = 100.0, acting_s, float("inf")
        self.verdicts: list[Verdict] = []
        self.alarms: list[float] = []
        self.ended_at = 0.0
        super().__init__(Guard(lambda _, __: None), orders, 0)  # type: ignore[arg-type]
        members = [SimpleNamespace(rank=rank, pid=50 + rank) for rank in (0, 1)]
        self.roster = SimpleNamespace(  # type: ignore[assignment]
            members=members, attempt=0, look=self.look, weigh=False, gone=[], descriptors={}
        )
        self.tree = SimpleNamespace(end=self._end)  # type: ignore[assignment]

    def look(self) -> ProgressLook:
        """The two ranks as they are now."""
        left = self.now >= self.leaves_at
        return ProgressLook(
            self.now,
            (
                RankProgress(0, 50, 7, 7, waiting=not left, busy=False, ended=int(left)),
                RankProgress(1, 51, 6, 6, waiting=False, busy=False),
            ),
        )

    def pass_by(self, seconds: float) -> None:
        """Let time pass, with a look each interval, as `walk` does."""
        until = self.now + seconds
        while self.now < until and not self.ended_at:
            self.now += self.interval_s
            self._look_at_progress()

    def _begin(self, what: What, attempt: int | None = None, first: Any = None) -> Any:  # noqa: ANN401, ARG002 - as its base
        self.alarms.append(self.now)
        self.now += self.acting_s
        self._seen_then = self.watch.seen
        self.docket.current = self.docket.last = SimpleNamespace(  # type: ignore[assignment]
            what=what, verdict=self.verdicts.pop(0), case=None, being_ended=False, follows=None,
            close=lambda _: None, tell_of_end=lambda _: None, amend=lambda **_: False,
        )  # fmt: skip
        return self.docket.current

    def _conclude(self, incident: object, *, tell: bool = True) -> None:
        pass

    def _look_at_pace(self) -> None:
        pass

    def _end(self, _: object) -> None:
        self.ended_at = self.now


@pytest.mark.parametrize(
    ("hang_after_s", "grace_s", "acting_s"),
    [(12, 15, 3), (52, 60, 9), (55, 60, 6), (12, 60, 4), (12, 15, 0), (20, 15, 3), (12, 13, 30)],
)
def test_what_only_paused_at_first_is_looked_at_again_and_ended(
    tmp_path: Path, hang_after_s: float, grace_s: float, acting_s: float
) -> None:
    """Whatever falls due while the first verdict is worked up."""
    job = FakeJob(tmp_path, hang_after_s, grace_s, acting_s)
    job.verdicts = [PAUSES, STUCK]
    job.pass_by(hang_after_s + grace_s + 2 * acting_s + 4 * job.interval_s)
    assert len(job.alarms) == 2
    assert job.ended_at


@pytest.mark.parametrize("leads", [False, True])
def test_a_hang_after_one_that_another_node_saw_is_one_of_its_own(
    tmp_path: Path, *, leads: bool
) -> None:
    """What was heard of is over once a call has finished; one that leads sees for itself."""
    job = FakeJob(tmp_path, 10.0, 0.0, 0.1)
    job.verdicts = [Verdict("", "healthy", action=""), STUCK]
    job.others.company.leads = leads
    if leads:  # the last call had finished when it heard of it
        job.pass_by(job.interval_s)
    job._begin(What("hang", "no rank has started for 60 s (seen by n2)", 60.0, 60.0))
    job._heard = True
    job.pass_by(60.0)
    assert (len(job.alarms), bool(job.ended_at)) == (2, True)


def test_a_call_that_fails_while_the_verdict_is_made_is_nothing_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time-out is handled in the middle of it; then that rank's own code may pause."""
    said: list[str] = []
    monkeypatch.setattr(patrol, "say", said.append)
    job = FakeJob(tmp_path, 12.0, 60.0, 3.0)
    job.leaves_at = 115.0
    job.verdicts = [STUCK, STUCK]
    job.pass_by(50.0)
    assert not job.ended_at
    assert "rank 0 has left the call" in said[-1]
    job.pass_by(60.0)
    assert len(job.alarms) == 2
    assert job.ended_at, "it has stood still ever since"


def test_a_verdict_that_is_not_enough_to_act_on_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That sentence and the end of the job never stand under each other."""
    said: list[str] = []
    monkeypatch.setattr(patrol, "say", said.append)
    job = FakeJob(tmp_path, 12.0, 15.0, 3.0)
    job.verdicts = [Verdict("", "problem", reason="unsure")]
    job.pass_by(100.0)
    assert not job.ended_at
    assert "the evidence is not enough to act on" in said[-1]


@pytest.mark.parametrize(("second", "ends"), [(STUCK, True), (GUESS, False)])
def test_a_verdict_of_low_confidence_is_looked_at_once_more(
    tmp_path: Path, second: Verdict, *, ends: bool
) -> None:
    """One look may have met a busy machine; a third tells no more than the second."""
    job = FakeJob(tmp_path, 12.0, 15.0, 3.0)
    job.verdicts = [GUESS, second]
    job.pass_by(300.0)
    assert (len(job.alarms), bool(job.ended_at)) == (2, ends)


@pytest.mark.parametrize(
    ("newest", "decision", "shown"),
    [(True, "Look first.", False), (True, "Fix the code.", True), (False, "Fix the code.", False)],
)
def test_a_verdict_with_stacks_is_shown_where_it_says_something_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    newest: bool,  # noqa: FBT001 - a case of the table
    decision: str,
    shown: bool,  # noqa: FBT001 - the same
) -> None:
    """What is decided counts like what is found; an incident that is over takes no place."""
    job = FakeJob(tmp_path, 12.0, 15.0, 3.0)
    told: list[Verdict] = []
    monkeypatch.setattr(job.docket, "_show", lambda _, verdict: told.append(verdict))
    monkeypatch.setattr(docket, "say", lambda _: None)
    first = Verdict("", "problem", "Rank 1 never called.", decision="Look first.")
    job.guard.verdict = first
    job.verdicts = [first, first]
    incident = job._begin(What("hang", ""))
    if not newest:
        job._begin(What("hang", ""))
    refined = Verdict("", "problem", "Rank 1 never called.", decision=decision)
    job.docket._refined(incident, refined)
    assert bool(told) == shown
    assert (job.guard.verdict is refined) == newest


def test_the_leader_hears_of_ranks_while_their_stacks_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it takes their node for one that does not answer, and ends nothing."""
    job, looks = FakeJob(tmp_path, 12.0, 15.0, 3.0), 0

    def look() -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr(job.others, "must_hear", lambda: True)
    monkeypatch.setattr(job, "_look", look)
    lives = iter((True, True, False))
    thread: Any = SimpleNamespace(is_alive=lambda: next(lives), join=lambda _: None)
    job.docket._refining = thread
    job.docket.wait_for_stacks()
    assert looks == 2


@pytest.mark.parametrize(
    ("command", "python", "told"),
    [
        ("/usr/bin/srun -N 2 torchrun --nnodes 2 train.py", False, ["srun"]),
        ("bash prepare.sh", False, []),
        ("/venv/bin/python train.py", True, []),
    ],
)
def test_a_command_whose_ranks_are_on_other_nodes_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    python: bool,  # noqa: FBT001 - a table of expectations
    told: list[str],
) -> None:
    """`unhang run -- srun …` watched nothing, and said nothing. It is said once."""
    said: list[str] = []
    process = Process(7, 1, python=python, command=command)
    job = FakeJob(tmp_path, 12, 15, 0)
    job.roster = SimpleNamespace(members=[], gone=[], launchers=lambda _: [])  # type: ignore[assignment]
    job.tree = SimpleNamespace(child=7)  # type: ignore[assignment]
    job.rankless._began_s = 0.0
    monkeypatch.setattr(starters, "say", said.append)
    monkeypatch.setattr(starters, "read_processes", lambda: ProcessTable.of([process]))
    job._look_at_progress()
    job._look_at_progress()
    assert [text.partition("put it behind: ")[2].split()[0] for text in said] == told


@pytest.mark.parametrize(
    ("statuses", "beside", "told"),
    [
        ({50: 143, 51: 143}, {50: [51], 51: [50]}, 0),  # torchrun's, as another agent joins
        ({50: 143}, {50: []}, 0),
        ({50: 143, 51: 1}, {50: [51], 51: [50]}, 1),  # one that failed, and then its peer
        ({50: 143}, {50: [51]}, 1),  # one alone: its peer lives on
        ({50: 1, 51: 143}, {50: [51], 51: [50]}, 1),
        ({50: 143, 51: 143}, {}, 1),  # no launcher has started it, or that is gone too
    ],
)
def test_ranks_that_their_launcher_ends_to_start_others_are_no_incident(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    statuses: dict[int, int],
    beside: dict[int, list[int]],
    told: int,
) -> None:
    """It ends all that it has at once, by SIGTERM, and lives on; one that failed was first."""
    monkeypatch.setattr(patrol, "say", lambda _: None)
    monkeypatch.setattr(starters, "APART_S", 0.0)
    job = FakeJob(tmp_path, 12, 15, 0)
    job.verdicts = [STUCK]
    first = next(iter(statuses))
    job.roster.note_end = statuses.get
    job.tree = SimpleNamespace(beside=lambda pid, _: beside.get(pid), let_go=lambda: None)  # type: ignore[assignment]
    member = SimpleNamespace(rank=0, pid=first, mark=SimpleNamespace(attempt=0))
    end = SimpleNamespace(member=member, status=statuses[first], clean=False, memory_kill=None)
    job._ranks_ended([end])  # type: ignore[list-item]
    assert len(job.alarms) == told


def test_a_line_that_something_stands_is_looked_into_and_ends_nothing(tmp_path: Path) -> None:
    """Long before an alarm, and once; what it stands for is for an alarm to decide."""
    job = FakeJob(tmp_path, 300.0, 60.0, 1.0)
    job.hearing = SimpleNamespace(news=iter(["No available block", ""]).__next__)  # type: ignore[assignment]
    job.verdicts = [STUCK]
    job.pass_by(2 * job.interval_s)
    job._listen_to_log()
    job._listen_to_log()
    assert len(job.alarms) == 1
    assert job.docket.last is not None
    assert (job.docket.last.what.kind, job.docket.current, job.ended_at) == ("line", None, 0.0)
