"""What the collector says of evidence that it could not take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unhang.analysis.steps import diagnose
from unhang.collect.sampling import Looks
from unhang.ingest import Beside, load
from unhang.model import Note
from unhang.record.contact.beatlayout import GroupBeat
from unhang.record.contact.heartbeat import Heartbeat
from unhang.record.contact.marks import Mark
from unhang.run.incident import evidence
from unhang.run.incident.collected import Collected, last_words, told_by
from unhang.run.incident.evidence import Collector
from unhang.run.watching.roster import Gone, WatchedRank


def test_who_cannot_be_looked_at_is_told_with_what_would_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a sampler, or the right to use it, a verdict rests on less: people must hear that."""
    text = (
        "neither py-spy nor pystack is installed. Install a sampler: pip install 'unhang[stacks]'"
    )
    looks = Looks((), (Note("warning", "process 7, 8", text),))
    monkeypatch.setattr(evidence, "sample_processes", lambda *_, **__: looks)
    collector = Collector(tmp_path, "run", "incident", "hang", lambda: True)
    collector._take_stacks()
    assert collector.refused == [f"no stacks of process 7, 8: {text}"]
    assert collector.notes[:1] == collector.refused


def beat(counters: tuple[int, int] = (4, 3), lost_ns: int = 0, **more: int) -> Heartbeat:
    """A heartbeat of a rank that waits in its fourth call."""
    values = {"calls": 4, "enqueued": 4, "waits": 4, "waited": 3, **more}
    return Heartbeat(
        pid=1, start_ticks=1, phase="ready", rank=0, world_size=2, local_rank=0, attempt=0,
        step=None, step_ns=0, call_ns=0, waited_ns=0, tick_ns=0, lost_ns=lost_ns, **values,
        groups=(GroupBeat("gloo", 0, counters[0], -1, counters[1]),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("now", "went_on"),
    [
        (beat(), False),
        (beat(waited=4), False),  # its call has ended, and it may stand at the next thing
        (beat(waited=4, calls=5, enqueued=5), True),
        (beat((5, 4)), True),  # by calls from C++
        (beat((5, 4), lost_ns=7), False),  # the job's own time-out has ended it
        (beat(waited=4, failed=1, calls=5), False),
        (None, False),
    ],
)
def test_who_goes_on_while_the_evidence_is_taken_is_told(
    now: Heartbeat | None,
    went_on: bool,  # noqa: FBT001 - a table of expectations
) -> None:
    """A call that ended well and a further one, as for the watch over hangs."""
    mark = Mark(pid=1, start_ticks=1, host="node01", role="rank", phase="ready", rank=0)
    rank = Collected(WatchedRank(mark, 0, certain=True), beat=beat())
    rank.compare(now)
    assert told_by(rank)["went_on"] is went_on


@pytest.mark.parametrize(("tick_ns", "went_on"), [(5, False), (15, True)])
def test_counters_that_catch_up_are_no_progress(tick_ns: int, *, went_on: bool) -> None:
    """A busy recorder reads them late: what it had not counted at the rank's last call is old."""
    mark = Mark(pid=1, start_ticks=1, host="node01", role="rank", phase="ready", rank=0)
    before = replace(beat(), call_ns=10, tick_ns=tick_ns)
    rank = Collected(WatchedRank(mark, 0, certain=True), beat=before)
    rank.compare(replace(beat((5, 4)), call_ns=10, tick_ns=20))
    assert told_by(rank)["went_on"] is went_on


@pytest.mark.parametrize(
    ("seen_s", "waited", "shown"),
    [
        (9.5, 4, "train.py"),
        (7.5, 4, "loop.py"),
        (10.5, 4, "train.py"),
        (9.5, 3, "loop.py"),  # it is in that call
    ],
)
def test_the_last_line_is_the_programs_own_where_it_is_as_good(
    seen_s: float, waited: int, shown: str
) -> None:
    """A framework calls at its own line; the program was seen a moment before, or long ago."""
    now = replace(
        beat(waited=waited), call_ns=10 * 10**9, line=3, function="advance",
        file="/venv/lib/python3.11/site-packages/lightning/loop.py",
        seen_file="/home/me/train.py", seen_line=7, seen_function="step",
        seen_ns=int(seen_s * 1e9),
    )  # fmt: skip
    mark = Mark(pid=1, start_ticks=1, host="node01", role="rank", phase="ready", rank=0)
    (sample,) = last_words(Collected(WatchedRank(mark, 0, certain=True), beat=now))
    assert sample.threads[0].frames[0].file.rpartition("/")[2] == shown


FATAL = """\
Fatal Python error: Aborted

Thread 0x00007fb64ce296c0 (most recent call first):
  File "/venv/lib/python3.11/threading.py", line 982 in run
  File "/venv/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007fb66c84db80 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 5140 in wait
  File "/home/me/train.py", line 12 in step
"""


def test_what_a_fatal_signal_left_are_a_ranks_last_words(tmp_path: Path) -> None:
    """Of one that has ended by it; the file is there, and empty, as long as none has come."""
    path = tmp_path / "1.faults"
    mark = Mark(
        pid=1, start_ticks=1, host="node01", role="rank", phase="ready", rank=0, faults=str(path)
    )
    member = WatchedRank(mark, 0, certain=True)
    gone = Collected(member, Gone(member, 134, clean=False, time_ns=7, order=0), beat=beat())
    for text, lines in (("", []), (FATAL, [5140, 12]), ("Fatal Python error: x\n", [])):
        path.write_text(text, encoding="utf-8")
        (sample,) = last_words(gone)
        shown = sample.threads[0].frames if sample.threads else ()
        assert [frame.line for frame in shown] == lines
    path.write_text(FATAL, encoding="utf-8")
    assert last_words(Collected(member, beat=beat()))[0].threads == ()


BEHIND = """\
NCCL version 2.24.3 compiled with CUDA 12.6
Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  MISMATCH

Warnings
========

#0-0 (00000000000000aa) MISMATCH
  Communicator ranks have different collective operation counts
  7 ranks have launched up to operation {most}
  Rank 5 has launched up to operation {least} -- GPU 1 managed by process 4105 on node 192.0.2.2

"""
"""As the client of NCCL 2.24 prints it; the numbers are filled in."""


@pytest.mark.parametrize(
    ("then", "code"),
    [({"most": 6650, "least": 6647}, "UH101"), ({"most": 6710, "least": 6707}, "UH901")],
    ids=["stands", "moves"],
)
def test_two_answers_of_ras_tell_who_stands_from_who_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: dict[str, int], code: str
) -> None:
    """Both lie in the case, in order: counts that have not grown are those of a job that stands."""
    answers = [BEHIND.format(most=6650, least=6647), BEHIND.format(**then)]
    monkeypatch.setattr(evidence, "ask_about", lambda _: answers.pop(0))
    monkeypatch.setattr(evidence, "RAS_APART_S", 0.0)
    collector = Collector(tmp_path, "node0", "incident", "hang", lambda: True)
    collector._take_ras()
    collector._take_ras_again()
    files = sorted((tmp_path / "ras").iterdir())
    assert [file.name for file in files] == ["answer-node0-1.txt", "answer-node0-2.txt"]
    report = diagnose(load([], beside=Beside(ras=tuple(map(str, files)))))
    assert report.findings[0].code == code
    assert report.findings[0].culprits == ((5,) if code == "UH101" else ())


def test_who_does_not_answer_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most jobs have no RAS: nothing waits for a second answer."""
    asked: list[object] = []
    monkeypatch.setattr(evidence, "ask_about", lambda pids: asked.append(pids) or "")
    collector = Collector(tmp_path, "node0", "incident", "hang", lambda: True)
    collector._take_ras()
    collector._take_ras_again()
    assert len(asked) == 1
    assert not (tmp_path / "ras").exists()
