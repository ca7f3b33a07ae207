"""What is reckoned from columns, up to 131,072 ranks: the verdict, and the merged stacks.

The columns are made here, so that only the reasoning is measured. Each measurement runs in a
process of its own (`python -m benchmarks.columns …`), whose peak memory holds the columns too.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Section, answer_of, describe, peak_mib
from unhang.analysis import diagnose
from unhang.case import Calls, Case, Dump, GroupStatus
from unhang.model import Frame, Group, OpName, Signature, State
from unhang.stacks.tree.prefix_tree import StackTree, from_rows, merge
from unhang.stacks.tree.treefile import from_bytes, to_bytes

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


def _judged(ranks: int, entries: int) -> dict[str, float]:
    """Make one case, diagnose it, check the verdict."""
    case = case_of(ranks, entries)
    columns_mib = peak_mib()
    seconds, report = _timed(lambda: diagnose(case))
    assert report.culprits == (ranks // 2 + 3,), report.summary  # noqa: S101 - or it measured nothing
    return {"seconds": seconds, "calls": len(case.calls), "peak": peak_mib(), "before": columns_mib}


def verdict(*, quick: bool) -> Section:
    """The cases are made as columns, so that only the reasoning is measured.

    A 3D layout: tensor groups of 8, data-parallel groups, the world; one rank never joins a
    tensor-parallel call, its group waits for it, and all others wait for that group in a call
    of the world. Each measurement runs in a process of its own, whose peak memory holds the columns
    too.
    """
    rows = []
    for ranks, entries in QUICK if quick else SIZES:
        found = answer_of("columns", "verdict", str(ranks), str(entries))
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
        text=describe(verdict.__doc__),
        columns=("ranks", "entries a rank", "calls", "time", "memory before", "peak memory"),
        rows=tuple(rows),
    )


# ------------------------------------------------------------------ stacks

RANKS, THREADS, DEPTH, VARYING = 131_072, 8, 40, 6
FEW, MANY = 9, 100_000
RANKS_PER_NODE, FAN_IN = 8, 128
FRAMES = tuple(Frame(f"function_{i}", f"package/module_{i % 97}.py", i) for i in range(2_000))


def stacks(ranks: int, distinct: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns of a job: ranks, offsets and frame numbers, as `from_rows` takes them."""
    rng = np.random.default_rng(distinct)
    kinds = np.tile(np.arange(DEPTH, dtype=np.int32), (distinct, 1))
    kinds[:, 0] = np.arange(distinct) % FEW + DEPTH
    kinds[:, -VARYING:] = rng.integers(100, len(FRAMES), (distinct, VARYING))
    chosen = kinds[rng.integers(0, distinct, ranks * THREADS)].ravel()
    offsets = np.arange(ranks * THREADS + 1) * DEPTH
    return np.repeat(np.arange(ranks, dtype=np.int32), THREADS), offsets, chosen


def at_once(ranks: int, distinct: int) -> dict[str, float]:
    """Merge a whole job from its columns."""
    columns = stacks(ranks, distinct)
    seconds, tree = _timed(lambda: from_rows(FRAMES, *columns))
    return {"seconds": seconds, "nodes": len(tree), "peak_mb": peak_mib()}


def by_nodes(ranks: int, distinct: int) -> dict[str, float]:
    """Reduce the trees of all nodes in steps of `FAN_IN`, through bytes.

    `seconds` is all the work on one core, `critical_s` the longest way through the reduction: what
    a cluster waits for, where every step runs on a machine of its own.
    """
    level = node_trees(ranks, distinct)
    total = critical = 0.0
    while len(level) > 1:
        groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
        timings = [_timed(lambda group=group: reduce_step(group)) for group in groups]
        level = [data for _, data in timings]
        total += sum(seconds for seconds, _ in timings)
        critical += max(seconds for seconds, _ in timings)
    ranks_found = len(from_bytes(level[0]).ranks())
    assert ranks_found == ranks, ranks_found  # noqa: S101 - a benchmark that lost ranks is none
    return {"seconds": total, "critical_s": critical, "peak_mb": peak_mib(), "bytes": len(level[0])}


def node_trees(ranks: int, distinct: int) -> list[bytes]:
    """What each node sends: the tree of its own ranks, with the frames that occur in it."""
    rank_of, offsets, ids = stacks(ranks, distinct)
    width = RANKS_PER_NODE * THREADS
    found = []
    for first in range(0, len(rank_of), width):
        rows = slice(first, first + width)
        used, numbers = np.unique(ids[offsets[first] : offsets[first + width]], return_inverse=True)
        frames = [FRAMES[i] for i in used.tolist()]
        tree = from_rows(frames, rank_of[rows], np.arange(width + 1) * DEPTH, numbers)
        found.append(to_bytes(tree))
    return found


def reduce_step(parts: list[bytes]) -> bytes:
    """One inner node of the reduction: read the trees below, merge, send on."""
    merged: StackTree = merge([from_bytes(part) for part in parts])
    return to_bytes(merged)


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of a piece of work."""
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


CASES: dict[str, tuple[Callable[[int, int], dict[str, float]], int, int]] = {
    "at once, few distinct": (at_once, RANKS, FEW),
    "at once, many distinct": (at_once, RANKS, MANY),
    "at once, many distinct, 16,384 ranks": (at_once, RANKS // 8, MANY),
    "by nodes, few distinct": (by_nodes, RANKS, FEW),
    "by nodes, many distinct": (by_nodes, RANKS, MANY),
}


COLUMNS = ("case", "seconds", "longest way, s", "peak MB", "nodes", "result, bytes")
KEYS = ("seconds", "critical_s", "peak_mb", "nodes", "bytes")


def stacks_merge(*, quick: bool) -> Section:
    """Merging the stacks of 131,072 ranks x 8 threads x 40 frames: at once, and node by node.

    Two generated jobs: one where nearly all ranks are at the same places (9 distinct stacks),
    one where the inner frames differ (100,000 distinct stacks). The slope compares 16,384 ranks
    with 131,072: 8 means linear. Every measurement runs in a process of its own, whose peak memory
    it gives; that of the columns that are merged (168 MB at full size) is part of it.
    """
    names = [name for name in CASES if not quick or "16,384" in name]
    results = {name: answer_of("columns", "stacks", name) for name in names}
    slope = ""
    if not quick:
        whole, eighth = (
            results[f"at once, many distinct{part}"]["seconds"] for part in ("", ", 16,384 ranks")
        )
        slope = f" Time grows {whole / eighth:.1f} times from 16,384 to 131,072 ranks."
    return Section(
        title="Merging stacks",
        text=describe(stacks_merge.__doc__) + slope,
        columns=COLUMNS,
        rows=tuple((name, *map(_cell, map(found.get, KEYS))) for name, found in results.items()),
    )


def _cell(figure: float | None) -> str:
    """One figure as it is shown; empty where a case has none."""
    if figure is None:
        return ""
    return f"{figure:.2f}" if isinstance(figure, float) and figure < 100 else f"{figure:,.0f}"


SECTIONS = {"verdict": verdict, "stacks_merge": stacks_merge}


def main(what: str, *words: str) -> None:
    """Measure one case in this process."""
    if what == "verdict":
        print(json.dumps(_judged(*map(int, words))))
    else:
        work, ranks, distinct = CASES[words[0]]
        print(json.dumps(work(ranks, distinct)))


if __name__ == "__main__":
    main(*sys.argv[1:])
