"""Write the dumps of a large job that hangs, as torch's NCCL recorder would have written them.

A plain tensor- and data-parallel training: groups of eight neighbours and one of all. One rank
has not called the last all_reduce of all. The point is size: the simulator of `python -m lab` makes
realistic jobs, this one makes big ones fast, in the dialect that `torchfrtrace` reads too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.recorder.layout import dump_of, entry_of, group_config, group_status
from lab.recorder.torchfile import encode_json, encode_pickle

CULPRIT = 3
NODE = 8
CALLS_OF_A_LAYER = 4
STAND_INS = "name of the group", "members of the group"
FIRST_THREAD = 140_000_000_000_000
START_NS = 1_790_000_000_000_000_000
SITES = ("forward", "attention", "mlp", "backward", "reduce_gradients")


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the job is.

    Attributes:
        active_only: The dumps hold unfinished calls only, as on demand.
        places: Where calls are made: as many stacks.
        depth: Frames of a stack.
        as_json: The dumps are JSON.
    """

    ranks: int
    entries: int
    active_only: bool = False
    places: int = 5
    depth: int = 20
    as_json: bool = False


def write_dumps(directory: Path, shape: Shape) -> int:
    """Write one dump a rank into a directory; returns the bytes of all.

    One rank is encoded; the others differ from it by their times, thread and tensor group.
    """
    directory.mkdir(parents=True, exist_ok=True)
    total = 0
    model = _Model.of(encode_pickle(_dump(0, shape, STAND_INS)))
    for rank in range(shape.ranks):
        if shape.as_json or rank == CULPRIT:
            encode = encode_json if shape.as_json else encode_pickle
            data = encode(_dump(rank, shape, _tensor(rank, shape)))
        else:
            data = model.of_rank(rank, shape)
        name = f"nccl_trace_rank_{rank}" + (".json" if shape.as_json else "")
        (directory / name).write_bytes(data)
        total += len(data)
    return total


@dataclass(frozen=True, slots=True)
class _Model:
    """An encoded dump, and where in it each time stands.

    Attributes:
        places: Of the eight bytes of each time.
        values: The times.
    """

    data: bytes
    places: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]

    @classmethod
    def of(cls, data: bytes) -> _Model:
        """Find the times: numbers of eight bytes from the beginning of the job on."""
        found = [(m.end(), int.from_bytes(data[m.end() : m.end() + 8], "little", signed=True))
                 for m in re.finditer(rb"\x8a\x08", data)]  # fmt: skip
        places, values = np.array([pair for pair in found if pair[1] >= START_NS], np.int64).T
        return cls(data, places, values)

    def of_rank(self, rank: int, shape: Shape) -> bytes:
        """The dump of another rank: each time a little later or earlier than the model's."""
        raw = np.frombuffer(self.data, np.uint8).copy()
        shift = np.random.default_rng(rank).integers(-10_000, 10_000, len(self.values))
        raw[self.places[:, None] + np.arange(8)] = (
            (self.values + shift).view(np.uint8).reshape(-1, 8)
        )
        data = raw.tobytes().replace(_thread(0), _thread(rank))
        for stand_in, text in zip(STAND_INS, _tensor(rank, shape), strict=True):
            data = data.replace(_encoded(stand_in), _encoded(text))
        return data


def _tensor(rank: int, shape: Shape) -> tuple[str, str]:
    """Name and members of a rank's tensor group."""
    first = rank - rank % NODE
    return str(rank // NODE + 1), str(list(range(first, min(first + NODE, shape.ranks))))


def _encoded(text: str) -> bytes:
    return b"X" + len(text).to_bytes(4, "little") + text.encode()


def _thread(rank: int) -> bytes:
    return str(FIRST_THREAD + rank).encode()


def _dump(rank: int, shape: Shape, group: tuple[str, str]) -> dict[str, Any]:
    (name, members), whole = group, ("0", "default_pg")
    tensor = (name, "tp")
    entries = list(_entries(rank, shape, (whole, tensor)))
    last = {pg: max(e["collective_seq_id"] for e in entries if e["pg_id"] == pg) for pg in (0, 1)}
    waiting = rank != CULPRIT
    if shape.active_only:
        entries = [entry for entry in entries if entry["state"] != "completed"]
    dump: dict[str, Any] = dump_of(
        entries,
        config={
            "0": group_config(*whole, str(list(range(shape.ranks)))),
            tensor[0]: group_config(*tensor, members),
        },
        status={
            "0": group_status(last[0], last[0], last[0] - waiting),
            "1": group_status(last[1], last[1], last[1]),
        },
        library="2.27.5",
    )
    return dump


def _entries(
    rank: int, shape: Shape, groups: Sequence[tuple[str, str]]
) -> Iterator[dict[str, Any]]:
    stacks = [_stack(place, shape.depth) for place in range(shape.places)]
    rng = random.Random(rank)  # noqa: S311 - times that no other call took, in every run the same
    seqs = [0, 0]
    count = shape.entries - (rank == CULPRIT)
    for index in range(count):
        pg = 0 if index % (CALLS_OF_A_LAYER + 1) == CALLS_OF_A_LAYER else 1
        seqs[pg] += 1
        place = index % shape.places
        sizes = [[16 << place % len(SITES), 1024]]
        done = index < shape.entries - 1
        created = START_NS + index * 1_000_000 + rng.randrange(300_000)
        values = {
            "frames": stacks[place],
            "record_id": index,
            "pg_id": pg,
            "process_group": groups[pg],
            "thread_name": "pt_main_thread",
            "thread_id": _thread(rank).decode(),
            "collective_seq_id": seqs[pg],
            "p2p_seq_id": 0,
            "op_id": seqs[pg],
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": created,
            "input_sizes": sizes,
            "input_dtypes": ["BFloat16"],
            "output_sizes": sizes,
            "output_dtypes": ["BFloat16"],
            "state": "completed" if done else "scheduled",
            "time_discovered_started_ns": created + 20_000 if done else None,
            "time_discovered_completed_ns": created + 400_000 + rng.randrange(300_000)
            if done
            else None,
            "retired": done,
            "timeout_ms": 600_000,
            "is_p2p": False,
        }
        yield entry_of(values)


def _stack(place: int, depth: int) -> list[dict[str, Any]]:
    """A stack, the inner half of which is of this place only."""
    turn, at = divmod(place, len(SITES))
    file, first = f"/home/user/job/{SITES[at]}.py", 40 + 1000 * turn
    inner = [
        {"name": SITES[at], "filename": file, "line": first + own} for own in range(depth // 2)
    ]
    outer = [
        {"name": f"step_{own}", "filename": "/home/user/job/train.py", "line": 100 + own}
        for own in range(depth - len(inner))
    ]
    return inner + outer
