"""Verdicts about large jobs as whole processes, beside `torchfrtrace` and a bare read.

Beyond the sizes that the other program reaches, ours is measured alone.
"""

from __future__ import annotations

import gc
import io
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2
from pathlib import Path

import msgspec

from benchmarks import drawing
from benchmarks.dumps import NODE, Shape, write_dumps
from benchmarks.harness import MIB, ROOT, Cost, Section, measure, program, scratch
from unhang.casedir.manifest import create_case
from unhang.collect.gather import GatherPlan, gather
from unhang.collect.launchers import Launch, Program
from unhang.collect.parcel import write_parcel
from unhang.ingest.parts.layout import Part, pack, unpack
from unhang.ingest.reducing import reduce

SIZES = (8, 64, 256, 1024, 16384)
LARGEST_OF_THE_OTHER = 1024
ENTRIES = 2000
RUNS = 9
RUNS_OF_THE_OTHER = 1  # it takes minutes at the largest size, and its spread is small beside that


def _verdict(place: Path, *words: str, runs: int = 3) -> Cost:
    """What a verdict about a job with a fault costs."""
    return measure(program("diagnose", str(place), *words), runs=runs, ends=1)


def _bare_read(dumps: Path, runs: int = 3) -> Cost:
    return measure(["sh", "-c", 'ls "$0" | (cd "$0" && xargs cat)', str(dumps)], runs=runs)


def diagnose(*, quick: bool) -> Section:
    """Each size beside the other program; `quick` takes the smallest two."""
    return Section(
        title="diagnose, next to torchfrtrace",
        text=(
            f"Generated dumps of a job with {ENTRIES:,} entries a rank and a stack of 20 frames "
            "each; one rank never joined. Wall and CPU time, peak memory of processes, "
            f"files in the page cache but for the largest size; medians of {RUNS} runs of `unhang "
            "diagnose`, 1 of the largest, of `torchfrtrace` and of `cat` (the bare read).\n\n"
            "![CPU time by number of ranks](images/diagnose.svg)"
        ),
        columns=(
            *("ranks", "input", "unhang", "CPU", "peak"),
            *("torchfrtrace", "CPU", "peak", "times faster", "by CPU", "bare read", "CPU"),
        ),
        rows=tuple(map(_sized, SIZES[:2] if quick else SIZES)),
    )


def _sized(ranks: int) -> tuple[str, ...]:
    with scratch() as dumps:
        size = write_dumps(dumps, Shape(ranks, ENTRIES))
        compared = ranks <= LARGEST_OF_THE_OTHER
        ours = _verdict(dumps, runs=RUNS if compared else 1)
        theirs = _other(dumps, ours) if compared else ("",) * 5
        read = _bare_read(dumps, runs=1)
    sizes = f"{ranks:,}", f"{size / MIB:.0f} MiB"
    return *sizes, *ours.cells(), *theirs, f"{read.wall_s:.2f} s", f"{read.cpu_s:.3f} s"


def _other(dumps: Path, ours: Cost) -> tuple[str, ...]:
    tool = shutil.which("torchfrtrace") or str(Path(sys.executable).with_name("torchfrtrace"))
    if not Path(tool).exists():
        return ("not installed", "", "", "", "")
    theirs = measure([tool, str(dumps)], runs=RUNS_OF_THE_OTHER)
    return *theirs.cells(), *ours.times(theirs)


def growth(*, quick: bool) -> Section:
    """How much more a verdict costs when a job doubles: from the page, nothing is measured."""
    del quick
    page = ROOT / "docs" / "benchmarks.md"
    series = drawing.series_of(page.read_text(encoding="utf-8"))
    return Section(
        title="Growth per doubling",
        text=(
            "CPU time by number of ranks, from the figures of `diagnose` above: how many times as "
            "much for twice the ranks. 2 is linear; below it start-up still counts."
        ),
        columns=("ranks", *series),
        rows=tuple(_doublings(series)),
    )


def _doublings(series: dict[str, list[drawing.Point]]) -> Iterator[tuple[str, ...]]:
    found = {name: per_doubling(points) for name, points in series.items()}
    for span in dict.fromkeys(span for each in found.values() for span in each):
        cells = (f"{each[span]:.2f}" if span in each else "" for each in found.values())
        yield f"{span[0]:,.0f} to {span[1]:,.0f}", *cells


def per_doubling(points: Sequence[drawing.Point]) -> dict[tuple[float, float], float]:
    """Growth from each size to the next, as if every doubling between them cost alike."""
    return {
        (few, many): (most / least) ** (1 / log2(many / few))
        for (few, least), (many, most) in pairwise(points)
    }


# ------------------------------------------------------------------ jobs of other shapes

SHAPES = (
    ("100 calls a rank", Shape(64, 100)),
    ("2,000 calls a rank", Shape(64, 2_000)),
    ("20,000 calls a rank", Shape(64, 20_000)),
    ("2,000 stacks", Shape(64, 2_000, places=2_000)),
    ("stacks of 100 frames", Shape(64, 2_000, depth=100)),
    ("2,000 stacks of 100 frames", Shape(64, 2_000, places=2_000, depth=100)),
    ("JSON", Shape(256, 2_000, as_json=True)),
)
LARGE = Shape(1_024, 2_000)
LISTS = Shape(16_384, 2_000, active_only=True)


def shapes(*, quick: bool) -> Section:
    """More calls, more stacks, JSON, tables, lists of members; `quick` takes the first two."""
    return Section(
        title="Other jobs, and tables",
        text=(
            "As above, jobs of other shapes: 5 stacks of 20 frames unless the row says otherwise. "
            "`--db` and `--parquet` also write the case as tables. The last row's dumps hold "
            "unfinished calls only, and each lists all ranks as text. Medians of 3 runs."
        ),
        columns=(
            *("dumps", "ranks", "input", "unhang", "CPU", "peak"),
            *("input by CPU", "bare read", "CPU"),
        ),
        rows=tuple(_shaped(quick=quick)),
    )


def _shaped(*, quick: bool) -> Iterator[tuple[str, ...]]:
    for name, shape in SHAPES[:2] if quick else SHAPES:
        yield from _measured(shape, {name: ()})
    if quick:
        return
    tables = {"2,000 calls a rank": (), "the same, --db": ("--db", "out.duckdb"),
              "the same, --parquet": ("--parquet", "out")}  # fmt: skip
    yield from _measured(LARGE, tables)
    yield from _measured(LISTS, {"unfinished calls only": ()})


def _measured(shape: Shape, ways: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    with scratch() as place:
        dumps = place / "dumps"
        size = write_dumps(dumps, shape)
        read = _bare_read(dumps)
        for name, option in ways.items():
            words = [*option[:1], *(str(place / word) for word in option[1:])]
            words += ["--force"] if option else []  # since it is run several times
            cost = _verdict(dumps, *words)
            yield (
                *(name, f"{shape.ranks:,}", f"{size / MIB:,.0f} MiB", *cost.cells()),
                *(f"{size / 1e6 / cost.cpu_s:,.0f} MB/s", *read.cells()[:2]),
            )


# ------------------------------------------------------------------ from parts

FROM_PARTS, COLLECTED = 100_000, 131_072
RUN = "bench"
BATCH = 512


def fleet(*, quick: bool) -> Section:
    """From trigger to verdict for a job of 131,072 ranks, whose nodes answer with parts.

    Nodes are told apart from one that was really reduced: its part with other numbers. What they
    send lies ready, as lines; everything from there on is the code that collects from nodes and
    judges: a command for each batch of nodes, parcels, the case directory, parts, the verdict.
    """
    from_parts, collected = (1_024, 1_024) if quick else (FROM_PARTS, COLLECTED)
    return Section(
        title="a large job, from parts",
        text=(
            f"{ENTRIES:,} entries a rank, nodes of {NODE} ranks; one rank never joined. "
            "First the verdict from parts that lie in a directory; then what the collecting code "
            "takes for nodes that answer at once, and the verdict from the case that it makes."
        ),
        columns=("what", "ranks", "bytes a rank", "time", "CPU", "peak"),
        rows=(_from_parts(from_parts), *_collected(collected)),
    )


def parts(ranks: int, entries: int = ENTRIES) -> list[bytes]:
    """The parts of all nodes of a job."""
    with scratch() as place:
        write_dumps(place, Shape(2 * NODE, entries))
        first, second = (
            unpack(reduce([Path(place, f"nccl_trace_rank_{rank}") for rank in own]).data)
            for own in (range(NODE), range(NODE, 2 * NODE))
        )
    nodes = range(1, -(-ranks // NODE))
    return [pack(_moved(first, 0, 0, ranks)), *(pack(_moved(second, 1, at, ranks)) for at in nodes)]


def _moved(part: Part, made_as: int, node: int, ranks: int) -> Part:
    """The part of a node as another node of a job of so many ranks would send it."""
    by = (node - made_as) * NODE
    whole = [(0, 1, 2 * NODE)]

    def named(name: str) -> str:
        return str(node + 1) if name == str(made_as + 1) else name

    return msgspec.structs.replace(
        part,
        groups=[(named(name), description) for name, description in part.groups],
        members=[
            [(0, 1, ranks)] if runs == whole else [(first + by, *rest) for first, *rest in runs]
            for runs in part.members
        ],
        dumps=[
            msgspec.structs.replace(
                dump,
                source=f"nccl_trace_rank_{node * NODE + at}",
                relative=f"nccl_trace_rank_{node * NODE + at}",
                declared=[(named(name), *rest) for name, *rest in dump.declared],
            )
            for at, dump in enumerate(part.dumps)
        ],
    )


def _from_parts(ranks: int) -> tuple[str, ...]:
    with scratch() as place:
        made = parts(ranks)
        for at, data in enumerate(made):
            Path(place, f"node-{at:05}.part").write_bytes(data)
        cost = _verdict(place, runs=1)
    return "verdict from parts", *_each(ranks, sum(map(len, made))), *_spent(cost)


def _each(ranks: int, size: int) -> tuple[str, str]:
    return f"{ranks:,}", f"{size / ranks:.0f}"


def _spent(cost: Cost) -> tuple[str, ...]:
    return f"{cost.wall_s:.1f} s", f"{cost.cpu_s:.1f} s", f"{cost.peak_mib:.0f} MiB"


@dataclass(frozen=True)
class _Ready:
    """A launcher whose nodes have answered before they were asked."""

    folder: Path
    count: int
    job: str = "bench"
    at_once: int = BATCH

    def nodes(self) -> Sequence[str]:
        """Names of the nodes."""
        return [f"n{at}" for at in range(self.count)]

    def launch(self, nodes: Sequence[str], program: Program) -> Launch:
        """Print what these nodes say."""
        del program
        return Launch(tuple(nodes), ("cat", str(self.folder / nodes[0])))

    def orders(self, node: str) -> dict[str, object]:
        """Nothing more than all are told."""
        return {"node": node}


def _answers(folder: Path, ranks: int) -> tuple[_Ready, int]:
    """Write what the nodes of a job send, a file for each batch; also how much it is."""
    made = parts(ranks)
    for begin in range(0, len(made), BATCH):
        lines = io.StringIO()
        for at in range(begin, min(begin + BATCH, len(made))):
            told = {
                "host": f"n{at}", "job": "bench", "world_size": ranks, "time_ns": time.time_ns(),
                "ranks": [
                    {"rank": at * NODE + own, "pid": own, "state": "S",
                     "came": {"dump": f"dumps/n{at}.part"}}
                    for own in range(NODE)
                ],
            }  # fmt: skip
            files = {f"dumps/n{at}.part": made[at], "part.json": msgspec.json.encode(told)}
            write_parcel(files, RUN, f"n{at}", lines)
        (folder / f"n{begin}").write_text(lines.getvalue())
    return _Ready(folder, len(made)), sum(map(len, made))


def _collected(ranks: int) -> tuple[tuple[str, ...], ...]:
    with scratch() as place:
        folder = Path(place, "answers")
        folder.mkdir()
        case = create_case(place, "bench", time.time())
        launcher, size = _answers(folder, ranks)
        gc.set_threshold(1 << 18)  # as `unhang collect` does
        wall, cpu = time.perf_counter(), time.process_time()
        gathered = gather(launcher, launcher.nodes(), GatherPlan({}, RUN, at_once=4), case)
        spent = time.perf_counter() - wall, time.process_time() - cpu
        if gathered.failed:
            raise RuntimeError(str(list(gathered.failed.items())[:3]))
        cost = _verdict(case, runs=1)
        shutil.rmtree(folder)
    each = _each(ranks, size)
    return (
        ("collected from nodes", *each, f"{spent[0]:.1f} s", f"{spent[1]:.1f} s", ""),
        ("verdict from that case", *each, *_spent(cost)),
    )


SECTIONS = {"diagnose": diagnose, "growth": growth, "shapes": shapes, "fleet": fleet}
