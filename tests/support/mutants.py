"""Files as they come from full disks, broken copies and people who mean harm."""

from __future__ import annotations

import random

__all__ = ["mutants"]

_ODD = (b"\0", b"\n", b"\xff\xfe", b"9" * 40, b"-1", b"(", b"[", b'"', b"0x", b"nan", b"1e999",
        b"\x1b[31m", "\u2028".encode(), "\u0664".encode() * 5, b"[" * 3_000)  # fmt: skip
_ODD_NUMBERS = (0, 1, 1 << 32, (1 << 31) - 1, (1 << 63) - 1, (1 << 64) - 1)


def mutants(data: bytes, count: int, seed: int = 0) -> list[bytes]:
    """The same ones for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, no secret
    return [_mutant(data, rng) for _ in range(count)]


def _mutant(data: bytes, rng: random.Random) -> bytes:
    """Some bytes are changed, lost, repeated or put in; or the end is cut off."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 2, 4, 20))):
        start = rng.randrange(len(made) + 1)
        part = slice(start, start + rng.choice((1, 4, 40, 400)))
        made[part] = rng.choice(
            (
                b"",
                rng.randbytes(len(made[part])),
                bytes(made[part]) * 20,
                rng.choice(_ODD),
                rng.choice(_ODD_NUMBERS).to_bytes(8, "little"),
            )
        )
        if rng.random() < 0.05:
            del made[start:]
    return bytes(made)
