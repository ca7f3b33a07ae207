"""Hold the two decoders of dumps against each other, on dumps that were spoilt and made to harm.

    python tests/fuzz/decoders.py --count 1000000 --workers 2

Real dumps and generated ones are cut, their tokens changed, moved and swapped, frames, memo
indices and lengths made to lie; JSON is spoilt by its characters. Each input is read by the Python
reader and, with others, by the compiled one. What the compiled decoder reads, the Python reader has
to read the same, note by note;
nothing may crash, take longer than `SECONDS` or more than `TIMES` its size and `SPARE_KIB`.
An input is made from its number alone, so that any can be made again: `--only NUMBER`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pickle
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unhang.ingest.columns.decoded import Decoded
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.discover.sources import Source
from unhang.ingest.native.library import Library, found
from unhang.ingest.native.loading import NativeReader
from unhang.ingest.pickles.opcodes import FIXED_WIDTH, STRING_WIDTH, name_of
from unhang.ingest.reading import Reader

ROOT = Path(__file__).parents[2]
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - one of our own in it
"""Where inputs are written: on a disk, that takes a quarter of the time."""
BUILT = "UNHANG_FUZZ_LIBRARY"
"""A decoder that was built with checks (`native.py`)."""
SECONDS = 5.0
TIMES = 20
SPARE_KIB = 200 << 10
BATCH = 250
LARGEST_SEED = 60_000
SMALL = 6_000
KEYS = (
    "entries", "version", "pg_config", "pg_status", "unhang", "ranks", "name", "record_id",
    "collective_seq_id", "seq_id", "process_group", "state", "frames", "input_sizes", "retired",
    "is_p2p", "line", "hccl_comm_state", "after_record_id", "error", "nccl_version", "rank",
)  # fmt: skip
WORDS = (
    "",
    "scheduled",
    "completed",
    "[0, 1]",
    "default_pg",
    "nccl:send 0->1",
    "x" * 5000,
    "\ud800",
)
NUMBERS = (0, 1, -1, 255, 2**31, 2**63 - 1, -(2**63), 2**64, 10**30, 1.5, float("nan"))
CODES = sorted(set(FIXED_WIDTH) | set(STRING_WIDTH))
INDICES = (0, 1, 5, 300, 1 << 16, (1 << 20) - 1, 1 << 20, 1 << 31, (1 << 32) - 1)
LENGTHS = (0, 1, 3, 9, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 64) - 1)
MARKS = (
    b"", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"0", b"-", b"1.", b"1e9",
    b"1E-2", b".5", b"01", b"-0", b"99999999999999999999", b"NaN", b"-Infinity", b"null", b"true",
    b'"\\u00e9"', b'"\\ud83d\\ude00"', b'"\\ud800"', b'"\\/\\b"', b"\xff", b"\xc3\xa9", b"\x00",
    b'"entries":[],', b'"record_id":7,', b"\xef\xbb\xbf", b"\xed\xa0\x80",
)  # fmt: skip
PIECES = (
    b"}(", b"](", b"}", b"]", b"(t", b")", b"\x94", b"e", b"u", b"u.", b"eu.", b"h\x00h\x00\x86",
    b"cos\nsystem\n", b"\x8c\x02os\x8c\x06system\x93", b"R", b"Pid\n", b"K\x00Q", b"0", b"2",
    b")" + b"\x85" * 40, b"]" * 40, b"](" * 70, b"\x80\x05", b"\x82\x01", b"\x8c\x02\xff\xfe",
)  # fmt: skip


def entry(number: int) -> dict[str, Any]:
    """One entry of torch 2.13."""
    return {
        "frames": [{"name": f"f{i}", "filename": "a.py", "line": i} for i in range(number % 3)],
        "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"),
        "thread_name": "python", "thread_id": "1", "collective_seq_id": number + 1, "p2p_seq_id": 0,
        "op_id": number, "profiling_name": "nccl:all_reduce", "time_created_ns": 10**18 + number,
        "input_sizes": [[3, 4]], "input_dtypes": ["Float"], "output_sizes": [[3, 4]],
        "output_dtypes": ["Float"], "state": "scheduled", "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None, "retired": False, "timeout_ms": 600000,
        "is_p2p": False,
    }  # fmt: skip


def dump(entries: int) -> dict[str, Any]:
    """A small dump."""
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
        "pg_status": {"0": {"last_enqueued_collective": 3, "last_completed_collective": 1}},
        "entries": [entry(i) for i in range(entries)],
    }


def real_dumps() -> list[bytes]:
    """The pickles that lie in examples and test data."""
    paths = sorted({*(ROOT / "examples").rglob("*"), *(ROOT / "tests" / "data").rglob("*")})
    found = [p.read_bytes() for p in paths if p.is_file() and p.stat().st_size < LARGEST_SEED]
    return [data for data in found if data[:1] == b"\x80"]


def seeds() -> list[bytes]:
    """What is spoilt: real dumps, and generated ones of every protocol."""
    made = [pickle.dumps(dump(n), protocol) for n in (0, 1, 2, 5) for protocol in (2, 3, 4, 5)]
    made += [pickle.dumps(dump(24), protocol) for protocol in (2, 3)]  # many entries that are alike
    ours = {**dump(2), "unhang": {"rank": 1, "world_size": 4, "entries": [entry(7)]}}
    return [*real_dumps(), *made, *(pickle.dumps(ours, protocol) for protocol in (2, 4))]


class Maker:
    """Makes inputs from their numbers."""

    def __init__(self) -> None:
        self.seeds = seeds()
        self.small = [data for data in self.seeds if len(data) < SMALL]
        self.split: dict[bytes, list[bytes]] = {}

    def make(self, number: int) -> bytes:
        """The input of a number."""
        rng = random.Random(number)  # noqa: S311 - no secret
        if rng.random() < 0.15:
            return self.json(rng)
        kind = rng.random()
        if kind < 0.2:
            data = self.odd_values(rng)
        else:
            data = rng.choice(self.small if rng.random() < 0.9 else self.seeds)
        if kind > 0.15:
            data = self.bytes_changed(rng, data) if kind > 0.8 else self.tokens_changed(rng, data)
        if rng.random() < 0.15:
            data = data[: rng.randrange(len(data) + 1)]
        if rng.random() < 0.05:
            data = in_frames(rng, data)
        return data if rng.random() < 0.03 else b"\x80\x04"[: len(data)] + data[2:]

    def json(self, rng: random.Random) -> bytes:
        """A dump in JSON, with anything under any key, and characters changed."""
        top = self.odd_dump(rng)
        ascii_only, indent = rng.random() < 0.5, rng.choice((None, 1))
        made = json.dumps(top, skipkeys=True, ensure_ascii=ascii_only, indent=indent)
        data = bytearray(made.encode("utf-8", "surrogatepass"))
        for _ in range(rng.choice((0, 0, 1, 2, 4))):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(3)] = rng.choice(MARKS)
        return bytes(data[: rng.randrange(len(data)) if rng.random() < 0.1 else None])

    def odd_values(self, rng: random.Random) -> bytes:
        """A pickled dump with anything under any key."""
        try:
            return pickle.dumps(self.odd_dump(rng), rng.choice((2, 2, 3, 4, 5)))
        except (ValueError, UnicodeError):
            return self.small[0]

    def odd_dump(self, rng: random.Random) -> dict[str, Any]:
        """A dump with anything under any key."""
        top = dump(rng.choice((0, 1, 2, 3, 3, 20)))
        for _ in range(rng.randrange(1, 4)):
            target = (
                rng.choice([top, *top["entries"]]) if isinstance(top.get("entries"), list) else top
            )
            if not isinstance(target, dict):
                continue
            target[rng.choice((*target, *KEYS))] = value(rng)
            if rng.random() < 0.2:
                target.pop(rng.choice(list(target)))
        return top

    def tokens_changed(self, rng: random.Random, data: bytes) -> bytes:
        """Tokens replaced, added, taken away, repeated and swapped."""
        if data not in self.split and len(self.split) < 400:
            self.split[data] = tokens(data)
        parts = list(self.split.get(data) or tokens(data))
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            at, other = rng.randrange(len(parts)), rng.randrange(len(parts))
            way = rng.randrange(7)
            if way == 0:
                parts[at] = token(rng)
            elif way == 1:
                parts.insert(at, token(rng))
            elif way == 2 and len(parts) > 1:
                del parts[at]
            elif way == 3:
                parts.insert(at, parts[other])
            elif way == 4:
                parts[at], parts[other] = parts[other], parts[at]
            elif way == 5:
                parts[at:at] = parts[other : other + rng.randrange(1, 40)]
            else:
                parts[at] = parts[at][:1] + rng.randbytes(len(parts[at]) - 1)
        return b"".join(parts)

    def bytes_changed(self, rng: random.Random, data: bytes) -> bytes:
        """Bytes and bits changed, added and taken away."""
        spoilt = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 4, 8))):
            at, way = rng.randrange(len(spoilt)), rng.randrange(5)
            if way == 0:
                spoilt[at] = rng.randrange(256)
            elif way == 1:
                spoilt[at] ^= 1 << rng.randrange(8)
            elif way == 2:
                spoilt[at:at] = rng.randbytes(rng.randrange(1, 5))
            elif way == 3 and len(spoilt) > 16:
                del spoilt[at : at + rng.randrange(1, 9)]
            else:
                spoilt[at] = rng.choice(CODES)
            if not spoilt:
                return data
        return bytes(spoilt)


def tokens(data: bytes) -> list[bytes]:
    """A pickle taken apart."""
    found, at = [], 0
    while at < len(data):
        code, end = data[at], at + 1
        if code in STRING_WIDTH:
            end += STRING_WIDTH[code] + int.from_bytes(
                data[end : end + STRING_WIDTH[code]], "little"
            )
        else:
            end += FIXED_WIDTH.get(code, 0)
        found.append(data[at:end])
        at = end
    return found


def token(rng: random.Random) -> bytes:
    """Any token, honest or not."""
    way = rng.randrange(5)
    if way == 0:
        return rng.choice(PIECES)
    if way == 1:
        word = rng.choice((*KEYS, *WORDS)).encode("utf-8", "surrogatepass")
        return b"X" + len(word).to_bytes(4, "little") + word
    if way == 2:
        return rng.choice(b"jr").to_bytes(1, "little") + rng.choice(INDICES).to_bytes(4, "little")
    code = rng.choice(CODES)
    if code in STRING_WIDTH:
        width = STRING_WIDTH[code]
        length = rng.choice(LENGTHS) % (1 << 8 * width)
        return bytes((code,)) + length.to_bytes(width, "little") + rng.randbytes(rng.randrange(9))
    small = rng.random() < 0.5
    operand = rng.randrange(40).to_bytes(8, "little") if small else rng.randbytes(8)
    return bytes((code,)) + operand[: FIXED_WIDTH[code]]


def value(rng: random.Random, depth: int = 0) -> Any:  # noqa: ANN401 - anything
    """Any value."""
    way = rng.randrange(9 if depth < 4 else 4)
    if way < 2:
        return rng.choice(NUMBERS)
    if way < 4:
        return rng.choice((*WORDS, True, False, None))
    if way < 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if way == 6:
        return tuple(value(rng, depth + 1) for _ in range(rng.randrange(4)))
    if way == 7:
        return {rng.choice(KEYS): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return rng.choice(([[3, 4]], ["Float"], {1: 2}, {(1, 2): 3}, {None: 1}, [entry(3)]))


def in_frames(rng: random.Random, data: bytes) -> bytes:
    """With a frame put somewhere that says anything."""
    at = rng.randrange(2, max(3, len(data)))
    size = rng.choice((*LENGTHS, rng.randrange(len(data) + 1)))
    return data[:at] + b"\x95" + size.to_bytes(8, "little") + data[at:]


def meaning(decoded: Decoded, shared: Dictionaries) -> str:
    """All that a decoder makes of a file, without its numbering."""
    lists = {
        "name": list(shared.names), "thread": [*shared.threads, ""], "pg": [*shared.groups, ""],
        "signature": list(shared.signatures), "stack": [*shared.stacks, ()],
    }  # fmt: skip
    frames = list(shared.frames)
    columns: dict[str, Any] = {}
    for key in decoded.table.columns if decoded.table and decoded.count else ():
        column = decoded.column(key).tolist()
        columns[key] = [lists[key][number] for number in column] if key in lists else column
    columns["stack"] = [[frames[i] for i in ids] for ids in columns.get("stack", ())]
    declared = [
        (d.name, d.description, shared.memberships.lists[d.members]) for d in decoded.declared
    ]
    used = [lists["pg"][group] for group in decoded.groups_used()]
    return repr((
        used, sorted(decoded.groups_by_local_id()),
        decoded.version, decoded.comm_lib_version, decoded.reported_by, decoded.origin, declared,
        decoded.statuses, decoded.truncated, decoded.count, decoded.remarks, columns,
    ))  # fmt: skip


def library(built: str | None = os.environ.get(BUILT)) -> Library:
    """The compiled decoder: the package's, or the one that a variable names."""
    library = Library(Path(built)) if built else found()
    if isinstance(library, str):
        raise SystemExit(f"{library}: python native/build.py")
    return library


def compare(numbers: list[int], inputs: list[bytes], folder: Path) -> Iterator[tuple[int, str]]:
    """Read inputs on both paths; yields what is wrong, by number. The last word is a count."""
    sources = []
    for index, data in enumerate(inputs):
        path = folder / f"nccl_trace_rank_{index}"
        path.write_bytes(data)
        sources.append(Source(str(path), path.name, len(data), 1))
    shared = Dictionaries()
    native = NativeReader(shared, library(), threads=1)
    fast = [one for batch in native.read(sources) for one in batch]
    for note in native.notes:
        yield numbers[0], f"in the {len(numbers)} inputs from here on: {note.text}"
    read = 0
    for number, data, (source, decoded) in zip(numbers, inputs, fast, strict=True):
        own = Dictionaries()
        start = time.thread_time()
        try:
            [*loaded] = Reader(own).read(source)
        except Exception:  # noqa: BLE001 - that is what is looked for
            yield number, traceback.format_exc()
            continue
        if (took := time.thread_time() - start) > SECONDS:
            yield number, f"took {took:.1f} s of CPU for {len(data)} bytes"
        if decoded is None:
            continue
        read += 1
        general = loaded[0].decoded if loaded else None
        if general is None:
            yield number, f"only the compiled decoder reads it: {[item.problem for item in loaded]}"
        elif (one := meaning(decoded, shared)) != (other := meaning(general, own)):
            at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
            yield (
                number,
                f"differ:\n{one[max(0, at - 90) : at + 90]}\n{other[max(0, at - 90) : at + 90]}",
            )
    yield -1, str(read)


def orphaned(results: Any) -> None:  # noqa: ANN401 - of multiprocessing
    """End without what nobody is left to read, as a queue waits for its reader."""
    results.cancel_join_thread()


def work(first: int, last: int, at: Any, results: Any) -> None:  # noqa: ANN401 - of multiprocessing
    """A worker: compare the inputs of a range; `at` says where it is, should it die."""
    maker, parent = Maker(), os.getppid()
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=IN_MEMORY) as name:
        for start in range(first, last, BATCH):
            if os.getppid() != parent:
                orphaned(results)
                return
            at.value = start
            numbers = list(range(start, min(start + BATCH, last)))
            inputs = [maker.make(number) for number in numbers]
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            results.put((start, len(numbers), list(compare(numbers, inputs, Path(name)))))
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            if grown > SPARE_KIB + TIMES * max(map(len, inputs)) // 1024:
                results.put((start, 0, [(start, f"memory grew by {grown} KiB")]))
    results.put(None)


def run(first: int, count: int, workers: int) -> int:  # noqa: C901 - one loop
    """Run all inputs; returns how many are wrong."""
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()
    step = -(-count // workers)
    running = []
    for index in range(workers):
        at = context.Value("q", -1)
        low = first + index * step
        process = context.Process(
            target=work, args=(low, min(low + step, first + count), at, results), daemon=True
        )
        process.start()
        running.append((process, at))
    tally: Counter[str] = Counter()
    said = time.monotonic()
    open_ends = workers
    while open_ends:
        try:
            message = results.get(timeout=30)
        except Exception:  # noqa: BLE001 - the queue's Empty
            for process, at in running:
                if process.exitcode:
                    print(f"CRASH: {process.exitcode} in the {BATCH} inputs from {at.value}")
                    return tally["wrong"] + 1
            continue
        if message is None:
            open_ends -= 1
            continue
        _, size, wrong = message
        tally["inputs"] += size
        for number, text in wrong:
            if number < 0:
                tally["read by both"] += int(text)
                continue
            tally["wrong"] += 1
            if tally["wrong"] <= 40:
                print(f"WRONG {number}: {text}", flush=True)
        if time.monotonic() - said > 20:
            said = time.monotonic()
            print(dict(tally), flush=True)
    print("done:", {"wrong": 0, **tally})
    return tally["wrong"]


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", type=int, help="show one input")
    args = parser.parse_args()
    if args.only is not None:
        data = Maker().make(args.only)
        print(data, *(f"{name_of(part[0])} {part[1:]!r}" for part in tokens(data)), sep="\n")
        with tempfile.TemporaryDirectory() as name:
            print(*compare([args.only], [data], Path(name)), sep="\n")
        return 0
    return 1 if run(args.first, args.count, args.workers) else 0


if __name__ == "__main__":
    sys.exit(main())
