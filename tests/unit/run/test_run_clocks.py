"""Wall clocks jump while a run is watched, and process ids come again: neither decides anything."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from unhang.record.contact import beat
from unhang.record.contact.beat import Beat
from unhang.record.contact.beatlayout import Phase, Word
from unhang.record.contact.heartbeat import Heartbeat, read_heartbeat
from unhang.record.contact.marks import Mark, start_ticks
from unhang.run.incident import collected
from unhang.run.incident.collected import Collected
from unhang.run.watching import jobtree, roster
from unhang.run.watching.roster import Roster, WatchedRank
from unhang.run.watching.watch import Alarm, HangWatch

HOUR_NS = 3_600 * 10**9
JUMPS = (HOUR_NS, -HOUR_NS, -(10**18))


@dataclass
class Clock:
    """Both clocks; stands in for the module `time`."""

    steady_s: float = 1000.0
    wall_ns: int = 1_790_000_000 * 10**9

    def monotonic(self) -> float:
        """The clock that never goes back."""
        return self.steady_s

    def time_ns(self) -> int:
        """The clock on the wall."""
        return self.wall_ns


class Watched:
    """One rank with a real heartbeat, looked at once a second."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.clock = clock
        mine = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}
        self.beat = Beat(folder / "1.beat", **mine)
        self.beat.set(Word.PHASE, Phase.READY)
        self.beat.set(Word.RANK, 0)
        mark = Mark(
            **mine, host="n", role="rank", phase="ready", rank=0, heartbeat=str(folder / "1.beat")
        )
        self.member = WatchedRank(mark, 0, certain=True)
        self.roster = Roster("job", "ours")
        self.roster.members = [self.member]
        self.watch = HangWatch(10.0)

    def second(self, jump_ns: int = 0) -> object:
        """Let a second pass, on the wall some more; returns what the watch says."""
        self.clock.steady_s += 1
        self.clock.wall_ns += 10**9 + jump_ns
        return self.watch.see(self.roster.look())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Every clock that recorder, roster and evidence read."""
    clock = Clock()
    monkeypatch.setattr(beat, "time_ns", clock.time_ns)
    monkeypatch.setattr(roster, "time", clock)
    monkeypatch.setattr(collected, "time", clock)
    return clock


@pytest.mark.parametrize("jump_ns", JUMPS)
def test_a_jump_neither_raises_an_alarm_nor_hides_one(
    jump_ns: int, tmp_path: Path, clock: Clock
) -> None:
    """A job that moves is left alone, and one that hangs is told after ten seconds, not more."""
    watched = Watched(tmp_path, clock)
    for second in range(20):
        watched.beat.waiting()
        watched.beat.waited()
        assert watched.second(jump_ns if second == 5 else 0) is None
    watched.beat.waiting()
    said = [watched.second(jump_ns if second == 5 else 0) for second in range(30)]
    [(at, alarm)] = [(at, event) for at, event in enumerate(said) if event is not None]
    assert isinstance(alarm, Alarm)
    assert (at, alarm.quiet_s) == (9, 10.0)


@pytest.mark.parametrize("jump_ns", JUMPS)
def test_a_heartbeat_is_never_younger_than_now(jump_ns: int, tmp_path: Path, clock: Clock) -> None:
    """What is shown of its age is a number of seconds that have passed, at least none."""
    watched = Watched(tmp_path, clock)
    watched.beat.entered(None, "send", "0")
    watched.beat.set(Word.CALL_NS, clock.wall_ns)
    clock.wall_ns += jump_ns
    read = read_heartbeat(tmp_path / "1.beat")
    assert read is not None
    read = Heartbeat(
        **{name: getattr(read, name) for name in read.__dataclass_fields__ if name != "file"},
        file="train.py",
    )
    age_s = collected.part_of(Collected(watched.member, beat=read)).last_seen["age_s"]
    assert age_s == max(0.0, jump_ns / 1e9)


def test_a_signal_goes_only_to_the_process_that_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process id may belong to somebody else by the time that --on-hang kill comes to it."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(jobtree.os, "kill", lambda pid, number: sent.append((pid, number)))
    mine, began = os.getpid(), start_ticks(os.getpid())
    jobtree._send_to((mine, began - 1), signal.SIGKILL)
    jobtree._send_to((mine, began + 1), signal.SIGKILL)
    jobtree._send_to((999_999_999, began), signal.SIGKILL)
    assert sent == []
    jobtree._send_to((mine, began), signal.SIGKILL)
    assert sent == [(mine, signal.SIGKILL)]
