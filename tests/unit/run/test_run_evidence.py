"""What the collector says of evidence that it could not take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unhang.collect.sampling import Looks
from unhang.model import Note
from unhang.record.contact.heartbeat import GroupBeat, Heartbeat
from unhang.record.contact.marks import Mark
from unhang.run.incident import evidence
from unhang.run.incident.collected import Collected, last_words, told_by
from unhang.run.incident.evidence import Collector
from unhang.run.watching.roster import WatchedRank


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
