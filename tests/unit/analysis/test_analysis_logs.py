"""Logs beside dumps: the reason of an absence, agreement, disagreement, and whose line it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.logs.rules import RULES
from unhang.model import Fact, LogEvent, ProcessSample
from unhang.report import Report
from unhang.testing import FakeJob

SITE = "train.py:30 step"
FILE = {"file": "/home/user/job/train.py", "line": "88", "function": "save"}


def event(code: str, rank: int, text: str = "", role: str = "cause", **fields: str) -> LogEvent:
    """One recognised message."""
    text = text or "OSError: [Errno 28] No space left on device"
    return LogEvent(
        code=code,
        role=role,  # type: ignore[arg-type]  # one of the five words
        rank=rank,
        text=text,
        source=f"rank_{rank}.log:7",
        fields=fields,
    )


def waited_for(culprit: int = 2, *, missing: bool = False) -> FakeJob:
    """Four ranks, one of which never calls the fifth all_reduce."""
    job = FakeJob(4)
    for _ in range(4):
        job.call(range(4), site=SITE)
    job.call([r for r in range(4) if r != culprit], site=SITE, finished=False)
    if missing:
        job.missing = {culprit}
    return job


def timed_out(rank: int, seq: int, enqueued: int = -1, group: str = "default_pg") -> LogEvent:
    """A watchdog's counters of one rank."""
    told = enqueued if enqueued >= 0 else seq
    fields = {"seq": str(seq), "enqueued": str(told), "completed": str(seq - 1), "desc": group}
    return event("UH702", rank, "failure detected by watchdog", "observation", **fields)


def judged(job: FakeJob, *events: LogEvent) -> Report:
    """The verdict over a job and log events."""
    return diagnose(job.case(log_events=events))


def test_a_later_line_of_the_same_rank_is_no_rival() -> None:
    """Without stamps, two failures in one log have an order; those of two ranks have none."""
    first = event("UH751", 2, "RuntimeError: DataLoader worker (pid 7) is killed by signal: 9")
    later = event("UH751", 2, "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly")
    found = judged(waited_for(), first, later).causes[0]
    assert (found.code, found.culprits, found.confidence) == ("UH751", (2,), "high")
    other = replace(later, rank=1, source=first.source)
    assert judged(waited_for(), first, other).causes[0].confidence == "low"


def models(*params: int) -> list[LogEvent]:
    """What DDP raises in each rank: its own number of parameters, and that of one that differs."""
    told = []
    for rank, own in enumerate(params):
        other = next(at for at, number in enumerate(params) if number != own)
        text = f"Rank {rank} has {own} params, while rank {other} has {params[other]} params."
        fields = {"rank": str(rank), "had": str(own)}
        fields |= {"other": str(other), "other_had": str(params[other])}
        told.append(replace(event("UH7069", rank, text, **FILE), fields={**FILE, **fields}))
    return told


def test_ranks_that_all_report_a_difference_tell_whose_it_is() -> None:
    """Most have one number of parameters; of two ranks, or of ranks of a smaller group, none."""
    found = judged(FakeJob(3), *models(4, 6, 4)).causes[0]
    assert (found.code, found.culprits, found.confidence) == ("UH7069", (1,), "high")
    assert (found.sites[0].role, found.sites[0].line) == ("culprit", 88)
    assert any("rank 1: 6" in sentence for sentence in found.evidence)
    assert judged(FakeJob(2), *models(4, 6)).causes[0].culprits == ()
    assert judged(FakeJob(4), *models(4, 6, 4, 6)).causes[0].culprits == ()
    of_group = [replace(each, rank=each.rank + 4) for each in models(4, 6, 4)]
    assert judged(FakeJob(8), *of_group).causes[0].culprits == ()


def test_a_full_disk_is_why_it_never_joined() -> None:
    """The log's failure is the cause, with the call of the dumps; the absence its consequence."""
    report = judged(waited_for(), event("UH776", 2, **FILE))
    first, absence = report.findings[:2]
    assert (first.code, first.role, first.confidence) == ("UH776", "cause", "high")
    assert (first.culprits, first.victims, first.seq) == ((2,), (0, 1, 3), 5)
    assert (first.sites[0].file, first.sites[0].line) == ("/home/user/job/train.py", 88)
    assert "No space left" in report.summary
    assert "wait in all_reduce #5" in report.summary
    assert (absence.code, absence.role, absence.caused_by) == ("UH101", "consequence", (first.id,))
    assert report.ranks[2].status == "culprit"


def test_a_log_explains_a_rank_without_a_dump() -> None:
    """A rank that left no dump is suspected; with its log's failure it is known."""
    alone = judged(waited_for(missing=True)).findings[0]
    both = judged(waited_for(missing=True), event("UH753", 2, "Out of memory: Killed process"))
    assert (alone.code, alone.confidence) == ("UH103", "medium")
    assert (both.findings[0].code, both.findings[0].confidence) == ("UH753", "high")
    assert both.culprits == (2,)


def test_a_failure_of_no_known_rank_outranks_silence() -> None:
    """A killed process whose rank no line tells is taken for the one that left no dump."""
    killed = event("UH753", -1, "Out of memory: Killed process 4711 (python3)")
    first, silence = judged(waited_for(missing=True), killed).findings[:2]
    assert (first.code, first.culprits, first.confidence) == ("UH753", (2,), "medium")
    assert (silence.code, silence.role, silence.caused_by) == ("UH103", "consequence", (first.id,))


def test_a_failure_that_blames_nobody_is_not_given_to_the_silent() -> None:
    """Two sizes that differ are not the silent rank's doing: both are told."""
    differ = event("UH762", -1, "Message truncated : received 1024 bytes instead of 256")
    report = judged(waited_for(missing=True), differ)
    assert (report.findings[0].code, report.findings[0].culprits) == ("UH103", (2,))
    assert "UH762" in {finding.code for finding in report.findings}


def test_a_failure_of_no_known_rank_blames_nobody_who_is_seen() -> None:
    """Where every rank left a dump, a line of nobody stays beside the verdict."""
    killed = event("UH753", -1, "Out of memory: Killed process 4711 (python3)")
    assert judged(waited_for(), killed).findings[0].code == "UH101"


def test_a_failure_of_somebody_who_waits_is_not_the_cause() -> None:
    """Dumps and logs name different ranks: the dumps keep their verdict, less sure of it."""
    job = waited_for()
    alone = judged(job).findings[0]
    report = judged(job, event("UH776", 0))
    first = report.findings[0]
    assert alone.confidence == "high"
    assert (first.code, first.culprits, first.confidence) == ("UH101", (2,), "medium")
    assert any(sentence.startswith("Sources disagree") for sentence in first.evidence)
    other = next(f for f in report.findings if f.code == "UH776")
    assert (other.role, other.confidence) == ("observation", "low")


def test_who_prints_that_a_rank_is_missing_is_not_that_rank() -> None:
    """The barrier of rank 0 names rank 2: the line at which it was raised is that of rank 0."""
    text = "RuntimeError: [Rank 0]: Rank 2 failed to pass monitoredBarrier in 6000 ms"
    first = judged(waited_for(), event("UH718", 0, text, **FILE, ranks="2")).findings[0]
    assert (first.slug, first.culprits) == ("barrier-missing-ranks", (2,))
    assert first.summary.startswith(f"The log of rank 0 names rank 2: {text} at save (train.py:88)")
    told = [(site.ranks, site.role) for site in first.sites if site.line == 88]
    assert told == [((0,), "victim")]


def test_an_earlier_failure_of_another_rank_is_no_reason_to_look_away() -> None:
    """The culprit's own log tells why; that somebody else complained before is said, too."""
    complaint = replace(event("UH788", 0, "loss is nan"), time_ns=2 * 10**18 - 10**10, order=0)
    full = replace(event("UH776", 2), time_ns=2 * 10**18, order=1)
    findings = judged(waited_for(), complaint, full).findings
    first = findings[0]
    assert (first.code, first.culprits, first.confidence) == ("UH776", (2,), "medium")
    assert "loss is nan" in first.alternatives[0]
    assert [(f.code, f.role) for f in findings[1:]] == [
        ("UH101", "consequence"),
        ("UH788", "observation"),
    ]


def test_a_wrong_call_stays_wrong_whatever_the_log_says() -> None:
    """A mismatch is seen in the dumps themselves."""
    job = FakeJob(4)
    job.call([0, 1, 3], site=SITE, finished=False)
    job.call([2], op="broadcast", site="train.py:44 step", finished=False)
    report = judged(job, event("UH776", 0))
    assert (report.findings[0].code, report.culprits) == ("UH201", (2,))
    assert "No space left" in " ".join(report.findings[0].alternatives)


def test_logs_of_a_job_whose_dumps_show_nothing() -> None:
    """Everything is finished in the dumps: the log's failure is the verdict, not a sure one."""
    job = FakeJob(2)
    job.call(range(2), site=SITE)
    job.call(range(2), site=SITE)
    report = judged(job, event("UH776", 1))
    assert report.status == "problem"
    assert [(f.code, f.role) for f in report.findings] == [("UH776", "cause")]
    assert report.findings[0].confidence == "medium"


def test_consequences_alone_change_no_verdict() -> None:
    """A message that only follows is told, and the job stays what the dumps say."""
    job = FakeJob(2)
    job.call(range(2), site=SITE)
    job.call(range(2), site=SITE)
    report = judged(job, event("UH714", 1, "NCCL communicator was aborted", "consequence"))
    assert report.status == "healthy"
    assert [(f.code, f.role) for f in report.findings] == [
        ("UH601", "observation"),
        ("UH714", "consequence"),
    ]


def test_everybody_joined_and_one_failed() -> None:
    """Where the dumps name nobody the log may; that it is sure nobody says."""
    job = FakeJob(4)
    job.call(range(4), site=SITE, finished=False)
    report = judged(job, event("UH769", 3, "NVRM: Xid (PCI:0000:3b:00): 79"))
    assert (report.findings[0].code, report.culprits) == ("UH769", (3,))
    assert report.findings[0].confidence == "medium"


def test_watchdogs_that_agree_make_it_sure() -> None:
    """Three watchdogs time out in the same call, and the fourth had counted one less."""
    told = [timed_out(rank, 5) for rank in (0, 1, 3)] + [timed_out(2, 5, 4)]
    first = judged(waited_for(missing=True), *told).findings[0]
    assert (first.code, first.culprits, first.confidence) == ("UH103", (2,), "high")
    assert any("timed out in #5" in sentence for sentence in first.evidence)
    assert any("up to #4 only" in sentence for sentence in first.evidence)


@pytest.mark.parametrize(
    "told",
    [
        [timed_out(2, 5, 5)],
        [timed_out(0, 7), timed_out(1, 7)],
    ],
    ids=["the culprit had enqueued it", "others timed out elsewhere"],
)
def test_watchdogs_that_contradict_lower_the_confidence(told: list[LogEvent]) -> None:
    """Both are told."""
    first = judged(waited_for(), *told).findings[0]
    assert (first.code, first.culprits, first.confidence) == ("UH101", (2,), "medium")
    assert any(sentence.startswith("Sources disagree") for sentence in first.evidence)


def test_watchdogs_of_another_group_say_nothing() -> None:
    """Group names tell the lines apart."""
    told = [timed_out(rank, 7, group="tp") for rank in (0, 1)]
    first = judged(waited_for(), *told).findings[0]
    assert first.confidence == "high"
    assert not any("atchdog" in sentence for sentence in first.evidence)


def test_logs_alone_name_who_did_not_enqueue() -> None:
    """A case of logs only: what the watchdogs counted, and what ranks said of themselves."""
    told = [timed_out(rank, 5) for rank in (0, 1, 3)] + [timed_out(2, 5, 4)]
    facts = (Fact("NCCL version", "2.21.5", 0), Fact("NCCL version", "2.27.3", 1))
    report = diagnose(Case(world_size=4, log_events=tuple(told), log_facts=facts))
    first = report.findings[0]
    assert (first.code, first.culprits, first.confidence) == ("UH101", (2,), "medium")
    assert [f.code for f in report.findings[1:]] == ["UH795"]


def test_the_end_of_a_process_is_told_once() -> None:
    """The recorder saw the exception, and the log has it too: one finding, confirmed."""
    job = waited_for()
    job.dump_fields[2] = {"exception": "ValueError: no labels", "time_ns": 10**18}
    report = judged(job, event("UH793", 2, "ValueError: no labels", **FILE))
    assert [f.code for f in report.causes] == ["UH106"]
    assert any("Its log says the same" in sentence for sentence in report.findings[0].evidence)


def test_a_reason_stands_before_the_end() -> None:
    """The log knows why the process ended: that is the cause."""
    job = waited_for()
    job.dump_fields[2] = {"exception": "OSError: [Errno 28] No space", "time_ns": 10**18}
    report = judged(job, event("UH776", 2))
    assert [(f.code, f.role) for f in report.findings[:2]] == [
        ("UH776", "cause"),
        ("UH106", "consequence"),
    ]


# ------------------------------------------------------------------ whose line it is


def of_process(rank: int, host: str, pid: int) -> ProcessSample:
    """A process that was looked at, and showed nothing."""
    return ProcessSample(rank=rank, host=host, pid=pid, error="no permission")


def test_a_process_id_gives_a_line_its_rank() -> None:
    """The out-of-memory killer names a process, the stacks whose it is."""
    killed = replace(event("UH753", -1, "Out of memory: Killed process 812", pid="812"), host="")
    case = waited_for().case(
        samples=[of_process(r, "node00", 810 + r) for r in range(4)], log_events=[killed]
    )
    assert diagnose(case).culprits == (2,)


def test_a_rank_on_its_node_is_no_global_rank() -> None:
    """With several nodes `[default2]:` may be anybody: nobody is accused of it."""
    line = event("UH776", 1, rank_is="local")
    job = FakeJob(16)
    job.call([r for r in range(16) if r != 1], site=SITE, finished=False)
    report = diagnose(job.case(log_events=[line]))
    assert report.findings[0].code != "UH776"
    assert all(f.culprits == () for f in report.findings if f.code == "UH776")


def test_a_second_node_would_need_as_many_ranks() -> None:
    """`[default2]:` of four ranks is rank 2: two nodes of three would be six."""
    line = event("UH776", 2, rank_is="local")
    job = FakeJob(4)
    job.call([0, 1, 3], site=SITE, finished=False)
    assert diagnose(job.case(log_events=[line])).findings[0].culprits == (2,)


def test_a_rank_on_its_node_with_its_host() -> None:
    """Where dumps tell hosts and ranks on them, the line belongs to one rank."""
    job = FakeJob(16)
    job.call([r for r in range(16) if r != 9], site=SITE, finished=False)
    for rank in range(16):
        job.dump_fields[rank] = {"local_rank": rank % 8, "host": f"node{rank // 8:02d}.cluster"}
    line = replace(event("UH776", 1, rank_is="local"), host="node01")
    assert diagnose(job.case(log_events=[line])).findings[0].culprits == (9,)


@pytest.mark.parametrize(("clock", "hours"), [({"clock": "utc"}, 1), ({}, 30)])
def test_a_failure_that_a_rank_survived_did_not_stop_it(clock: dict[str, str], hours: int) -> None:
    """It went on making calls: what was caught, or of an earlier attempt, is no cause."""
    job = waited_for()
    line = event("UH776", 2, **clock)
    before = replace(line, time_ns=job.now_ns - hours * 3600 * 10**9)
    report = judged(job, before)
    assert [(f.code, f.role) for f in report.findings] == [
        ("UH101", "cause"),
        ("UH776", "observation"),
    ]
    assert "went on making calls" in report.findings[1].summary
    at_once = replace(line, time_ns=job.now_ns)
    assert judged(waited_for(), at_once).findings[0].code == "UH776"


CAUSES = sorted(rule.code for rule in RULES if rule.role == "cause")


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(CAUSES), st.sampled_from([-1, 0, 1, 3]), st.integers(0, 9)),
        max_size=6,
    )
)
def test_no_log_makes_somebody_who_waits_a_culprit(told: list[tuple[str, int, int]]) -> None:
    """Whatever the others' logs say, the dumps' culprit stays the only one."""
    events = [
        replace(event(code, rank, f"failure {code}"), time_ns=second * 10**9, order=number)
        for number, (code, rank, second) in enumerate(told)
    ]
    report = judged(waited_for(), *events)
    assert report.culprits == (2,)
    assert report.status == "problem"
