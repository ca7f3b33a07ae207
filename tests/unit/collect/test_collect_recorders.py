"""Torch's recorders asked from outside: which are asked, and whose calls an answer holds."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from unhang.collect import asking
from unhang.collect.recorders import backends_in, handlers, holds_calls


def dump(*names: str) -> bytes:
    """What a handler answers: torch leaves the key out where there are no calls."""
    calls = [{"profiling_name": name} for name in names]
    return json.dumps({"version": "2.10", **({"entries": calls} if calls else {})}).encode()


GLOO, HOOK = dump("gloo:all_reduce"), dump("nccl2:all_reduce", "c10d:barrier")
ANSWERS = {
    "2.15": {"fr_trace_json": dump(), "fr_trace_json?backend=nccl2": HOOK,
             "fr_trace_json?backend=nccl-lazy": dump(), "dump_nccl_trace_json": dump()},
    "2.15-mixed": {"fr_trace_json": GLOO, "fr_trace_json?backend=nccl2": HOOK,
                   "fr_trace_json?backend=nccl-lazy": dump(), "dump_nccl_trace_json": dump()},
    "2.13": {"fr_trace_json": GLOO, "fr_trace_json?backend=nccl2": GLOO,
             "fr_trace_json?backend=nccl-lazy": GLOO, "dump_nccl_trace_json": dump()},
    "2.13-quiet": {"fr_trace_json": dump(), "fr_trace_json?backend=nccl2": dump(),
                   "fr_trace_json?backend=nccl-lazy": dump(), "dump_nccl_trace_json": dump()},
}  # fmt: skip


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Torch's worker server with a version's answers; gives its path."""
    path = tmp_path / "http"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                handler = connection.recv(65536).decode().split()[1].removeprefix("/handler/")
                body = ANSWERS[request.param].get(handler)
                head = (
                    b"HTTP/1.1 404 Not Found\r\n\r\n"
                    if body is None
                    else b"HTTP/1.1 200 OK\r\n\r\n"
                )
                connection.sendall(head + (body or b""))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield str(path)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize(
    ("server", "told", "found"),
    [
        ("2.15", "nccl2", ["nccl2"]),
        ("2.15", "", ["nccl2"]),
        ("2.15-mixed", "", ["gloo", "nccl2"]),
        ("2.15-mixed", "gloo,nccl2", ["gloo", "nccl2"]),
        ("2.13", "", ["gloo"]),
        ("2.13", "cpu:gloo,cuda:nccl", ["gloo", "nccl"]),
        ("2.13", "mpi", []),
        ("2.13-quiet", "", ["gloo", "nccl"]),
    ],
    indirect=["server"],
)
def test_a_worker_server_is_asked_by_backend(server: str, told: str, found: list[str]) -> None:
    """An older one passes the name over: Gloo's calls are not taken for another backend's."""
    answer = asking._from_worker(server, 5.0, backends=told)
    assert [backend for backend, _ in answer.found] == found


@pytest.mark.parametrize("server", ["2.13-quiet"], indirect=True)
def test_an_empty_recorder_is_taken_where_ours_knows_it(server: str) -> None:
    """The handler gives unfinished calls alone: without any, the counters are what there is."""
    (answer,) = asking._from_worker(server, 5.0, backends="nccl2", hooked="nccl2").found
    assert answer == ("nccl2", dump())


def test_names_of_backends() -> None:
    """Ours and torch's way to write them; what is no name is left out of an address."""
    assert backends_in("cpu:gloo,cuda:nccl") == backends_in("gloo,nccl") == ["gloo", "nccl"]
    assert backends_in("a?b=c, ,") == []
    assert handlers(["nccl", "ucc"]) == [
        ("ucc", "fr_trace_json?backend=ucc"), ("nccl", "dump_nccl_trace_json"),
    ]  # fmt: skip


def test_whose_calls_a_dump_holds() -> None:
    """Calls without a backend's name are nobody else's."""
    assert holds_calls(HOOK, "nccl2")
    assert holds_calls(dump("c10d:barrier"), "nccl2")
    assert not holds_calls(GLOO, "nccl2")
    assert not holds_calls(dump(), "gloo")
    assert not holds_calls(b"[]", "gloo")
