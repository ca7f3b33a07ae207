"""NCCL's recorder is asked by torch's worker server, and by Python only where there is none."""

from __future__ import annotations

import pickle
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unhang.record.contact.client import AskError
from unhang.record.dumps import torchfr

DUMP = pickle.dumps({"entries": []}, protocol=2)


class Worker:
    """Stands in for torch's worker server: answers once, or never."""

    def __init__(self, folder: Path, answer: bytes | None) -> None:
        self.path = str(folder / "http")
        self.asked = b""
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        if answer is not None:
            threading.Thread(target=self.serve, args=(answer,), daemon=True).start()

    def serve(self, answer: bytes) -> None:
        """Read a request, and answer."""
        connection, _ = self.listener.accept()
        with connection:
            self.asked = connection.recv(65536)
            connection.sendall(answer)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Any]:
    """Makes workers, and closes them."""
    made: list[Worker] = []

    def make(answer: bytes | None) -> Worker:
        made.append(Worker(tmp_path, answer))
        return made[-1]

    yield make
    for worker in made:
        worker.listener.close()


def torch_is(monkeypatch: pytest.MonkeyPatch, version: str, function: Any) -> None:  # noqa: ANN401
    """A torch of this version, whose NCCL recorder has this function."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__=version))
    c10d = SimpleNamespace(_dump_nccl_trace=function)
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", c10d)


def nobody(*_: bool) -> bytes:
    """Python's function, which must not be called."""
    raise AssertionError


def test_the_worker_server_is_asked_first(monkeypatch: pytest.MonkeyPatch, workers: Any) -> None:  # noqa: ANN401
    """It needs no GIL, which Python's function keeps while the device does not answer."""
    worker = workers(b"HTTP/1.1 200 OK\r\n\r\n" + DUMP)
    torch_is(monkeypatch, "2.13.0", nobody)
    (source,) = torchfr.recorders(worker.path)
    assert source.dump(collectives=True, stacks=False, only_active=False) == {"entries": []}
    wanted = b"includecollectives=true&includestacktraces=false&onlyactive=false"
    assert b"/handler/dump_nccl_trace_pickle?" + wanted in worker.asked


def test_a_silent_worker_server_is_not_followed_by_python(
    monkeypatch: pytest.MonkeyPatch,
    workers: Any,  # noqa: ANN401
) -> None:
    """Whatever keeps it would keep the GIL as well."""
    monkeypatch.setattr(torchfr, "_ENTRIES_S", 0.01)
    torch_is(monkeypatch, "2.13.0", nobody)
    (source,) = torchfr.recorders(workers(None).path)
    with pytest.raises(AskError):
        source.dump(collectives=True, stacks=False, only_active=False)


def test_without_its_handler_python_is_asked(
    monkeypatch: pytest.MonkeyPatch,
    workers: Any,  # noqa: ANN401
) -> None:
    """As without a server."""
    worker = workers(b"HTTP/1.1 404 Not Found\r\n\r\n")
    torch_is(monkeypatch, "2.4.1", lambda *_: DUMP)
    for path in (worker.path, ""):
        (source,) = torchfr.recorders(path)
        assert source.dump(collectives=True, stacks=False, only_active=False) == {"entries": []}


def test_torch_23_takes_no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its dump has everything."""
    torch_is(monkeypatch, "2.3.1", lambda: DUMP)
    (source,) = torchfr.recorders()
    assert source.dump(collectives=True, stacks=True, only_active=False) == {"entries": []}


def test_torch_22_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its function crashes a process that has sent, received or coalesced anything."""
    torch_is(monkeypatch, "2.2.2+cu121", nobody)
    assert torchfr.crashes()
    assert torchfr.recorders() == []
