"""Mutated logs for `unhang logs`: a seeded generator, and a run over as many of them as wanted.

    python tests/unit/logs/log_fuzz.py COUNT SEED_FILE...

prints what raised or took too long, with the number that makes the same input again.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from unhang.analysis import diagnose
from unhang.casebuilder import case_of_logs
from unhang.logs.files import find_logs
from unhang.logs.scan import scan_logs
from unhang.report import Report

MOST_SECONDS = 5.0
SLICE = 6_000
SPLICES = (
    *(b"\0", b"\xff\xfe", b"\r", b"\n", b"\x1b[31m", b"\xe2\x80", b"[rank", b"]:", b"exitcode  : "),
    *(b"Traceback (most recent call last):\n", b"what():  ", b"Last error:\n", b'"message": "'),
    *(b"terminated with exception: ", b"[E1120 05:06:30.11 a.cpp:1] ", b"NCCL WARN ", b"(" * 500),
    *(b"step 7 " * 60, b"9" * 400, b"A" * 9_000, b"[[[" * 300, b"CollectiveFingerPrint(" * 40),
)


def mutated(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One log: a piece of a seed, or bytes without sense, changed in some places."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(4_000))
    seed = chance.choice(seeds)
    start = chance.randrange(max(len(seed) - SLICE, 1))
    data = bytearray(seed[start : start + SLICE])
    for _ in range(chance.randrange(1, 12)):
        place = chance.randrange(len(data) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            data[place:place] = chance.choice(SPLICES)
        elif kind == 1:
            del data[place : place + chance.randrange(1, 200)]
        elif kind == 2:
            data[place : place + 8] = chance.randbytes(8)
        elif kind == 3:
            other = chance.choice(seeds)
            begin = chance.randrange(len(other) + 1)
            data[place:place] = other[begin : begin + chance.randrange(400)]
        else:
            end = place + chance.randrange(300)
            data[place:place] = bytes(data[place:end]) * chance.randrange(1, 5)
    return bytes(data)


DONE = "training finished\n"
"""A good end: without one, a log of steps shows no health."""


def judged(path: Path, data: bytes) -> Report:
    """The verdict of these bytes."""
    path.write_bytes(data)
    return diagnose(case_of_logs(scan_logs(find_logs(path))))


def fuzz(seeds: Sequence[bytes], count: int, first: int = 0) -> Iterator[tuple[int, str]]:
    """Judge `count` mutated logs; yields the number and what is wrong of those that failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        for number in range(first, first + count):
            data = mutated(random.Random(number), seeds)  # noqa: S311 - made again by its number
            begin = time.perf_counter()
            try:
                judged(path, data)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
                yield number, repr(error)
            if time.perf_counter() - begin > MOST_SECONDS:
                yield number, "took too long"


if __name__ == "__main__":
    files = [Path(name).read_bytes() for name in sys.argv[2:]]
    bad = list(fuzz(files, int(sys.argv[1])))
    print(*bad, f"{len(bad)} of {sys.argv[1]} failed", sep="\n")
    sys.exit(1 if bad else 0)
