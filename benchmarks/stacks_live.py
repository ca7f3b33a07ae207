"""How long `unhang stacks` takes on this node: whole command, one look, beside py-spy alone.

The ranks are Python processes with RANK that sleep 20 calls deep, so that what is measured is
finding, sampling, merging and judging, not torch. py-spy alone is run once for each process, one
after the other, as a person would in a loop.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.figures import Section, measure, program, show
from unhang.collect.samplers import find_program

SIZES = (8, 64)
RANK = """
import sys, time
def deep(n):
    if n:
        deep(n - 1)
    else:
        print("ready", flush=True)
        time.sleep(1_000)
deep(20)
"""


@contextmanager
def ranks(number: int) -> Iterator[tuple[str, list[int]]]:
    """Start so many ranks of one job; gives its id and their process ids."""
    job = f"bench-{uuid.uuid4().hex[:8]}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", RANK],
            env={**os.environ, "UNHANG_JOB": job, "RANK": str(rank), "WORLD_SIZE": str(number)},
            stdout=subprocess.PIPE,
        )
        for rank in range(number)
    ]
    try:
        for process in processes:
            assert process.stdout is not None  # noqa: S101 - it was asked for
            process.stdout.readline()
        yield job, [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def main(*, quick: bool = False) -> Section:
    """Measure at each size; `quick` only the smallest."""
    rows = []
    for number in SIZES[:1] if quick else SIZES:
        with ranks(number) as (job, pids):
            ours = measure(program("stacks", "--job", job, "--samples", "1"), runs=3)
            loop = "; ".join(f"{find_program('py-spy')} dump --pid {pid}" for pid in pids)
            theirs = measure(["sh", "-c", loop], runs=3)
        rows.append(
            (str(number), f"{ours.wall_s:.2f}", f"{ours.cpu_s:.2f}", f"{theirs.wall_s:.2f}")
        )
    return Section(
        title="Stacks of the ranks of one node",
        text=" ".join((__doc__ or "").split()),
        columns=("ranks", "unhang stacks, s", "of which CPU, s", "py-spy in a loop, s"),
        rows=tuple(rows),
    )


if __name__ == "__main__":
    print(show(main()))
