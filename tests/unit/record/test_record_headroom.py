"""What the recorder takes of a job's descriptors, and when it takes none."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from unhang.record.calls.recorder import Recorder
from unhang.record.calls.ring import Ring
from unhang.record.contact.beat import Beat
from unhang.record.contact.beatlayout import Word
from unhang.record.contact.heartbeat import read_heartbeat
from unhang.record.contact.triggers import TriggerThread
from unhang.record.headroom import few_descriptors, little_memory
from unhang.record.process import ArmedProcess
from unhang.record.settings import Settings

PATIENCE_S = 60.0


def open_descriptors() -> set[Path]:
    """The descriptors of this process; that of the listing is gone by now."""
    return {path for path in [*Path("/proc/self/fd").iterdir()] if path.is_symlink()}


def recorder_in(folder: Path, settings: Settings) -> Recorder:
    """A recorder whose heartbeat is a file."""
    beat = Beat(folder / "beat", pid=os.getpid(), start_ticks=1)
    return Recorder(ArmedProcess(settings, os.getpid(), beat, Ring(10)))


def test_heartbeat_keeps_no_descriptor_and_the_thread_two(tmp_path: Path) -> None:
    """One for the socket and one for the pipe, by which the thread is woken too."""
    before = open_descriptors()
    recorder = recorder_in(tmp_path, Settings())
    assert open_descriptors() == before
    watcher = TriggerThread(recorder, (tmp_path / "sock", tmp_path / "fifo"))
    assert len(open_descriptors() - before) == 2
    watcher.close()
    assert open_descriptors() == before


def test_a_thread_without_descriptors_beats_and_works(tmp_path: Path) -> None:
    """What it is asked for is done at once, and its heartbeat can be read."""
    recorder = recorder_in(tmp_path, Settings(signal=12))
    before = open_descriptors()
    watcher = TriggerThread(recorder, None)
    watcher.start()
    assert (open_descriptors(), watcher.signal_fd) == (before, -1)
    done: list[int] = []
    watcher.later(lambda: done.append(1))
    watcher.stop(PATIENCE_S)
    watcher.close()
    assert done == [1]
    beat = read_heartbeat(tmp_path / "beat")
    assert beat is not None
    assert beat.tick_ns > 0


def test_a_heartbeat_outlives_its_process(tmp_path: Path) -> None:
    """It is a shared mapping: what a killed process has stored is in the file."""
    path = tmp_path / "beat"
    pid = os.fork()
    if pid == 0:
        Beat(path, pid=os.getpid(), start_ticks=1).set(Word.STEP, 42)
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    beat = read_heartbeat(path)
    assert beat is not None
    assert (beat.pid, beat.step) == (pid, 42)


@pytest.mark.parametrize(("limit", "few"), [(22, True), (4096, False), (-1, False)])
def test_few_descriptors(monkeypatch: pytest.MonkeyPatch, limit: int, *, few: bool) -> None:
    """The limit and what is in use are said; no limit is none."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    said = few_descriptors()
    assert bool(said) == few
    assert not few or said.endswith("of 22 file descriptors are in use")


@pytest.mark.parametrize(("limit", "little"), [(1 << 30, True), (1 << 60, False), (-1, False)])
def test_little_memory(monkeypatch: pytest.MonkeyPatch, limit: int, *, little: bool) -> None:
    """Only where the address space is limited at all."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert bool(little_memory()) == little
