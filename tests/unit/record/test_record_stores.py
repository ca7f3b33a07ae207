"""What the heartbeat has of keys of stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from unhang.record.calls import stores, wrap
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.ring import Ring
from unhang.record.contact.beat import Beat
from unhang.record.contact.heartbeat import Heartbeat, read_heartbeat
from unhang.record.process import ArmedProcess
from unhang.record.settings import Settings


class Store:
    """A store of which a test sees what is noted while somebody waits."""

    def __init__(self, path: Path) -> None:
        self.path, self.seen = path, ""

    def wait(self, keys: list[str], timeout: object = None) -> None:
        """Wait for keys."""
        del keys
        self.seen = told(self.path).awaits
        if timeout == "short":
            raise RuntimeError("wait timeout after 1ms")

    def set(self, key: str, value: str) -> None:
        """Set a key."""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The heartbeat of an armed process in which the store is wrapped."""
    monkeypatch.setattr(wrap, "ORIGINALS", {})
    before = {**vars(Store)}
    place = tmp_path / "1.beat"
    state = ArmedProcess(Settings(), os.getpid(), Beat(place, pid=1, start_ticks=1), Ring(10))
    wrap.attach(Recorder(state))
    stores.install(Store)
    yield place
    wrap.detach()
    for name in ("wait", "set"):
        setattr(Store, name, before[name])


def told(path: Path) -> Heartbeat:
    """What the heartbeat says."""
    read = read_heartbeat(path)
    assert read is not None
    return read


def test_the_key_that_is_waited_for_is_told_while_it_is(path: Path) -> None:
    """All of several, whether the wait ends well or not; the end of long ones."""
    store = Store(path)
    store.wait(["epoch/3", "epoch/4"])
    assert (store.seen, told(path).awaits) == ("epoch/3, epoch/4", "")
    with pytest.raises(RuntimeError, match="timeout"):
        store.wait(["epoch/5"], timeout="short")
    assert (store.seen, told(path).awaits) == ("epoch/5", "")
    store.wait(["x" * 1000 + "/rank7"])
    assert store.seen.endswith("x/rank7")
    assert len(store.seen) > 100
    store.wait([])
    assert store.seen == ""


def test_the_key_that_was_set_last_is_told(path: Path) -> None:
    """By position or by name."""
    store = Store(path)
    assert told(path).has_set == ""
    store.set("a/1", "yes")
    store.set(key="a/2", value="yes")
    assert told(path).has_set == "a/2"


def test_a_process_that_is_not_armed_is_left_alone(path: Path) -> None:
    """As after a fork."""
    store = Store(path)
    wrap.detach()
    store.wait(["epoch/3"])
    store.set("a/1", "yes")
    assert (store.seen, told(path).has_set) == ("", "")
