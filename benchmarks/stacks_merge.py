"""Merging the stacks of 131,072 ranks x 8 threads x 40 frames: at once, and node by node.

Two generated jobs: one where nearly everybody stands at the same places (9 distinct stacks), one
where the inner frames differ (100,000 distinct stacks). The slope compares 16,384 ranks with
131,072: 8 means linear. Every measurement runs in a process of its own, whose peak memory it gives;
that of the columns that are merged (168 MB at full size) is part of it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.figures import Section, show
from unhang.model import Frame
from unhang.stacks.tree.prefix_tree import StackTree, from_rows, merge
from unhang.stacks.tree.treefile import from_bytes, to_bytes

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
    seconds, tree = timed(lambda: from_rows(FRAMES, *columns))
    return {"seconds": seconds, "nodes": len(tree), "peak_mb": peak_mb()}


def by_nodes(ranks: int, distinct: int) -> dict[str, float]:
    """Reduce the trees of all nodes in steps of `FAN_IN`, through bytes.

    `seconds` is all the work on one core, `critical_s` the longest way through the reduction: what
    a cluster waits for, where every step runs on a machine of its own.
    """
    level = node_trees(ranks, distinct)
    total = critical = 0.0
    while len(level) > 1:
        groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
        timings = [timed(lambda group=group: reduce_step(group)) for group in groups]
        level = [data for _, data in timings]
        total += sum(seconds for seconds, _ in timings)
        critical += max(seconds for seconds, _ in timings)
    ranks_found = len(from_bytes(level[0]).ranks())
    assert ranks_found == ranks, ranks_found  # noqa: S101 - a benchmark that lost ranks is none
    return {"seconds": total, "critical_s": critical, "peak_mb": peak_mb(), "bytes": len(level[0])}


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


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """Seconds and result of a piece of work."""
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def peak_mb() -> float:
    """Largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


CASES: dict[str, tuple[Callable[[int, int], dict[str, float]], int, int]] = {
    "at once, few distinct": (at_once, RANKS, FEW),
    "at once, many distinct": (at_once, RANKS, MANY),
    "at once, many distinct, 16,384 ranks": (at_once, RANKS // 8, MANY),
    "by nodes, few distinct": (by_nodes, RANKS, FEW),
    "by nodes, many distinct": (by_nodes, RANKS, MANY),
}


def measure(name: str) -> dict[str, float]:
    """Run one case in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.stacks_merge", name],
        check=True,
        capture_output=True,
        text=True,
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


COLUMNS = ("case", "seconds", "longest way, s", "peak MB", "nodes", "result, bytes")
KEYS = ("seconds", "critical_s", "peak_mb", "nodes", "bytes")


def main(*, quick: bool = False) -> Section:
    """Measure all cases; `quick` only those with few distinct stacks."""
    results = {name: measure(name) for name in CASES if not quick or "few" in name}
    slope = ""
    if not quick:
        whole, eighth = (
            results[f"at once, many distinct{part}"]["seconds"] for part in ("", ", 16,384 ranks")
        )
        slope = f" Time grows {whole / eighth:.1f} times from 16,384 to 131,072 ranks."
    return Section(
        title="Merging stacks",
        text=" ".join((__doc__ or "").split()) + slope,
        columns=COLUMNS,
        rows=tuple((name, *map(cell, map(figures.get, KEYS))) for name, figures in results.items()),
    )


def cell(figure: float | None) -> str:
    """One figure as it is shown; empty where a case has none."""
    if figure is None:
        return ""
    return f"{figure:.2f}" if isinstance(figure, float) and figure < 100 else f"{figure:,.0f}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work, ranks, distinct = CASES[sys.argv[1]]
        print(json.dumps(work(ranks, distinct)))
    else:
        print(show(main()))
