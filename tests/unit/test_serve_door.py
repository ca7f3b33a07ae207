"""Whatever the headers of a request are, the door lets it through or refuses it in a sentence."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from unhang.serve.door import Door

SIGNS = b'[]:/@;=\\"%T.1a \xff\x00'
OURS = [(b"host", b"127.0.0.1:8770"), (b"authorization", b"Bearer T")]


def status(headers: list[tuple[bytes, bytes]], method: str = "GET", path: str = "/") -> int:
    """The status of the answer to a request."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def app(_scope: Any, _receive: Any, answer: Any) -> None:  # noqa: ANN401 - ASGI
        await answer({"type": "http.response.start", "status": 200, "headers": []})

    scope = {"type": "http", "headers": headers, "method": method, "path": path}
    asyncio.run(Door(app, "T")(scope, None, send))
    return int(sent[0]["status"])


def test_the_owner_comes_in() -> None:
    """From the address that is printed, with the token."""
    assert status(OURS) == 200
    assert status([(b"host", b"[::1]:8770"), OURS[1]]) == 200


@pytest.mark.parametrize(
    "host",
    [b"[::1", b"[", b"]", b"a:b:c", b"evil.example.org", b"", b"\xff", b"127.0.0.1@evil", b"//"],
)
def test_another_name_is_refused(host: bytes) -> None:
    """Also one that no URL can have."""
    assert status([(b"host", host), OURS[1]]) == 403


@pytest.mark.parametrize("origin", [b"http://[", b"null", b"http://evil.example.org", b"\xff"])
def test_another_origin_is_refused(origin: bytes) -> None:
    """Whoever asks for work."""
    assert status([*OURS, (b"origin", origin)], "POST") == 403


def test_any_bytes_are_answered() -> None:
    """No header ends in an exception, and none but the token opens."""
    dice = random.Random(31)  # noqa: S311 - no secret
    names = (b"host", b"origin", b"cookie", b"authorization", b"x")
    for _ in range(2_000):
        made = [
            (name, bytes(dice.choice(SIGNS) for _ in range(dice.randrange(9))))
            for name in names
            if name != b"host" or dice.random() < 0.5
        ]
        known = [] if any(name == b"host" for name, _ in made) else OURS[:1]
        given = dict(made)[b"authorization"].removeprefix(b"Bearer ")
        assert status([*known, *made]) == 403 or given == b"T"
