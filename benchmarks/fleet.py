"""From trigger to verdict for a job of 131,072 ranks, whose nodes answer with parts.

Nodes are told apart from one that was really reduced: its part with other numbers. What they send
lies ready, as lines; everything from there on is the code that collects from nodes and judges: a
command for each batch of nodes, parcels, the case directory, parts, the verdict.
"""

from __future__ import annotations

import gc
import io
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.figures import Cost, Section, measure, program, show
from benchmarks.jobs import NODE, Shape, write_dumps
from unhang.casedir.manifest import create_case
from unhang.collect.gather import GatherPlan, gather
from unhang.collect.launchers import Launch, Program
from unhang.collect.parcel import write_parcel
from unhang.ingest.parts.layout import Part, pack, unpack
from unhang.ingest.reducing import reduce

__all__ = ["main", "parts"]

ENTRIES = 2000
FROM_PARTS, COLLECTED = 100_000, 131_072
RUN = "bench"
BATCH = 512


def main(*, quick: bool = False) -> Section:
    """Measure a verdict from parts alone, and one from trigger to verdict."""
    from_parts, collected = (4_096, 4_096) if quick else (FROM_PARTS, COLLECTED)
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
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as scratch:
        write_dumps(Path(scratch), Shape(2 * NODE, entries))
        first, second = (
            unpack(reduce([Path(scratch, f"nccl_trace_rank_{rank}") for rank in own]).data)
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
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as scratch:
        made = parts(ranks)
        for at, data in enumerate(made):
            Path(scratch, f"node-{at:05}.part").write_bytes(data)
        cost = _diagnose(Path(scratch))
    return "verdict from parts", *_cells(ranks, sum(map(len, made)), cost)


def _cells(ranks: int, size: int, cost: Cost) -> tuple[str, ...]:
    return f"{ranks:,}", f"{size / ranks:.0f}", *_spent(cost)


def _spent(cost: Cost) -> tuple[str, ...]:
    return f"{cost.wall_s:.1f} s", f"{cost.cpu_s:.1f} s", f"{cost.peak_mib:.0f} MiB"


def _diagnose(place: Path) -> Cost:
    cost = measure(program("diagnose", str(place)), runs=1)
    if cost.exit_code != 1:
        raise RuntimeError(f"diagnose ended with {cost.exit_code} on a job with a fault")
    return cost


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
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as scratch:
        folder = Path(scratch, "answers")
        folder.mkdir()
        case = create_case(Path(scratch), "bench", time.time())
        launcher, size = _answers(folder, ranks)
        gc.set_threshold(1 << 18)  # as `unhang collect` does
        wall, cpu = time.perf_counter(), time.process_time()
        gathered = gather(launcher, launcher.nodes(), GatherPlan({}, RUN, at_once=4), case)
        spent = time.perf_counter() - wall, time.process_time() - cpu
        if gathered.failed:
            raise RuntimeError(str(list(gathered.failed.items())[:3]))
        cost = _diagnose(case)
        shutil.rmtree(folder)
    each = f"{ranks:,}", f"{size / ranks:.0f}"
    return (
        ("collected from nodes", *each, f"{spent[0]:.1f} s", f"{spent[1]:.1f} s", ""),
        ("verdict from that case", *each, *_spent(cost)),
    )


if __name__ == "__main__":
    print(show(main(quick="--quick" in sys.argv)))
