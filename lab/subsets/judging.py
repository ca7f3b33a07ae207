"""NVIDIA's four sets of real dumps with injected faults, whole and with dumps taken away.

A dump that nobody brought home must not turn a rank into a culprit, and those at fault must be
named as long as the rest of the dumps proves it.
"""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from lab.score.adapters import TOOLS
from unhang.analysis import diagnose
from unhang.ingest import load
from unhang.report import Report
from unhang.wording import rank_phrase

SETS: Final = Path(__file__).parents[2] / "tests" / "data" / "nvrx"
HEADING: Final = "## Real sets, and what is left of them"
_TRUTH = "fault_injection.log"
_DUMP = "_dump_"
_INTRO: Final = """\
Written by `python -m lab subsets --write docs/accuracy.md`. Four sets that NVIDIA recorded on 16
GPUs while it injected faults (tests/data/nvrx): dumps of unfinished calls, without stacks. Each is
read whole, with every one, two and three of its dumps taken away, and with more, drawn by lot.

- **exact**: all ranks at fault that left a dump are named, and no innocent one.
- **unsure**: not so, but no innocent rank is named with more than low confidence.
- **innocent**: an innocent rank is named with high or medium confidence."""

_WHY: Final = """\
What is unsure is not proven by what is left. A device shows as stopped only next to peers that
have finished more in the same groups: once no such peer's dump is there, ranks at fault look like
all that wait. And of several ranks that left nothing, any one may be the reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one set with some dumps lost.

    Attributes:
        lost: How many: "none", "1", "4 to 12".
        counts: Subsets by how right the verdict was.
    """

    name: str
    at_fault: tuple[int, ...]
    lost: str
    counts: Counter[str]


def sets(folder: Path = SETS) -> dict[str, tuple[int, ...]]:
    """Every set and its ranks at fault, as the log of the injection has them."""
    found = {}
    for log in sorted(folder.glob(f"*/{_TRUTH}")):
        told = re.search(r"Fault ranks: \[([\d, ]+)\]", log.read_text(encoding="utf-8"))
        found[log.parent.name] = tuple(map(int, told[1].split(","))) if told else ()
    return found


def rows_of(name: str, *, drawn: int, most_lost: int = 3, processes: int = 1) -> Iterator[Row]:
    """Judge a set with none of its dumps lost, with every few of them, and with more.

    Args:
        name: Of the set.
        drawn: How many choices of more dumps are drawn by lot.
        most_lost: Of up to so many dumps every choice is looked at.
        processes: Workers.
    """
    at_fault, judged = sets()[name], partial(_mark_of, name, sets()[name])
    for lost, chosen in _choices(name, drawn, most_lost):
        if processes == 1:
            yield Row(name, at_fault, lost, Counter(map(judged, chosen)))
            continue
        with get_context("spawn").Pool(processes) as pool:
            yield Row(name, at_fault, lost, Counter(pool.map(judged, chosen, chunksize=20)))


def _choices(name: str, drawn: int, most: int) -> Iterator[tuple[str, list[tuple[int, ...]]]]:
    ranks = sorted(_files(name))
    yield "none", [()]
    for count in range(1, most + 1):
        yield str(count), list(combinations(ranks, count))
    lot, last = random.Random(name), len(ranks) - 4  # noqa: S311 - the same everywhere
    sizes = [lot.randint(most + 1, last) for _ in range(drawn)]
    yield f"{most + 1} to {last}", [tuple(lot.sample(ranks, size)) for size in sizes]


def _files(name: str) -> dict[int, Path]:
    folder = SETS / name
    return {int(path.name.removeprefix(_DUMP)): path for path in folder.glob(f"{_DUMP}*")}


def _mark_of(name: str, at_fault: tuple[int, ...], lost: tuple[int, ...]) -> str:
    kept = [path for rank, path in sorted(_files(name).items()) if rank not in lost]
    return mark(diagnose(load(kept)), at_fault, lost)


def mark(report: Report, at_fault: Iterable[int], lost: Iterable[int]) -> str:
    """How right a verdict is: "exact", "unsure" or "innocent"."""
    guilty = set(at_fault)
    sure = {r for c in report.causes if c.confidence != "low" for r in c.culprits}
    if guilty - set(lost) <= set(report.culprits) <= guilty:
        return "exact"
    return "unsure" if sure <= guilty else "innocent"


def said_of(name: str, tool: str, limit_s: float) -> str:
    """Whom a tool names of a whole set: a copy of it, for some take every file for a dump."""
    with tempfile.TemporaryDirectory(prefix="unhang-lab-") as folder:
        for path in _files(name).values():
            shutil.copy(path, folder)
        verdict = TOOLS[tool].look(Path(folder), limit_s)
    if verdict.named:
        return rank_phrase(sorted(verdict.named))
    return "failed" if verdict.status == "error" else "nobody"


def as_markdown(rows: Iterable[Row], said: dict[str, dict[str, str]]) -> str:
    """The section.

    Args:
        rows: In order.
        said: By set and tool, whom it names of the whole set.
    """
    tools = list(next(iter(said.values()), {}))
    lines = [HEADING, "", _INTRO, "", f"| whole set | at fault | {' | '.join(tools)} |"]
    lines.append("|" + "---|" * (2 + len(tools)))
    for name, at_fault in sets().items():
        cells = " | ".join(said[name].values())
        lines.append(f"| {name} | {rank_phrase(at_fault)} | {cells} |")
    lines += ["", "| set | dumps lost | subsets | exact | unsure | innocent |", "|" + "---|" * 6]
    for row in rows:
        counts = [f"{row.counts[key]:,}" for key in ("exact", "unsure", "innocent")]
        total = f"{row.counts.total():,}"
        lines.append(f"| {row.name} | {row.lost} | {total} | {' | '.join(counts)} |")
    return "\n".join([*lines, "", _WHY]) + "\n"
