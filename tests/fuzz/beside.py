"""Load and judge what lies beside dumps, spoilt: stacks, logs, traces, reports, cores, archives.

    python tests/fuzz/beside.py --count 100000

Real files are cut, their bytes and lines changed, moved and repeated, values of JSON made odd, and
all of it packed into what a case may hold, which is spoilt again. Whatever it is, loading and
judging end in a case with notes or in one of our own errors, within `SECONDS` for each file, and
with no more memory than `TIMES` what was given and `SPARE_KIB`. An input is made from its number
alone, so that any can be made again: `--only NUMBER`.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import json
import lzma
import os
import random
import resource
import shutil
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from unhang import analysis
from unhang.errors import UnhangError
from unhang.ingest import load

ROOT = Path(__file__).parents[2]
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - one of our own in it
"""Where inputs are written: on a disk, that takes a quarter of the time."""
SECONDS = 5.0
TIMES, SPARE_KIB = 40, 300 << 10
BATCH = 12
LARGEST = 40_000
ODD = (0, -1, 2**31, 2**63, 10**400, 1.5, float("nan"), True, None, "", "\u202e", "x" * 700, [], {})
LINES = (
    b"", b"\x00", b"\xff\xfe", b"\x1b[31m", b"[rank9999999999999]: x", b"Process 7: x",
    b"Thread 0x7f (most recent call first):", b'  File "a.py", line 99999999999999999999 in f',
    b"#0  0x0 in ?? ()", b"NCCL INFO comm 0x1 rank 99999999999 nranks -1", b"{", b'{"schema": 1}',
    b"# unhang trace 1 rank=-1 pid=x ppid=1 turn=0", b"5 1 +999999999999999999999 a:1 f",
    b"Traceback (most recent call last):", b"(((((((((((" * 40, "\u202e\u2066\u200b".encode(),
)  # fmt: skip

PY_SPY = b"""Process 7: python train.py
Python v3.11.4 (/usr/bin/python3.11)

Thread 7 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    step (train.py:12)
"""
TRACE = b"# unhang trace 1 rank=9 pid=99 ppid=1 turn=0\n5 1 +1 train.py:3 step\n6 1 -1\n"
STRACE = b"7 1767225600.000001 poll([{fd=3, events=POLLIN}], 1, -1 <unfinished ...>\n"
VIZ = {"traceEvents": [{"name": "f (a.py:1)", "ph": "X", "ts": 1.5, "dur": 2, "pid": 7, "tid": 7}]}
REPORT = {"schema": "unhang.report/1", "status": "healthy", "summary": "well", "findings": []}
PART = {"run": "r", "host": "n", "world_size": 4, "ranks": [{"rank": 0, "host": "h", "pid": 7}]}
RAS = {
    "schema": "1",
    "job": {"communicators": [{"hash": "0x1", "size": 4, "ranks": [{"rank": 0}]}]},
}


class Seed(NamedTuple):
    """A file of a case, before it is spoilt."""

    folder: str
    name: str
    data: bytes


def seeds() -> list[Seed]:
    """Small files of every sort, real ones where there are."""
    made = [
        Seed("stacks", "rank9.txt", PY_SPY),
        Seed("traces", "calls-9-99.0", TRACE),
        Seed("traces", "strace.7", STRACE),
        *(
            Seed(folder, name, json.dumps(value).encode())
            for folder, name, value in (
                ("traces", "result.json", VIZ),
                ("reports", "stacks-20250101T000000Z.json", REPORT),
                ("parts", "n9.json", PART),
                ("ras", "answer-9.json", RAS),
                ("env", "n9.json", PART),
                (".", "manifest.json", {"schema": "unhang.case/1", "world_size": 4}),
                (".", "report.json", REPORT),
            )
        ),
    ]
    folders = {"logs": "logs", "stacks": "stacks", "cores": "cores", "nvrx": "logs"}
    for source, folder in folders.items():
        paths = sorted((ROOT / "tests" / "data" / source).rglob("*"))
        made += [
            Seed(folder, f"rank9{path.suffix or '.txt'}", path.read_bytes())
            for path in paths
            if path.is_file() and path.stat().st_size < LARGEST
        ]
    dumps = sorted((ROOT / "examples").glob("*/dumps/*"))
    made += [Seed("dumps", path.name, path.read_bytes()) for path in dumps if path.is_file()][:20]
    return made


def lines_changed(rng: random.Random, data: bytes) -> bytes:
    """Lines replaced, moved, doubled and glued."""
    lines = data.split(b"\n")
    for _ in range(rng.choice((1, 2, 5))):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        way = rng.randrange(4)
        if way == 0:
            lines[at] = rng.choice(LINES)
        elif way == 1:
            lines[at], lines[other] = lines[other], lines[at]
        elif way == 2:
            lines[at:at] = [lines[other]] * rng.choice((1, 3, 200))
        else:
            lines[at] += rng.choice(LINES) + lines[other]
    return b"\n".join(lines)


def bytes_changed(rng: random.Random, data: bytes) -> bytes:
    """Bytes changed, added and taken away; or the end is missing."""
    raw = bytearray(data)
    for _ in range(rng.choice((1, 2, 6))):
        at = rng.randrange(len(raw) + 1)
        raw[at : at + rng.choice((0, 1, 4))] = rng.randbytes(rng.randrange(4))
    return bytes(raw[: rng.randrange(len(raw) + 1)] if rng.random() < 0.2 else raw)


def values_changed(rng: random.Random, data: bytes) -> bytes:
    """Values of JSON replaced by odd ones; other bytes as they are."""
    try:
        top: Any = json.loads(data)
    except ValueError:
        return data
    places: list[tuple[Any, Any]] = []
    waiting = [top]
    while waiting:
        here = waiting.pop()
        keys: Any = here if isinstance(here, dict) else ()
        if isinstance(here, list):
            keys = range(len(here))
        places += [(here, key) for key in keys]
        waiting += [here[key] for key in keys]
    for container, key in rng.sample(places, min(len(places), rng.choice((1, 2, 4)))):
        container[key] = rng.choice(ODD)
    return json.dumps(top).encode()


def squeezed(data: bytes) -> bytes:
    """By gzip, without the time, so that an input is the same again."""
    return gzip.compress(data, 1, mtime=0)


def tarred(seed: Seed) -> bytes:
    """Packs a file into a tar."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as out:
        info = tarfile.TarInfo(f"case/{seed.folder}/{seed.name}")
        info.size = len(seed.data)
        out.addfile(info, io.BytesIO(seed.data))
    return raw.getvalue()


def zipped(seed: Seed) -> bytes:
    """Packs a file into a zip."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr(zipfile.ZipInfo(f"{seed.folder}/{seed.name}"), seed.data, zipfile.ZIP_DEFLATED)
    return raw.getvalue()


PACKED: dict[str, Callable[[Seed], bytes]] = {
    ".gz": lambda seed: squeezed(seed.data),
    ".bz2": lambda seed: bz2.compress(seed.data, 1),
    ".xz": lambda seed: lzma.compress(seed.data, preset=0),
    ".tar": tarred,
    ".tar.gz": lambda seed: squeezed(tarred(seed)),
    ".zip": zipped,
}


def packers() -> dict[str, Callable[[Seed], bytes]]:
    """Those above, and zstd where it is installed."""
    try:
        import zstandard
    except ImportError:
        return PACKED
    return {**PACKED, ".zst": lambda seed: zstandard.ZstdCompressor(1).compress(seed.data)}


class Maker:
    """Makes inputs from their numbers."""

    def __init__(self) -> None:
        self.seeds, self.packers = seeds(), packers()

    def make(self, number: int) -> Seed:
        """The input of a number."""
        rng = random.Random(number)  # noqa: S311 - no secret
        seed = rng.choice(self.seeds)
        changes = (lines_changed, bytes_changed, values_changed)
        for _ in range(rng.choice((0, 1, 1, 2))):
            seed = seed._replace(data=rng.choice(changes)(rng, seed.data))
        if rng.random() < 0.3:
            suffix = rng.choice(list(self.packers))
            data = self.packers[suffix](seed)
            for _ in range(rng.choice((0, 1, 1))):
                data = bytes_changed(rng, data)
            seed = Seed(seed.folder, seed.name + suffix, data)
        return seed


def lay(folder: Path, inputs: list[Seed], first: int) -> None:
    """Write inputs into a fresh case, each under a name of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    for number, (below, name, data) in enumerate(inputs, first):
        path = folder / below / (name if below == "." else f"{number}-{name}")
        if name.startswith("rank9"):
            path = path.with_name(f"rank{number % 97}{name[5:]}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def fails(folder: Path, inputs: list[Seed], first: int) -> str:
    """Load and judge a case of inputs; what is wrong with that, or ""."""
    lay(folder, inputs, first)
    start = time.thread_time()
    try:
        analysis.diagnose(load([folder]))
    except UnhangError:
        pass
    except Exception:  # noqa: BLE001 - that is what is looked for
        return traceback.format_exc()
    took = time.thread_time() - start
    return f"took {took:.1f} s of CPU" if took > SECONDS * len(inputs) else ""


def wrong(maker: Maker, folder: Path, first: int, count: int) -> Iterator[tuple[int, str]]:
    """What is wrong with inputs: with one alone, or with the first of several together."""
    inputs = [maker.make(number) for number in range(first, first + count)]
    if not (together := fails(folder, inputs, first)):
        return
    alone = [(first + at, fails(folder, [one], first + at)) for at, one in enumerate(inputs)]
    found = [(number, why) for number, why in alone if why]
    yield from found or [(first, f"in {count} together: {together}")]


def run(first: int, count: int) -> int:
    """Run all inputs; returns how many are wrong."""
    maker, tally, said = Maker(), Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=IN_MEMORY) as name:
        for start in range(first, first + count, BATCH):
            size = min(BATCH, first + count - start)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for number, why in wrong(maker, Path(name, "case"), start, size):
                tally["wrong"] += 1
                print(f"WRONG {number} {maker.make(number)[:2]}: {why}", flush=True)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            if grown > SPARE_KIB + TIMES * BATCH * LARGEST // 1024:
                tally["wrong"] += 1
                print(f"WRONG {start}: memory grew by {grown} KiB in {size} inputs", flush=True)
            tally["inputs"] += size
            if time.monotonic() - said > 20:
                said = time.monotonic()
                print(dict(tally), flush=True)
    print("done:", {"wrong": 0, **tally})
    return tally["wrong"]


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", type=int, help="write one input to stdout")
    args = parser.parse_args()
    if args.only is None:
        return int(bool(run(args.first, args.count)))
    seed = Maker().make(args.only)
    print(seed.folder, seed.name, file=sys.stderr)
    sys.stdout.buffer.write(seed.data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
