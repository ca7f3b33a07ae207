"""Which errors are what one gets when a peer has gone."""

from __future__ import annotations

import pytest

from unhang.logs.following import follows
from unhang.model import Frame

TORCH = (Frame("wait", "/venv/site-packages/torch/distributed/c10d_logger.py", 83),)
OWN = (Frame("emit", "/home/user/train.py", 26), *TORCH)
RECORDED = (Frame("wait", "/venv/unhang/record/calls/wrap.py", 7), *TORCH)
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:388."
REFUSED = "RuntimeError: [enforce fail at gloo/alltoallv.cc:138] in[me] == out[me]."


@pytest.mark.parametrize(
    ("error", "frames", "expected"),
    [
        (CLOSED, TORCH, True),
        (CLOSED, (), True),
        ("RuntimeError: an error of communication", RECORDED, True),
        (REFUSED, TORCH, False),  # Gloo itself refuses the call
        ("BrokenPipeError: [Errno 32] Broken pipe", TORCH, True),
        ("BrokenPipeError: [Errno 32] Broken pipe", OWN, False),  # a pipe of the program
        ("ConnectionResetError: Connection reset by peer", OWN, False),
        ("BrokenPipeError: [Errno 32] Broken pipe", (), True),
        ("ValueError: bad batch", TORCH, False),
    ],
)
def test_who_lost_a_peer_follows(
    error: str,
    frames: tuple[Frame, ...],
    expected: bool,  # noqa: FBT001 - a table of expectations
) -> None:
    """By words, and by where it was raised: programs have connections of their own."""
    assert follows(error, frames) is expected
