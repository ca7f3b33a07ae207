"""The door of a stopped rank, which every user of the node can reach."""

from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Iterator

import pytest

from unhang import pausing
from unhang.cli import main

TOKEN = "3f9a1c0b77d2e845"  # noqa: S105 - of this test


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A rank's socket, with more clients waiting than it has let in."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as made:
        yield made


def client(listener: socket.socket, says: bytes) -> socket.socket:
    """Somebody who connects and says something."""
    made = socket.create_connection(listener.getsockname())
    made.sendall(says)
    return made


def test_others_at_the_door_neither_end_nor_hold_a_rank(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is silent, one resets its connection, one guesses; then the user comes."""
    monkeypatch.setattr(pausing, "TOKEN_S", 0.05)
    silent = client(listener, b"")
    gone = client(listener, b"x")
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.close()
    guesses = client(listener, b"0" * 16 + b"\n")
    user = client(listener, TOKEN.encode() + b"\np 1\n")
    with pausing._let_in(listener, TOKEN) as let_in, silent, guesses, user:
        assert let_in.getpeername() == user.getsockname()
        assert let_in.gettimeout() is None
        assert let_in.recv(100) == b"p 1\n"
        assert guesses.recv(100) == b"wrong token\n"


def test_what_a_stranger_at_an_address_says_is_text(
    listener: socket.socket, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port may have a new owner: no escape sequence of it reaches the terminal."""
    got = []

    def answer() -> None:
        made, _ = listener.accept()
        with made:
            got.append(made.recv(len(TOKEN) + 1))
            made.sendall("\x1b]0;x\x07\u202eok \u00e4\n".encode())
            made.shutdown(socket.SHUT_WR)
            while made.recv(100):
                pass

    other = threading.Thread(target=answer, daemon=True)
    other.start()
    monkeypatch.setattr(sys, "stdin", Typed([f"{TOKEN}\n"]))
    assert main.main(["attach", f"127.0.0.1:{listener.getsockname()[1]}"]) == 0
    other.join()
    assert got == [f"{TOKEN}\n".encode()]
    assert capsys.readouterr().out == "\\x1b]0;x\\x07\\u202eok \u00e4\n"


@pytest.mark.parametrize("stdin", [None, []])
def test_without_a_token_nothing_is_sent(
    stdin: list[str] | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard input may be closed or empty: a sentence and a hint."""
    monkeypatch.setattr(sys, "stdin", None if stdin is None else Typed(stdin))
    assert main.main(["attach", "127.0.0.1:1"]) == 2
    assert "the token is missing" in capsys.readouterr().err


class Typed(list[str]):
    """Lines on a stdin that is no terminal."""

    def isatty(self) -> bool:
        """It is a pipe."""
        return False

    def readline(self) -> str:
        """The next of them."""
        return self.pop(0) if self else ""
