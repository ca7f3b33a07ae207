"""One model of each rank's life from all sources, and one path for whatever sources there are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unhang.analysis import diagnose
from unhang.analysis.lives.life import lives_of
from unhang.analysis.sources.exits import Manner
from unhang.case import Case
from unhang.model import Frame, LastCall, LogEvent, Note, ProcessSample, ThreadStack
from unhang.testing import FakeJob

S = 10**9
READ = Frame("read", "/home/user/data.py", 31)
STEP = Frame("step", "/home/user/train.py", 88)


def printed(code: str, rank: int, role: str = "cause", **fields: str) -> LogEvent:
    """One recognised message."""
    return LogEvent(code, role, rank, "what it says", f"{rank}.log:7", fields=fields)  # type: ignore[arg-type]  # one of the five words


def seen(rank: int, **more: object) -> ProcessSample:
    """One look from outside."""
    threads = (ThreadStack("MainThread", rank, (STEP,), is_main=True),)
    return ProcessSample(rank, "node01", 100 + rank, threads, **more)  # type: ignore[arg-type]


def heard(rank: int, second: int, *, inside: bool = True) -> LastCall:
    """The last traced call of a rank."""
    open_calls = (READ,) if inside else ()
    return LastCall(rank, 100 + rank, second * S, READ, entered=inside, open_calls=open_calls)


def test_a_life_has_what_each_source_saw() -> None:
    """Stacks, exits, watchdogs and traces of one rank stand together."""
    watchdog = printed("UH702", 1, "observation", seq="5", enqueued="4", desc="tp")
    case = Case(
        world_size=4,
        samples=(seen(0), seen(1, exit_status=139)),
        log_events=(watchdog,),
        last_calls=(heard(1, 3), heard(2, 9)),
    )
    lives = lives_of(case)
    assert list(lives.ranks) == [0, 1, 2, 3]
    assert [life.is_seen for life in lives.ranks.values()] == [True, True, True, False]
    one = lives.ranks[1]
    assert one.look is not None
    assert one.end is not None
    assert one.heard is not None
    assert (one.sampled, one.end.manner, one.end.status) == (True, Manner.KILLED, 139)
    assert one.counters["tp"].enqueued == 4
    assert one.heard.age_s == 6.0
    assert lives.nodes.host_of[1] == "node01"


def test_what_a_dump_says_of_its_own_thread_is_no_look_from_outside() -> None:
    """It tells where a rank stood, and no verdict from stacks alone rests on it."""
    job = FakeJob(2)
    job.call(range(2), site="train.py:30 step")
    case = job.case()
    dumps = tuple(replace(dump, main_stack=(STEP,)) for dump in case.dumps)
    lives = lives_of(replace(case, dumps=dumps))
    assert lives.ranks[0].look is not None
    assert lives.sampled == {}


def test_ranks_that_only_logs_name_are_in_the_table() -> None:
    """Beside stacks, they were not looked at."""
    case = Case(samples=(seen(0), seen(1)), log_events=(printed("UH739", 5, "observation"),))
    table = {row.rank: row.detail for row in diagnose(case).ranks}
    assert (list(table), table[5]) == ([0, 1, 5], "not looked at")


@pytest.mark.parametrize("dumps", [True, False])
def test_every_place_of_a_trace_has_its_stack(*, dumps: bool) -> None:
    """What a site refers to is in the report, with dumps and without."""
    job = FakeJob(2)
    job.call(range(2), site="train.py:30 step")
    case = replace(job.case() if dumps else Case(), last_calls=(heard(1, 3), heard(0, 90)))
    report = diagnose(case)
    named = {site.stack_id for finding in report.findings for site in finding.sites}
    assert named - {""} <= report.stacks.keys()
    assert report.stacks["p101"] == (READ,)


def test_quiet_logs_beside_open_calls_are_no_health() -> None:
    """Traces do not tell whether a call that is open hangs."""
    logs = (printed("UH739", 0, "observation"),)
    open_ = diagnose(Case(log_events=logs, last_calls=(heard(0, 90),)))
    over = (heard(0, 90, inside=False),)
    ended = diagnose(Case(log_events=logs, logs_got_on=True, last_calls=over))
    assert (open_.status, ended.status) == ("insufficient", "healthy")


def test_a_log_that_was_not_read_is_no_health() -> None:
    """Nothing wrong in the others says nothing of it."""
    logs = (printed("UH739", 0, "observation"),)
    lost = Note("error", "1.log", "could not be read: it is no text")
    report = diagnose(Case(log_events=logs, logs_got_on=True, notes=(lost,)))
    whole = diagnose(Case(log_events=logs, logs_got_on=True))
    assert (report.status, whole.status) == ("insufficient", "healthy")
    assert report.summary == "Not enough evidence: 1.log could not be read: it is no text."


def test_consequences_name_the_finding_that_they_follow_from() -> None:
    """After logs, traces and reports have been weighed for it as well."""
    job = FakeJob(4)
    job.call([0, 1, 3], site="train.py:30 step", finished=False)
    case = job.case(log_events=(printed("UH776", 2), printed("UH714", 1, "consequence")))
    report = diagnose(replace(case, last_calls=(heard(2, 3), heard(0, 90))))
    assert report.findings[0].evidence[0].startswith("Trace: rank 2")
    assert {f.caused_by for f in report.findings[1:]} == {("f1",)}
