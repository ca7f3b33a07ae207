"""What the heartbeat has of workers of RPC: whom a process waits for, in which call, for what."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from unhang.record.calls import rpc, wrap
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.ring import Ring
from unhang.record.contact.beat import Beat
from unhang.record.contact.heartbeat import Heartbeat, read_heartbeat
from unhang.record.contact.meeting import told_by, told_rpc
from unhang.record.process import ArmedProcess
from unhang.record.settings import Settings


class Future:
    """A future of RPC's, of which a test sees what is noted while it is waited for."""

    def __init__(self, look: Path) -> None:
        self.look, self.seen = look, told(look)

    def wait(self) -> str:
        """Wait for the answer."""
        self.seen = told(self.look)
        return "answer"

    def done(self) -> bool:
        """Whether the answer is there."""
        return False


def told(path: Path) -> Heartbeat:
    """What the heartbeat says."""
    read = read_heartbeat(path)
    assert read is not None
    return read


def work() -> None:
    """What workers are asked to run."""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The heartbeat of an armed process."""
    monkeypatch.setattr(wrap, "ORIGINALS", {})
    place = tmp_path / "1.beat"
    state = ArmedProcess(Settings(), os.getpid(), Beat(place, pid=1, start_ticks=1), Ring(10))
    wrap.attach(Recorder(state))
    rpc.forget()
    yield place
    wrap.detach()
    rpc.forget()


@pytest.fixture
def module(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A stand-in for torch.distributed.rpc, wrapped."""

    def rpc_sync(to: object, func: object, args: object = None) -> Heartbeat:
        del func, args
        if to == "absent":
            raise RuntimeError("RPC ran for more than set timeout")
        return told(path)

    def shutdown(graceful: object = None) -> Heartbeat:
        del graceful
        return told(path)

    future = type("Future", (Future,), {"wait": Future.wait})

    def rpc_async(to: object, func: object) -> Future:
        del to, func
        return future(path)

    monkeypatch.setitem(sys.modules, "torch._C", SimpleNamespace(Future=future))  # type: ignore[arg-type]  # a stand-in
    monkeypatch.setitem(sys.modules, "torch.futures", ModuleType("torch.futures"))
    made = ModuleType("torch.distributed.rpc")
    api = SimpleNamespace(rpc_sync=rpc_sync, rpc_async=rpc_async, shutdown=shutdown)
    vars(made).update(api=api, rpc_sync=rpc_sync, rpc_async=rpc_async, shutdown=shutdown)
    rpc.install(made)
    return made


def test_who_is_asked_is_told_as_long_as_it_is_waited_for(path: Path, module: ModuleType) -> None:
    """Whether the call ends well or not; a wait is counted when it begins and when it ends."""
    rpc.named("worker0", 1)
    seen = module.rpc_sync("worker1", work, args=())
    assert (seen.asks_in, seen.asks, seen.asks_for) == ("rpc_sync", "worker1", "work")
    assert (seen.worker, seen.serving, seen.awaits) == ("worker0", 1, "")
    with pytest.raises(RuntimeError):
        module.rpc_sync("absent", work)
    now = told(path)
    assert (now.asks_in, now.asks, now.worker) == ("", "", "worker0")
    assert rpc.counts() == (2, 2)


def test_a_future_tells_who_is_to_answer(path: Path, module: ModuleType) -> None:
    """It is asked for at once, and waited for later; another is not told."""
    future = module.rpc_async("worker2", work)
    assert told(path).asks == ""
    assert future.wait() == "answer"
    assert (future.seen.asks_in, future.seen.asks) == ("rpc_async", "worker2")
    other = type(future)(path)
    other.wait()
    assert other.seen.asks_in == ""


def test_the_end_of_rpc_is_a_wait_for_all(module: ModuleType) -> None:
    """It names no worker."""
    seen = module.shutdown()
    assert (seen.asks_in, seen.asks) == ("rpc.shutdown", "")


def test_a_key_of_a_store_comes_before_and_what_was_asked_comes_back(path: Path) -> None:
    """Both share a place in the heartbeat."""
    beat = wrap.current().beat  # type: ignore[union-attr]  # the fixture has attached one
    rpc.named("ps", 16)
    with rpc.asked(rpc.RpcWait("to_here", "worker1")):
        beat.awaits("ready")
        assert (told(path).awaits, told(path).asks_in) == ("ready", "")
        beat.awaits("")
        assert (told(path).awaits, told(path).asks, told(path).worker) == ("", "worker1", "ps")


def test_a_file_that_was_there_before_the_run_is_left_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the ranks of this run have made is not, nor an empty one, nor without a run."""
    file = tmp_path / "shared_init"
    given = {"init_method": f"file://{file}", "rank": 0, "world_size": 2}
    monkeypatch.setenv("UNHANG_RUN", "node01-7-1000000")
    assert told_by((), given).leftover_s == 0
    file.touch()
    os.utime(file, (940, 940))
    assert told_by((), given).leftover_s == 0
    file.write_text("0/rank_0")
    for written_s, left_s in ((940, 60), (1001, 0)):
        os.utime(file, (written_s, written_s))
        assert told_by((), given).leftover_s == left_s
    monkeypatch.delenv("UNHANG_RUN")
    os.utime(file, (940, 940))
    assert told_by((), given).leftover_s == 0


@pytest.mark.parametrize(
    ("restarts", "agent", "earlier"),
    [("2", "True", 2), ("0", "True", 0), ("1", "False", 0), ("", "True", 0)],
)
def test_attempts_that_met_at_one_store_are_counted(
    monkeypatch: pytest.MonkeyPatch, restarts: str, agent: str, earlier: int
) -> None:
    """As torchrun tells its ranks: `--standalone` and c10d were seen to keep the store as well."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", agent)
    assert told_by((), {}).earlier == earlier
    assert told_by((), {"init_method": "tcp://node01:7"}).earlier == 0


def test_what_init_rpc_is_given_names_worker_and_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """By position, by name, and by the environment."""
    monkeypatch.setenv("MASTER_ADDR", "node01")
    monkeypatch.setenv("MASTER_PORT", "29500")
    options = SimpleNamespace(init_method="env://", num_worker_threads=4)
    given = told_rpc(("ps",), {"rank": 1, "world_size": 3, "rpc_backend_options": options})
    assert (given.name, given.threads, given.rank, given.size) == ("ps", 4, 1, 3)
    assert given.meeting.rendezvous == "node01:29500"
    assert told_rpc(("ps", None, 2), {}).threads == 16
