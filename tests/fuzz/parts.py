"""Hold verdicts from parts against verdicts from dumps, on every capture and simulated case.

    python tests/fuzz/parts.py

Each is reduced whole, in parts of a few ranks, and with next to no room for times; part of it stays
as dumps. The verdict has to be the same, or to say that the times for it were left out. With
--ray ADDRESS ("" for a cluster of its own) it is judged through Ray as well, to the byte; with
--only-ray through nothing else.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.parts import differences, folders_of_dumps, parts_of, verdict_of

from lab.simulate.corpus import cases
from lab.simulate.writing import DUMPS, simulate
from unhang.analysis import diagnose
from unhang.errors import UnhangError
from unhang.ingest import load, ray
from unhang.ingest.parts import filling, writing
from unhang.reports.json import render

WAYS = (
    "one part",
    "parts of three",
    "few times",
    "parts and dumps",
    "few rows",
    "few rows and times",
)


def folders(more: list[Path], every: int) -> Iterator[tuple[str, Path]]:
    """Name and place of every set of dumps."""
    for root in (ROOT / "examples", ROOT / "tests" / "data", *more):
        for folder in folders_of_dumps(root):
            archives = sorted(folder.glob("*.tar.gz"))
            for archive in archives:
                with tempfile.TemporaryDirectory(prefix="parts-") as name:
                    with tarfile.open(archive) as opened:
                        opened.extractall(name, filter="data")
                    yield f"{folder.name}/{archive.name}", Path(name)
            if not archives:
                yield str(folder.relative_to(root)), folder
    for spec in [*cases("tuned"), *cases("held-out")][::every]:
        with tempfile.TemporaryDirectory(prefix="parts-") as name:
            simulate(spec, Path(name))
            yield spec.name, Path(name) / DUMPS


def compare(folder: Path, cluster: Any, *, only_ray: bool) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - Ray's module
    """Way and what is otherwise, for each way to reduce a folder."""
    whole = verdict_of([folder])
    if cluster is not None:
        yield "ray", "" if verdict_by(cluster, folder) == whole else "another report"
    if only_ray or not whole.startswith("{"):
        return
    dumps = sorted(path for path in folder.rglob("*") if path.is_file())
    by_name = verdict_of(dumps)  # a file that is named itself has no folder that would tell more
    for way in WAYS:
        with tempfile.TemporaryDirectory(prefix="parts-") as name:
            writing.ROOM_FOR_TIMES = 0 if way.endswith("times") else 512
            filling.MOST_ROWS = 0 if way.startswith("few rows") else 1 << 23
            filling.FIRST = 0
            filling.KEPT = 2 if way == "few rows and times" else 12
            sources = dumps if way.startswith("parts") else [folder]
            kept = dumps[::2] if way == "parts and dumps" else []
            reduced = [each for each in sources if each not in kept]
            try:
                parts = parts_of(reduced, 3, Path(name), all_times=way == "few rows")
            except Exception as error:  # noqa: BLE001 - that is what is looked for
                yield way, f"{type(error).__name__}: {error}"
                continue
            expected = by_name if way.startswith("parts") else whole
            told = list(differences(expected, verdict_of([*parts, *kept])))
            yield way, "; ".join(told)


def verdict_by(cluster: Any, folder: Path) -> str:  # noqa: ANN401 - the same
    """The JSON of the verdict through Ray, three files a task."""
    ray.SHARE_FILES = 3
    engine = ray.RayEngine(cluster)
    try:
        report = diagnose(case := load(engine.behind([folder])))
        if engine.left_out_times(case, report):
            engine.all_times = True
            report = diagnose(load(engine.behind([folder])))
    except UnhangError as error:
        return error.message
    return render(report)


def main() -> int:
    """Compare them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("more", nargs="*", type=Path, help="further folders of captures")
    parser.add_argument("--every", type=int, default=1, help="every so many of the simulated cases")
    parser.add_argument("--ray", metavar="ADDRESS", help="also through this Ray cluster")
    parser.add_argument("--only-ray", action="store_true", help="leave the ways of reducing out")
    args = parser.parse_args()
    tally: Counter[str] = Counter()
    with nullcontext() if args.ray is None else ray.ray_engine(args.ray) as engine:
        cluster = engine and engine.ray
        for name, folder in folders(args.more, args.every):
            for way, wrong in compare(folder, cluster, only_ray=args.only_ray):
                tally[f"{way}: {'differ' if wrong else 'same'}"] += 1
                if wrong:
                    print(f"{name}, {way}: {wrong}", flush=True)
    print(dict(sorted(tally.items())))
    return 1 if any("differ" in key for key in tally) else 0


if __name__ == "__main__":
    sys.exit(main())
