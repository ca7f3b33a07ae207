"""Asking the recorder's thread over its socket and its pipe; being asked nonsense."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from unhang.record.calls.recorder import Recorder
from unhang.record.calls.ring import Ring
from unhang.record.contact import client, sockets
from unhang.record.contact.beat import Beat
from unhang.record.contact.client import AskError, ask, ask_worker, request_dump
from unhang.record.contact.triggers import MAX_REQUEST_BYTES, TriggerThread
from unhang.record.dumps.torchfr import load_plain
from unhang.record.process import ArmedProcess, GroupFact
from unhang.record.settings import Settings

PATIENCE_S = 600.0


def mask_of(thread: threading.Thread) -> int:
    """The signals that a thread blocks."""
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(next(line for line in status.splitlines() if "SigBlk" in line).split()[1], 16)


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[TriggerThread]:
    """A recorder's thread, listening; rank 1 of 2 of a group on a backend that torch ignores."""
    settings = Settings(directory=str(tmp_path / "cases"))
    state = ArmedProcess(settings, os.getpid(), Beat(None, pid=1, start_ticks=1), Ring(10))
    state.job_id, state.rank, state.world_size = "job", 1, 2
    state.groups["0", "", (0, 1)] = GroupFact("0", "", (0, 1), "late", 1000)
    watching = TriggerThread(Recorder(state), (tmp_path / "sock", tmp_path / "fifo"))
    watching.start()
    yield watching
    watching.stop(PATIENCE_S)
    watching.close()


def say(path: Path, data: bytes) -> dict[str, object]:
    """Send bytes to a socket and return the reply."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        reply: dict[str, object] = json.loads(connection.makefile("rb").readline())
    return reply


def test_both_ends_are_private(watcher: TriggerThread, tmp_path: Path) -> None:
    """Mode 0600 on the socket and on the pipe."""
    del watcher
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("sock", "fifo")] == [0o600] * 2


def test_ping_and_status(watcher: TriggerThread, tmp_path: Path) -> None:
    """The id of a request comes back."""
    del watcher
    (reply,) = ask(str(tmp_path / "sock"), {"do": "ping", "id": 7}, PATIENCE_S)
    assert reply == {"ok": True, "pid": os.getpid(), "rank": 1, "id": 7}
    (status,) = ask(str(tmp_path / "sock"), {"do": "status"}, PATIENCE_S)
    assert (status["rank"], status["world_size"], status["pending"]) == (1, 2, [])
    assert status["groups"][0]["ranks"] == [0, 1]


def test_a_dump_in_two_stages(watcher: TriggerThread, tmp_path: Path) -> None:
    """Into the directory that the asker names, with the reason that he gives."""
    del watcher
    replies = list(
        request_dump(
            str(tmp_path / "sock"), reason="hang", incident="x", directory=tmp_path / "mine",
            timeout_s=PATIENCE_S,
        )
    )  # fmt: skip
    assert [reply["stage"] for reply in replies] == ["entries", "stacks"]
    path = tmp_path / "mine" / "dumps" / "late" / "rank_1"
    assert [reply["files"] for reply in replies] == [[str(path)]] * 2
    assert load_plain(path.read_bytes())["unhang"]["reason"] == "hang"


@pytest.mark.parametrize(
    "data",
    [
        b"\n", b"[]\n", b"{}\n", b"\xff\n", b'{"do": "exec"}\n', b'"dump"\n', b"[" * 5000 + b"\n",
        b'{"do": "dump", "reason": "because"}\n', b'{"do": "dump", "incident": 5}\n',
        b'{"do": "dump", "dir": "relative"}\n', b'{"do": "dump", "dir": 5}\n',
        b'{"do": "dump", "reason": ["hang"]}\n', b"x" * (MAX_REQUEST_BYTES * 2),
    ],
)  # fmt: skip
def test_nonsense_gets_a_no(watcher: TriggerThread, tmp_path: Path, data: bytes) -> None:
    """And the thread goes on listening."""
    try:
        assert say(tmp_path / "sock", data)["ok"] is False
    except (BrokenPipeError, ConnectionResetError):
        assert len(data) > MAX_REQUEST_BYTES  # it hung up on somebody who does not stop
    assert say(tmp_path / "sock", b'{"do": "ping"}\n')["ok"] is True
    assert watcher.recorder.state.incidents == {}


def test_the_pipe_names_the_incident(watcher: TriggerThread, tmp_path: Path) -> None:
    """What is written there is a file name by the time it is used; a ping waits for it."""
    (tmp_path / "fifo").write_text("../../evil\n", encoding="utf-8")
    say(tmp_path / "sock", b'{"do": "ping"}\n')
    names = [path.name for path in (tmp_path / "cases").iterdir()]
    assert names == ["job-a0-evil"]
    assert watcher.recorder.state.incidents == {"all": 1}


def test_an_error_in_the_thread_is_noted_and_not_its_end(
    watcher: TriggerThread, tmp_path: Path
) -> None:
    """Whatever runs there."""

    def fail() -> None:
        raise ValueError("of ours")

    watcher.later(fail)
    say(tmp_path / "sock", b'{"do": "ping"}\n')
    say(tmp_path / "sock", b'{"do": "ping"}\n')
    assert "recorder's thread: ValueError: of ours" in watcher.recorder.state.failures.texts()


def test_a_peer_of_another_user_gets_no_answer(
    watcher: TriggerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On either side."""
    del watcher
    monkeypatch.setattr(sockets, "peer_uid", lambda _: 4_000_000)
    with pytest.raises(AskError, match="another user"):
        list(ask(str(tmp_path / "sock"), {"do": "ping"}, PATIENCE_S))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "sock"))
        try:
            connection.sendall(b'{"do": "ping"}\n')
            answer = connection.recv(100)
        except (BrokenPipeError, ConnectionResetError):  # it hung up before it read the question
            answer = b""
        assert answer == b""


def test_sockets_with_long_names(tmp_path: Path) -> None:
    """The kernel takes 107 bytes; a path through the directory's descriptor is short."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    state = ArmedProcess(Settings(), os.getpid(), Beat(None, pid=1, start_ticks=1), Ring(10))
    watching = TriggerThread(Recorder(state), (folder / "sock", folder / "fifo"))
    watching.start()
    assert [r["ok"] for r in ask(str(folder / "sock"), {"do": "ping"}, PATIENCE_S)] == [True]
    watching.stop(PATIENCE_S)
    watching.close()


# ------------------------------------------------------------------ the asking side


def served(path: Path, answer: bytes) -> threading.Thread:
    """A server that answers one question with these bytes."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, listener:
            connection.recv(65536)
            connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("answer", [b"no json\n", b"[]\n", b"\xff\n"])
def test_answers_that_are_none(tmp_path: Path, answer: bytes) -> None:
    """An error with a sentence, never an exception of json's."""
    served(tmp_path / "s", answer)
    with pytest.raises(AskError, match="no JSON"):
        list(ask(str(tmp_path / "s"), {"do": "ping"}, PATIENCE_S))


def test_an_answer_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut off."""
    monkeypatch.setattr(client, "MAX_LINE_BYTES", 100)
    served(tmp_path / "s", b"x" * 1000)
    with pytest.raises(AskError, match="without end"):
        list(ask(str(tmp_path / "s"), {"do": "ping"}, PATIENCE_S))


def test_nobody_listens(tmp_path: Path) -> None:
    """Not even a file, or a file that nobody serves."""
    with pytest.raises(AskError):
        list(ask(str(tmp_path / "s"), {"do": "ping"}, PATIENCE_S))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))
    with pytest.raises(AskError, match="refused"):
        list(ask(str(tmp_path / "s"), {"do": "ping"}, PATIENCE_S))


def test_the_worker_server_s_http(tmp_path: Path) -> None:
    """The body of a good answer; anything else is an error."""
    served(tmp_path / "a", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npong")
    assert ask_worker(str(tmp_path / "a"), "ping", PATIENCE_S) == b"pong"
    served(tmp_path / "b", b"HTTP/1.1 404 Not Found\r\n\r\n")
    with pytest.raises(AskError, match="404"):
        ask_worker(str(tmp_path / "b"), "nothing", PATIENCE_S)


def test_the_thread_takes_no_signal_of_the_job(watcher: TriggerThread) -> None:
    """Ctrl-C is the main thread's, and what a fault raises stays with the thread."""
    blocked = mask_of(watcher._thread)
    assert blocked >> (signal.SIGINT - 1) & 1
    assert blocked >> (signal.SIGUSR1 - 1) & 1
    assert not blocked >> (signal.SIGSEGV - 1) & 1
    assert not mask_of(threading.main_thread()) >> (signal.SIGINT - 1) & 1
