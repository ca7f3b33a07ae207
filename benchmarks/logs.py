"""Reading logs with all rules on: a quiet job, one in which all ranks shout, NCCL_DEBUG=INFO.

Generated logs of 64 interleaved ranks. The whole program is measured (`unhang logs FILE`), on one
core, since one log is read by one thread. The target is 100 MB/s with all rules on.
"""

from __future__ import annotations

import gzip
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.figures import Section, measure, program, show

RANKS = 64
MB = 10**6
SIZE, QUICK_SIZE = 500 * MB, 50 * MB
BLOCK_LINES = 50_000

STACK = (
    "Traceback (most recent call last):",
    '  File "/home/user/job/train.py", line 88, in step',
    "    loss.backward()",
    '  File "/usr/lib/python3/site-packages/torch/_tensor.py", line 648, in backward',
    "    torch.autograd.backward(",
    "RuntimeError: the size of tensor a (4096) must match the size of tensor b (4095)",
)
SHOUTS = (
    (
        "[rank{r}]:[E1120 05:{m:02d}:{s:02d}.11 ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog "
        "caught collective operation timeout: WorkNCCL(SeqNum=122, OpType=ALLREDUCE, NumelIn=64, "
        "NumelOut=64, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
    ),
    "[rank{r}]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank {r}.",
)
INFO = (
    "node{h:02d}:{p}:{p} [{l}] NCCL INFO Channel {s:02d}/0 : {r}[{l}] -> {s}[{l}] via P2P/CUMEM",
    "node{h:02d}:{p}:{p} [{l}] NCCL INFO Connected all rings, use ring PXN 0 GDR 1",
    "node{h:02d}:{p}:{p} [{l}] NCCL INFO AllReduce: opCount {s:x} sendbuff 0x7f00{m:04x} count 96",
)
FACT = "node{h:02d}:{p}:{p} [{l}] NCCL INFO NET/IB : Using [0]mlx5_{l}:1/RoCE [RO]; OOB eth0:{r}<0>"
FACTS = 0.01


def main(*, quick: bool = False) -> Section:
    """Write the logs, read them, and give the table."""
    size = QUICK_SIZE if quick else SIZE
    kinds: dict[str, Callable[[], Iterator[str]]] = {
        "quiet": partial(lines, loud=0.0),
        "all ranks shout (1 line in 100)": partial(lines, loud=0.01),
        "NCCL_DEBUG=INFO (1 line in 2)": partial(lines, loud=0.0, info=0.5),
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, made in kinds.items():
            path = Path(folder) / "job.log"
            write(path, size, made)
            rows.append(row(name, path, path.stat().st_size))
        packed = path.with_name("job.log.gz")
        with path.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
            shutil.copyfileobj(source, target)
        rows.append(row("the same as .gz", packed, path.stat().st_size))
    return Section(
        title="Logs: all rules over an interleaved log",
        text=(
            f"`unhang logs FILE`, the whole program, {RANKS} ranks in one file of {size // MB} MB. "
            "Sizes are those of the text."
        ),
        columns=("log", "wall", "MB/s of CPU time", "peak"),
        rows=tuple(rows),
    )


def row(name: str, path: Path, size: int) -> tuple[str, ...]:
    """Measure one log."""
    cost = measure(program("logs", os.fspath(path)), runs=1)
    return (
        name,
        f"{cost.wall_s:.2f} s",
        f"{size / MB / cost.cpu_s:,.0f}",
        f"{cost.peak_mib:,.0f} MiB",
    )


def write(path: Path, size: int, made: Callable[[], Iterator[str]]) -> None:
    """Write a log of about `size` bytes; a block of lines is repeated, since the scan forgets."""
    block = "".join(f"{line}\n" for line in made()).encode()
    with path.open("wb") as file:
        for _ in range(max(size // len(block), 1)):
            file.write(block)


def lines(*, loud: float, info: float = 0.0) -> Iterator[str]:
    """One block of lines of all ranks, in no order."""
    chance = random.Random(5)  # noqa: S311 - the same log each time
    for number in range(BLOCK_LINES):
        rank, second = chance.randrange(RANKS), number // 64 % 60
        words = {"r": rank, "h": rank // 8, "l": rank % 8, "p": 4000 + rank, "s": second, "m": 6}
        if chance.random() < loud:
            yield from shouted(chance, words)
        elif chance.random() < info:
            form = FACT if chance.random() < FACTS else chance.choice(INFO)
            yield form.format(**words)
        else:
            yield (
                f"[rank{rank}]:[I1120 05:06:{second:02d}.1 train.py:93] step {number} loss "
                f"{chance.random():.6f} lr 3.0e-04 grad_norm {chance.random():.4f} tokens/s 41873"
            )


def shouted(chance: random.Random, words: dict[str, int]) -> Iterator[str]:
    """A message of a rule, or a traceback."""
    if chance.random() < 1 / 4:
        yield from (f"[rank{words['r']}]: {line}" for line in STACK)
    else:
        yield chance.choice(SHOUTS).format(**words)


if __name__ == "__main__":
    print(show(main()))
