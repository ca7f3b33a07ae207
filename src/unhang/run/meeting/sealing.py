"""Bytes between two supervisors: who proves what to whom, and messages that cannot be forged.

Each side proves first that it has the token of this job, with a number that the other side has just
drawn; the token itself never travels. From then on each message carries a code made with a key of
this connection alone, its direction and its number in it: none can be added, changed, left out,
repeated, or sent back. Nothing is encrypted, as nothing of the job's own traffic is. All of it is
pure: bytes in, messages out; sizes are bounded before anything is kept.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_HELLO: Final = b"unhang-meet/1\n"
_NONCE: Final = 32
_PROOF: Final = 32
_CODE: Final = 16
_HEAD: Final = 4 + _CODE
CHUNK: Final = 256 << 10
"""So much of a file in one message, at most."""
MOST: Final = CHUNK + 4096
"""No message is longer."""


class WireError(Exception):
    """The other side is none of this job's, or has sent what none of it sends."""


class MessageKind:
    """What a message is: its first byte."""

    BEAT: Final = b"B"
    WORDS: Final = b"W"
    FILE: Final = b"F"


def _proof(token: bytes, who: bytes, job: str, nonces: bytes) -> bytes:
    words = job.encode("utf-8", "replace")
    return hmac.digest(token, b"|".join((_HELLO, who, words, nonces)), "sha256")


@dataclass(slots=True)
class Sealed:
    """One end of a connection on which both sides have proved themselves.

    Attributes:
        key: Of this connection alone.
        out, into: What tells the directions apart.
    """

    key: bytes
    out: bytes
    into: bytes
    _sent: int = 0
    _taken: int = 0
    _buffer: bytearray = field(default_factory=bytearray)

    def seal(self, kind: bytes, body: bytes) -> bytes:
        """A message as it travels.

        Raises:
            WireError: It is too long.
        """
        payload = kind + body
        if len(payload) > MOST:
            raise WireError(f"a message of {len(payload)} bytes is too long")
        code = self._code(self.out, self._sent, payload)
        self._sent += 1
        return len(payload).to_bytes(4, "big") + code + payload

    def take(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """What has arrived, as kind and body; the rest is kept for the next time.

        Raises:
            WireError: It was not sealed on the other side, or is too long.
        """
        self._buffer += data
        while len(self._buffer) >= _HEAD:
            length = int.from_bytes(self._buffer[:4], "big")
            if not 0 < length <= MOST:
                raise WireError("a message has a length that none has")
            if len(self._buffer) < _HEAD + length:
                return
            code = bytes(self._buffer[4:_HEAD])
            payload = bytes(self._buffer[_HEAD : _HEAD + length])
            del self._buffer[: _HEAD + length]
            if not hmac.compare_digest(code, self._code(self.into, self._taken, payload)):
                raise WireError("a message was not sealed by a supervisor of this job")
            self._taken += 1
            yield payload[:1], payload[1:]

    def _code(self, way: bytes, number: int, payload: bytes) -> bytes:
        return hmac.digest(self.key, way + number.to_bytes(8, "big") + payload, "sha256")[:_CODE]


@dataclass(slots=True)
class Host:
    """Who is connected to: draws a number, wants the proof, and gives its own."""

    token: bytes
    job: str
    _nonce: bytes = field(default_factory=lambda: secrets.token_bytes(_NONCE))
    _buffer: bytearray = field(default_factory=bytearray)

    @property
    def greeting(self) -> bytes:
        """What is sent first."""
        return _HELLO + self._nonce

    def take(self, data: bytes) -> tuple[bytes, Sealed, bytes] | None:
        """The answer, the connection and what came behind; None while more must come.

        Raises:
            WireError: It is no supervisor of this job.
        """
        self._buffer += data
        size = len(_HELLO) + _NONCE + _PROOF
        head = bytes(self._buffer[: len(_HELLO)])
        if not _HELLO.startswith(head):
            raise WireError("another program is at the other end")
        if len(self._buffer) < size:
            return None
        theirs = bytes(self._buffer[len(_HELLO) : size - _PROOF])
        nonces = self._nonce + theirs
        shown = bytes(self._buffer[size - _PROOF : size])
        if not hmac.compare_digest(shown, _proof(self.token, b"guest", self.job, nonces)):
            raise WireError("it has another token, or another job")
        key = _proof(self.token, b"key", self.job, nonces)
        answer = _proof(self.token, b"host", self.job, nonces)
        return answer, Sealed(key, b">", b"<"), bytes(self._buffer[size:])


@dataclass(slots=True)
class Guest:
    """Who connects: waits for the number, proves itself, and wants the other's proof."""

    token: bytes
    job: str
    _nonce: bytes = field(default_factory=lambda: secrets.token_bytes(_NONCE))
    _theirs: bytes = b""
    _buffer: bytearray = field(default_factory=bytearray)

    def take(self, data: bytes) -> tuple[bytes, Sealed | None, bytes]:
        """What to send now, the connection once it is proved, and what came behind.

        Raises:
            WireError: It is no supervisor of this job.
        """
        self._buffer += data
        size = len(_HELLO) + _NONCE
        if not self._theirs:
            if not _HELLO.startswith(bytes(self._buffer[: len(_HELLO)])):
                raise WireError("another program listens there")
            if len(self._buffer) < size:
                return b"", None, b""
            self._theirs = bytes(self._buffer[len(_HELLO) : size])
            del self._buffer[:size]
            nonces = self._theirs + self._nonce
            return _HELLO + self._nonce + _proof(self.token, b"guest", self.job, nonces), None, b""
        if len(self._buffer) < _PROOF:
            return b"", None, b""
        nonces = self._theirs + self._nonce
        shown = bytes(self._buffer[:_PROOF])
        if not hmac.compare_digest(shown, _proof(self.token, b"host", self.job, nonces)):
            raise WireError("what listens there does not have the token")
        key = _proof(self.token, b"key", self.job, nonces)
        return b"", Sealed(key, b"<", b">"), bytes(self._buffer[_PROOF:])
