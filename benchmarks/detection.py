"""From a hang to its alarm and its verdict: real Gloo jobs with short steps, `--hang-after auto`.

Each job trains in steps of a length of its own (50 to 800 ms), saves a checkpoint now and then, and
at a random step one rank stops: in its loader, in a lock, in a busy read, or by leaving a call out.
The job notes when; the case has when the alarm was raised and the verdict was there.

Measuring and showing are apart, because the former takes an hour of a quiet machine:

    python -m benchmarks.detection 500 --at-once 4   # writes benchmarks/measured/detection.json
    python -m benchmarks.run_all detection           # table and picture, from that file

The former does the latter's work at its end. Each hang is written as it comes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.figures import ROOT, Section, machine, program, show
from benchmarks.plot import shares

__all__ = ["main", "measure", "one_hang"]

MEASURED = Path(__file__).with_name("measured") / "detection.json"
PICTURE = ROOT / "docs" / "images" / "detection.svg"
PAGE, BEGIN, END = ROOT / "docs" / "run.md", "<!-- detection -->\n", "<!-- detection ends -->"
PATIENCE_S = 240
FAULTS = ("loader", "lock", "file", "skips")


def one_hang(seed: int) -> dict[str, object]:
    """Let one job hang: seconds from the hang to the alarm and the verdict, and who was named."""
    draw = random.Random(seed)  # noqa: S311 - a simulation
    ranks, step_ms = draw.choice((2, 3, 4)), round(50 * 16 ** draw.random())
    culprit, fault = draw.randrange(ranks), draw.choice(FAULTS)
    steps = max(25, 25_000 // step_ms) + draw.randrange(20)
    with tempfile.TemporaryDirectory() as folder:
        case, moment = Path(folder, "case"), Path(folder, "moment")
        env = {**os.environ, "OMP_NUM_THREADS": "1", "UNHANG_RUNTIME_DIR": f"{folder}/runtime"}
        worker = [str(ROOT / "benchmarks" / "short_steps.py"), str(ranks), str(step_ms),
                  str(steps), str(culprit), fault, str(moment)]  # fmt: skip
        command = program("run", "--grace", "0", "--on-hang", "kill", "--case", str(case),
                          "--quiet", "--", sys.executable, *worker)  # fmt: skip
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        row: dict[str, object] = {"seed": seed, "ranks": ranks, "step_ms": step_ms, "fault": fault}
        try:
            manifest, report = _of_the_hang(case)
            hung_s = float(moment.read_text())
        except (OSError, ValueError):
            return row | {"failed": done.stderr[-300:]}
        part = manifest["nodes"][0]
        alarm_s = manifest["incident"]["time_ns"] / 1e9 - hung_s
        found = report["findings"][0] if report["findings"] else {"culprits": []}
        return row | {
            "alarm_s": round(alarm_s, 2),
            "verdict_s": round(alarm_s + part["timings_s"]["verdict"], 2),
            "right": found["culprits"] == [culprit],
            "code": found.get("code", ""),
            "load": round(os.getloadavg()[0], 1),
        }


def _of_the_hang(case: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Manifest and report of the first incident that is a hang: a slow rank may be told before."""
    for folder in sorted(case.parent.glob(f"{case.name}*"), key=lambda path: len(path.name)):
        manifest = json.loads((folder / "manifest.json").read_text())
        if manifest["incident"]["reason"] != "slow":
            return manifest, json.loads((folder / "report.json").read_text())
    raise FileNotFoundError(case)


def measure(
    runs: int, first: int, at_once: int, place: Path = MEASURED, *, add: bool = False
) -> None:
    """Let so many jobs hang, a few at once, and add them to a file as they come.

    Args:
        runs: How many.
        first: The seed of the first.
        at_once: How many jobs at the same time.
        place: The file.
        add: Keep what the file has, and let no job of a seed in it hang again.
    """
    place.parent.mkdir(exist_ok=True)
    known = json.loads(place.read_text()) if add and place.exists() else {"rows": []}
    rows = [row for row in known["rows"] if "alarm_s" in row]
    seeds = [seed for seed in range(first, first + runs) if seed not in {r["seed"] for r in rows}]
    with ThreadPoolExecutor(at_once) as pool:
        for row in pool.map(_guarded, seeds):
            rows.append(row)
            print(f"{len(rows)}: {json.dumps(row)}", file=sys.stderr, flush=True)
            text = ",\n".join(json.dumps(each) for each in rows)
            head = f'"machine": {json.dumps(machine())}, "at_once": {at_once}'
            place.write_text(f'{{{head}, "rows": [\n{text}\n]}}\n')


def _guarded(seed: int) -> dict[str, object]:
    time.sleep(seed % 4)  # not all at once
    try:
        return one_hang(seed)
    except (OSError, LookupError, subprocess.SubprocessError) as error:
        return {"seed": seed, "failed": f"{type(error).__name__}"}


def main(*, quick: bool = False) -> Section:
    """Show what was measured, and draw it; where nothing was, a few jobs hang first."""
    del quick
    if not MEASURED.exists():
        measure(4, 0, os.cpu_count() or 1)
    known: Mapping[str, Any] = json.loads(MEASURED.read_text())
    found = [row for row in known["rows"] if "alarm_s" in row]
    times = {what: [row[f"{what}_s"] for row in found] for what in ("alarm", "verdict")}
    title = "Seconds from a hang to the alarm and the verdict"
    PICTURE.write_text(shares(title, times, (5, 10, 15, 20, 30, 60, 120)))
    load = sorted(row["load"] for row in found)[len(found) // 2]
    right = sum(bool(row["right"]) for row in found)
    rows = [
        (f"the {what}", *(f"{value:.1f} s" for value in _places(values)), target)
        for (what, values), target in zip(times.items(), ("≤ 15 s", "≤ 20 s"), strict=True)
    ]
    section = Section(
        title="From a hang to its verdict",
        text=f"{len(found)} real Gloo jobs of 2 to 4 ranks with steps of 50 to 800 ms, "
        f"{known['at_once']} at once, load average {load:g} in the middle. The culprit was named "
        f"in {right}; {len(known['rows']) - len(found)} jobs gave no verdict. {known['machine']}",
        columns=("from the hang to", "median", "p95", "worst", "p95 target"),
        rows=tuple(rows),
    )
    _into_page(section)
    return section


def _into_page(section: Section) -> None:
    """Put text and table where docs/run.md has them."""
    lines = [section.columns, ("---",) * len(section.columns), *section.rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if end:
        PAGE.write_text(f"{before}{BEGIN}{section.text}\n\n{table}\n\n{end}{after}")


def _places(values: Sequence[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)], ordered[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, nargs="?", default=0, help="jobs to let hang; 0: show")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--at-once", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("--add", action="store_true", help="keep the rows that the file has")
    words = parser.parse_args()
    if words.runs:
        measure(words.runs, words.first, words.at_once, add=words.add)
    print(show(main()))
