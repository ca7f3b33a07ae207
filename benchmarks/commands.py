"""What commands cost as whole processes: start-up, the first use, `run`, `stacks`, `logs`."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.dumps import Shape, write_dumps
from benchmarks.harness import ROOT, Section, by_turns, describe, measure, program, scratch

BARE = "python -c ''"
PROCESSES = "Wall time of whole processes, medians of {runs} runs, files in the page cache."


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def startup(*, quick: bool) -> Section:
    """Import, --version, a small case."""
    runs, case = 5 if quick else 11, Path("examples") / "never-joined"
    targets = {
        BARE: "", "import unhang": "< 60 ms over the bare one", "import unhang.record": "",
        "unhang --version": "< 150 ms", "unhang --help": "", f"unhang diagnose {case}": "< 1 s",
    }  # fmt: skip
    commands = {
        BARE: [sys.executable, "-c", ""],
        "import unhang": [sys.executable, "-c", "import unhang"],
        "import unhang.record": [sys.executable, "-c", "import unhang.record"],
        "unhang --version": program("--version"),
        "unhang --help": program("--help"),
        f"unhang diagnose {case}": program("diagnose", str(ROOT / case)),
    }
    walls = {name: cost.wall_s for name, cost in by_turns(commands, runs=runs).items()}
    rows = [
        (f"`{name}`", _ms(wall), f"{(wall - walls[BARE]) * 1000:+.0f} ms", targets[name])
        for name, wall in walls.items()
    ]
    return Section(
        title="Start-up",
        text=PROCESSES.format(runs=runs),
        columns=("command", "wall", "over bare python", "target"),
        rows=tuple(rows),
    )


def run_overhead(*, quick: bool) -> Section:
    """What `unhang run` adds to a command that needs nothing of it."""
    runs = 5 if quick else 21
    rows = []
    for name, command in (("true", ["true"]), (BARE, [sys.executable, "-c", ""])):
        both = by_turns({"bare": command, "run": program("run", "--", *command)}, runs=runs)
        bare, wrapped = both["bare"].wall_s, both["run"].wall_s
        added = f"{(wrapped - bare) * 1000:+.0f} ms"
        rows.append((f"`{name}`", _ms(bare), _ms(wrapped), added, "< 100 ms"))
    return Section(
        title="unhang run over the bare command",
        text=PROCESSES.format(runs=runs),
        columns=("command", "bare", "under unhang run", "added", "target"),
        rows=tuple(rows),
    )


# ------------------------------------------------------------------ the first use


def first_use(*, quick: bool) -> Section:
    """In containers every use may be a first one: nothing that it leaves behind is kept."""
    shape, runs = Shape(8, 2000), 3 if quick else 9
    with scratch() as place:
        write_dumps(place / "dumps", shape)
        words = [str(environment(place)), "-m", "unhang", "diagnose", str(place / "dumps")]
        own = {"PYTHONPATH": "", "HOME": str(place)}
        nowhere = {**own, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
        rows = (
            ("the first", *measure(words, runs=1, env=own).cells()),
            ("later", *measure(words, runs=runs, env=own).cells()),
            ("with no home", *measure(words, runs=runs, env=nowhere).cells()),
        )
    return Section(
        title="First use",
        text=(
            f"`unhang diagnose` of {shape.ranks} ranks of {shape.entries:,} entries with a wheel "
            "that pip has just installed into a new environment: the first run, and medians of "
            f"{runs} later ones, with a home directory and without."
        ),
        columns=("use", "time", "CPU", "peak"),
        rows=rows,
    )


def environment(folder: Path) -> Path:
    """Install this checkout's wheel, with what `--db` needs, into a new environment; its Python."""
    python = folder / "environment" / "bin" / "python"
    for words in (
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)],
        [sys.executable, "-m", "venv", str(python.parents[1])],
    ):
        subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    wheel = next(folder.glob("*.whl"))
    words = [str(python), "-m", "pip", "install", "-q", f"{wheel}[sql]"]
    subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return python


# ------------------------------------------------------------------ stacks of live ranks

_RANK = """
import sys, time
def deep(n):
    if n:
        deep(n - 1)
    else:
        print("ready", flush=True)
        time.sleep(1_000)
deep(20)
"""


def stacks_live(*, quick: bool) -> Section:
    """How long `unhang stacks` takes on this node: whole command, one look, next to py-spy alone.

    The ranks are Python processes with RANK that sleep 20 calls deep, so that what is measured is
    finding, sampling, merging and judging, not torch. py-spy alone is run once for each process,
    one after the other, as a person would in a loop.
    """
    from unhang.collect.samplers import find_program

    rows = []
    for number in (8,) if quick else (8, 64):
        with _ranks(number) as (job, pids):
            loop = "; ".join(f"{find_program('py-spy')} dump --pid {pid}" for pid in pids)
            ours = program("stacks", "--job", job, "--samples", "1")
            both = by_turns({"ours": ours, "loop": ["sh", "-c", loop]}, runs=3)
        cost = both["ours"]
        seconds = (cost.wall_s, cost.cpu_s, both["loop"].wall_s)
        rows.append((str(number), *(f"{each:.2f}" for each in seconds)))
    return Section(
        title="Stacks of the ranks of one node",
        text=describe(stacks_live.__doc__),
        columns=("ranks", "unhang stacks, s", "CPU of it, s", "py-spy in a loop, s"),
        rows=tuple(rows),
    )


@contextmanager
def _ranks(number: int) -> Iterator[tuple[str, list[int]]]:
    """Start so many ranks of one job; gives its id and their process ids."""
    job = f"bench-{uuid.uuid4().hex[:8]}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", _RANK],
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


# ------------------------------------------------------------------ logs

RANKS = 64
MB = 10**6
SIZE, QUICK_SIZE = 500 * MB, 10 * MB
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


def logs(*, quick: bool) -> Section:
    """A quiet job, one in which all ranks shout, NCCL_DEBUG=INFO: one core, 100 MB/s wanted."""
    size = QUICK_SIZE if quick else SIZE
    kinds = {
        "quiet": (0.0, 0.0),
        "all ranks shout (1 line in 100)": (0.01, 0.0),
        "NCCL_DEBUG=INFO (1 line in 2)": (0.0, 0.5),
    }
    rows = []
    with scratch() as folder:
        path = folder / "job.log"
        for name, (loud, info) in kinds.items():
            _write(path, size, loud, info)
            rows.append(_log_row(name, path, path.stat().st_size))
        packed = path.with_name("job.log.gz")
        with path.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
            shutil.copyfileobj(source, target)
        rows.append(_log_row("the same as .gz", packed, path.stat().st_size))
    return Section(
        title="Logs: all rules over an interleaved log",
        text=(
            f"`unhang logs FILE`, the whole program, {RANKS} ranks in one file of {size // MB} MB. "
            "Sizes are those of the text."
        ),
        columns=("log", "wall", "MB/s of CPU time", "peak"),
        rows=tuple(rows),
    )


def _log_row(name: str, path: Path, size: int) -> tuple[str, ...]:
    cost = measure(program("logs", str(path)), runs=1)
    wall, _, peak = cost.cells()
    return name, wall, f"{size / MB / cost.cpu_s:,.0f}", peak


def _write(path: Path, size: int, loud: float, info: float) -> None:
    """Write a log of about `size` bytes; a block of lines is repeated, since the scan forgets."""
    block = "".join(f"{line}\n" for line in _lines(loud, info)).encode()
    with path.open("wb") as file:
        for _ in range(max(size // len(block), 1)):
            file.write(block)


def _lines(loud: float, info: float) -> Iterator[str]:
    """One block of lines of all ranks, in no order."""
    chance = random.Random(5)  # noqa: S311 - the same log each time
    for number in range(BLOCK_LINES):
        rank, second = chance.randrange(RANKS), number // 64 % 60
        words = {"r": rank, "h": rank // 8, "l": rank % 8, "p": 4000 + rank, "s": second, "m": 6}
        if chance.random() < loud:
            yield from _shouted(chance, words)
        elif chance.random() < info:
            form = FACT if chance.random() < FACTS else chance.choice(INFO)
            yield form.format(**words)
        else:
            yield (
                f"[rank{rank}]:[I1120 05:06:{second:02d}.1 train.py:93] step {number} loss "
                f"{chance.random():.6f} lr 3.0e-04 grad_norm {chance.random():.4f} tokens/s 41873"
            )


def _shouted(chance: random.Random, words: dict[str, int]) -> Iterator[str]:
    """A message of a rule, or a traceback."""
    if chance.random() < 1 / 4:
        yield from (f"[rank{words['r']}]: {line}" for line in STACK)
    else:
        yield chance.choice(SHOUTS).format(**words)


SECTIONS = {
    "startup": startup, "first_use": first_use, "stacks_live": stacks_live,
    "run_overhead": run_overhead, "logs": logs,
}  # fmt: skip
