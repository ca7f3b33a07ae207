"""The rule of ending against a model of time: alarm, work-up, grace, resumption, failure, end."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from test_run_patrol import PAUSES, STUCK, FakeJob

from unhang.run import patrol
from unhang.run.incident.acting import FOLLOWS, Course, IncidentStage
from unhang.run.incident.handling import What
from unhang.run.incident.verdict import Verdict
from unhang.run.watching.watch import ProgressLook, RankProgress

PAGE = Path(__file__).parents[3] / "docs" / "watching.md"
MOVES = Verdict("", "problem", moving=(1,), action="wait")
UNSURE = Verdict("", "problem", reason="unsure")
HEALTHY = Verdict("", "healthy")


@dataclass(frozen=True)
class Happening:
    """Something that happens in a job: rank 0 goes on to its next call, or its call fails."""

    at_s: float
    what: str


class Job(FakeJob):
    """A job to which things happen at given times; each work-up of an alarm takes its own time."""

    def __init__(self, folder: Path, times: tuple[float, float], events: list[Happening]) -> None:
        self.events = _of_one_rank(events)
        super().__init__(folder, *times, 0.0)
        self.acting: list[float] = []
        self.ends: list[float] = []
        self.begun: list[float] = []

    def happened(self, what: str) -> list[float]:
        """When, of what has happened until now."""
        return [100 + e.at_s for e in self.events if e.what == what and 100 + e.at_s <= self.now]

    def look(self) -> ProgressLook:
        """The two ranks as they are now."""
        moves, fails = len(self.happened("moves")), len(self.happened("fails"))
        newest = max((*self.happened("moves"), 0.0)), max((*self.happened("fails"), 0.0))
        waits = not fails or newest[0] > newest[1]
        return ProgressLook(
            self.now,
            (
                RankProgress(0, 50, moves, moves, waiting=waits, busy=False, ended=moves + fails),
                RankProgress(1, 51, 6, 6, waiting=False, busy=False),
            ),
        )

    def _begin(
        self, what: What, attempt: int | None = None, first: object = None
    ) -> SimpleNamespace:
        self.acting_s = self.acting.pop(0) if self.acting else 1.0
        self.begun.append(self.now)
        if not self.verdicts:
            self.verdicts = [STUCK]
        return super()._begin(what, attempt, first)

    def _end(self, over: object) -> None:
        self.ends.append(self.now)
        super()._end(over)

    def tell_of(self) -> str:
        """For an assertion."""
        return f"alarms {self.begun}, ends {self.ends}, stage {self.course.stage}"


def _of_one_rank(events: list[Happening]) -> list[Happening]:
    """In order, one at a time; a call fails once, and none does before the next has begun."""
    kept: list[Happening] = []
    for event in sorted({each.at_s: each for each in events}.values(), key=lambda each: each.at_s):
        if event.what == "moves" or not kept or kept[-1].what == "moves":
            kept.append(event)
    return kept


EVENTS = some.lists(
    some.builds(
        Happening, some.integers(1, 400).map(lambda n: n / 2), some.sampled_from(["moves", "fails"])
    ),
    max_size=6,
)
VERDICTS = some.lists(some.sampled_from([PAUSES, STUCK, MOVES, UNSURE, HEALTHY]), max_size=4)
TIMES = some.tuples(
    some.sampled_from([8.0, 12.0, 30.0, 52.0]), some.sampled_from([13.0, 15.0, 60.0])
)


@settings(
    max_examples=int(os.environ.get("UNHANG_TEST_INTERLEAVINGS", "100")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(TIMES, EVENTS, VERDICTS, some.lists(some.integers(0, 40).map(float), max_size=4))
def test_no_alarm_is_lost_none_acted_on_twice_and_none_after_resumption(
    times: tuple[float, float],
    events: list[Happening],
    verdicts: list[Verdict],
    acting: list[float],
) -> None:
    """Whatever happens while an alarm is worked up, or a grace runs."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(patrol, "say", lambda _: None)
        job = Job(Path(folder), times, events)
        job.verdicts, job.acting = list(verdicts), list(acting)
        job.pass_by(1_000.0)
        told = job.tell_of()
        assert len(job.ends) <= 1, told
        if job.ends:
            since = job.begun[-1]
            assert not [m for m in job.happened("moves") if since < m < job.ends[0]], told
            assert not [f for f in job.happened("fails") if since < f < job.ends[0]], told
            assert job.docket.last is not None
            assert job.docket.last.verdict == STUCK, told
            assert job.course.stage is IncidentStage.ACTING, told
        elif job.course.stage not in (IncidentStage.SPARED, IncidentStage.GRACE):
            raise AssertionError(f"a job that stands still for ever is looked at: {told}")
        spared = job.docket.last is not None and job.docket.last.verdict in (UNSURE, HEALTHY)
        assert job.ends or spared, f"what stands still is ended in the end: {told}"


def test_what_may_not_follow_is_not_entered() -> None:
    """Acting has one way in, and none leads to it from an incident that is over."""

    def before(what: IncidentStage) -> set[IncidentStage]:
        return {stage for stage, after in FOLLOWS.items() if what in after}

    assert before(IncidentStage.ACTING) == {IncidentStage.CONFIRMED}
    assert before(IncidentStage.CONFIRMED) == {IncidentStage.TOLD}
    assert FOLLOWS.keys() == set(IncidentStage)
    course = Course(IncidentStage.RESUMED)
    assert not course.decided("", looks_again=False)
    assert course.stage is IncidentStage.RESUMED


def test_the_stages_stand_on_the_page_word_for_word() -> None:
    """With the stages that may follow each."""
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    told = {name: (says, follows) for name, says, follows in rows}
    for stage in IncidentStage:
        after = ", ".join(s.name.lower() for s in IncidentStage if s in FOLLOWS[stage])
        assert told[stage.name.lower()] == (stage.value, after)
