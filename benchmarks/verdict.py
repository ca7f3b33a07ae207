"""From columns to a verdict: full dumps and dumps of unfinished calls, up to 131,072 ranks.

The cases are made as columns, so that only the reasoning is measured. A 3D layout: tensor groups of
8, data-parallel groups, the world; one rank never joins a tensor-parallel call, its group waits for
it, and everybody else waits for that group in a call of the world. Each measurement runs in a
process of its own, whose peak memory holds the columns too.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import numpy as np

from benchmarks.figures import ROOT, Section, show
from unhang.analysis import diagnose
from unhang.case import Calls, Case, Dump, GroupStatus
from unhang.model import Group, OpName, Signature, State

TENSOR = 8
PARTS = 16
SIZES = ((64, 2000), (1024, 2000), (16_384, 2000), (16_384, 0), (131_072, 0))
QUICK = ((64, 2000), (1024, 2000), (16_384, 0))
NAMES = (OpName("nccl:all_reduce", "nccl", "all_reduce"),)
SIGNATURES = (Signature(((4096,),), ((4096,),), ("Float",), ("Float",)),)


def groups_of(ranks: int) -> tuple[Group, ...]:
    """The world, the tensor-parallel groups, the data-parallel groups."""
    tensor = [tuple(range(i, i + TENSOR)) for i in range(0, ranks, TENSOR)]
    stride = max(ranks // PARTS, TENSOR)
    data = [tuple(range(i, ranks, stride)) for i in range(stride)]
    made = [("default_pg", tuple(range(ranks)))]
    made += [("tp", members) for members in tensor] + [("dp", members) for members in data]
    return tuple(Group(str(i), kind, members) for i, (kind, members) in enumerate(made))


def case_of(ranks: int, entries: int) -> Case:
    """A job stuck as the module says; `entries` 0 means dumps of unfinished calls only."""
    groups = groups_of(ranks)
    culprit = ranks // 2 + 3
    first_tensor, first_data = 1, 1 + ranks // TENSOR
    stride = max(ranks // PARTS, TENSOR)
    rank = np.arange(ranks, dtype=np.int64)
    own = np.stack([first_tensor + rank // TENSOR, first_data + rank % stride])
    stuck = rank // TENSOR == culprit // TENSOR
    parts = []
    if entries:
        number = np.arange(entries)
        kind = np.minimum(number % 20, 1)
        parts.append(
            {
                "rank": np.repeat(rank, entries),
                "group": _program(own, kind),
                "seq": np.tile(np.where(kind == 0, number // 20, number - number // 20) + 1, ranks),
                "done": np.ones(ranks * entries, np.bool_),
            }
        )
    waiting = rank[rank != culprit]
    last = entries + 1
    in_tensor = stuck[waiting]
    parts.append(
        {
            "rank": waiting,
            "group": np.where(in_tensor, own[0][waiting], 0),
            "seq": np.where(in_tensor, last, 1),
            "done": np.zeros(len(waiting), np.bool_),
        }
    )
    return _assemble(parts, groups, ranks, entries)


def _program(own: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """Group of every call: mostly the tensor group, now and then the data-parallel one."""
    return own[1 - kind].T.reshape(-1)


def _assemble(
    parts: list[dict[str, np.ndarray]], groups: tuple[Group, ...], ranks: int, entries: int
) -> Case:
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    order = np.argsort(columns["rank"], kind="stable")
    rank, done = columns["rank"][order].astype(np.int32), columns["done"][order]
    n = len(rank)
    starts = np.searchsorted(rank, np.arange(ranks + 1))
    position = np.arange(n) - starts[rank]
    small, zero = np.zeros(n, np.int32), np.zeros(n, np.int64)
    created = 1_700_000_000_000_000_000 + position * 1_000_000
    calls = Calls(
        dump=rank, rank=rank, group=columns["group"][order].astype(np.int32), name=small,
        signature=small, stack=small - 1, thread=small - 1, record_id=position,
        seq=columns["seq"][order], p2p_seq=zero, op_id=zero,
        state=np.where(done, State.COMPLETED, State.SCHEDULED).astype(np.int8),
        origin=np.zeros(n, np.int8), retired=done, is_p2p=np.zeros(n, np.bool_),
        created_ns=created, started_ns=zero, completed_ns=np.where(done, created + 500_000, 0),
        duration_ms=np.full(n, np.nan), timeout_ms=zero,
    )  # fmt: skip
    dumps = tuple(
        Dump(r, r, f"rank_{r}", start=int(starts[r]), stop=int(starts[r + 1]), backend="nccl",
             version="2.10", active_only=not entries, first_record_id=0)
        for r in range(ranks)
    )  # fmt: skip
    return Case(
        calls=calls, dumps=dumps, groups=groups, group_status=GroupStatus.empty(),
        names=NAMES, signatures=SIGNATURES, world_size=ranks,
    )  # fmt: skip


def measure(ranks: int, entries: int) -> dict[str, float]:
    """Make one case, diagnose it, check the verdict."""
    case = case_of(ranks, entries)
    columns_mb = peak_mb()
    begin = time.perf_counter()
    report = diagnose(case)
    seconds = time.perf_counter() - begin
    assert report.culprits == (ranks // 2 + 3,), report.summary  # noqa: S101 - or it measured nothing
    return {"seconds": seconds, "calls": len(case.calls), "peak": peak_mb(), "before": columns_mb}


def peak_mb() -> float:
    """Largest resident set so far in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(*, quick: bool = False) -> Section:
    """Measure all sizes, each in a process of its own."""
    rows = []
    for ranks, entries in QUICK if quick else SIZES:
        command = [sys.executable, "-m", "benchmarks.verdict", str(ranks), str(entries)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        rows.append(
            (
                f"{ranks:,}",
                f"{entries:,}" if entries else "unfinished only",
                f"{found['calls']:,}",
                f"{found['seconds']:.2f} s",
                f"{found['before']:,.0f} MB",
                f"{found['peak']:,.0f} MB",
            )
        )
    return Section(
        title="Verdict from columns",
        text=" ".join((__doc__ or "").split("\n\n")[1].split()),
        columns=("ranks", "entries a rank", "calls", "time", "memory before", "peak memory"),
        rows=tuple(rows),
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
    else:
        print(show(main()))
