"""Running ranks in the text format of Prometheus."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from unhang.record.contact.beatlayout import GroupBeat
from unhang.record.contact.heartbeat import Heartbeat
from unhang.run.watching import now
from unhang.run.watching.now import GroupNow, JobNow, RankNow, behind
from unhang.serve.pages import metrics


def test_ranks_are_told_with_their_job() -> None:
    """A name that would end its label does not; what is not known is left out."""
    ranks = (
        RankNow(0, 11, True, "ready", 41, 2.5, 0, True, "all_reduce", 1.5, 7),  # noqa: FBT003
        RankNow(1, 12, False, "ready", 40, None, 1, None, "", None, None),  # noqa: FBT003
    )
    text = metrics((), 0, [JobNow('a "b" \\', "node01", 2, ranks)])
    found = {family.name: family.samples for family in text_string_to_metric_families(text)}
    alive = {s.labels["rank"]: s.value for s in found["unhang_rank_alive"]}
    assert alive == {"0": 1.0, "1": 0.0}
    assert [s.value for s in found["unhang_rank_finished_calls"]] == [41.0, 40.0]
    assert [s.labels["rank"] for s in found["unhang_rank_quiet_seconds"]] == ["0"]


def test_a_job_whose_ranks_have_all_ended_has_no_series() -> None:
    """The marks that it left lie there until they are cleared away: no alert pages for them."""
    ended = (RankNow(0, 11, False, "ready", 41, None, 0, None, "", None, None),)  # noqa: FBT003
    assert "rank=" not in metrics((), 0, [JobNow("a", "node01", 1, ended)])


def test_groups_are_told_with_who_is_waited_for() -> None:
    """Each group of a job under its name and description."""
    group = GroupNow("1", "tp", "nccl", (0, 1), 30, 1.5, (1,))
    text = metrics((), 0, [JobNow("a", "node01", 2, (), (group,))])
    found = {family.name: family.samples for family in text_string_to_metric_families(text)}
    (finished,) = found["unhang_group_finished_collectives"]
    assert finished.labels == {"job_id": "a", "group": "1", "description": "tp"}
    assert finished.value == 30.0
    assert [s.value for s in found["unhang_group_ranks_behind"]] == [1.0]


def test_behind_is_who_has_not_called_what_others_wait_in() -> None:
    """Nobody is while nobody waits: ranks may enqueue far ahead of each other."""
    ahead, slow = GroupBeat("gloo", 0, 9, -1, 9), GroupBeat("gloo", 0, 7, -1, 7)
    waiting = GroupBeat("gloo", 0, 9, -1, 8)
    assert behind({0: ahead, 1: slow}) == ()
    assert behind({0: waiting, 1: slow, 2: ahead}) == (1,)


def test_calls_from_c_alone_have_a_line_and_a_quiet_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """DDP's: the recorder counts them, and no call through Python tells when or where."""
    beat = Heartbeat(
        pid=7, start_ticks=1, phase="ready", rank=0, world_size=1, local_rank=0, attempt=0,
        step=None, step_ns=0, calls=0, enqueued=0, call_ns=0, waits=0, waited=0, waited_ns=0,
        tick_ns=0, seen_file="/home/user/train.py", seen_line=31,
    )  # fmt: skip
    mark = SimpleNamespace(
        job_id="a", rank=0, pid=7, phase="ready", world_size=1, heartbeat="x", armed_ns=1, host="n"
    )
    counts = iter((5, 6, 6, 6))
    monkeypatch.setattr(now, "read_marks", lambda _: [mark])
    monkeypatch.setattr(now, "alive", lambda _: True)
    monkeypatch.setattr(
        now,
        "read_heartbeat",
        lambda _: replace(beat, groups=(GroupBeat("nccl", 0, 9, 9, next(counts), "0", "dp"),)),
    )
    looker = now.Looker()
    ranks = [looker.look(second)[0].ranks[0] for second in (100.0, 101.0, 102.0, 106.0)]
    assert [rank.quiet_s for rank in ranks] == [None, 0.0, 1.0, 5.0]
    assert ranks[0].still_s == 0.0
    assert all(rank.still_s is not None for rank in ranks)
    assert {rank.where for rank in ranks} == {"code at /home/user/train.py:31"}


def test_a_job_that_runs_stands_before_one_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks of processes that were killed lie there for days."""
    marks = [
        SimpleNamespace(
            job_id=name, rank=0, pid=pid, phase="ready", world_size=1, heartbeat="", armed_ns=1,
            host="n",
        )
        for pid, name in enumerate(("a-ended", "b-runs", "c-ended", "d-runs"))
    ]  # fmt: skip
    monkeypatch.setattr(now, "read_marks", lambda _: marks)
    monkeypatch.setattr(now, "alive", lambda mark: mark.job_id.endswith("runs"))
    assert [job.job for job in now.Looker().look(100.0)] == [
        "b-runs",
        "d-runs",
        "a-ended",
        "c-ended",
    ]
