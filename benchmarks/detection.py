"""From a hang to its alarm and its verdict: real Gloo jobs with short steps, `--hang-after auto`.

Each job trains in steps of a length of its own (50 to 800 ms), saves a checkpoint now and then, and
at a random step one rank stops: in its loader, in a lock, in a busy read, or by leaving a call out.
The job notes when; the case has when the alarm was raised and the verdict was there.

python -m benchmarks.detection RUNS FIRST_SEED [AT_ONCE]

prints a row of JSON for each hang as it comes, which outlives an interrupted run of hours.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.figures import ROOT, Section, program

__all__ = ["main", "one_hang"]

PATIENCE_S = 240
HANGS, AT_ONCE = 40, 2
FAULTS = ("loader", "lock", "file", "skips")


def one_hang(seed: int) -> dict[str, object]:
    """Let one job hang: seconds from the hang to the alarm and the verdict, and who was named."""
    draw = random.Random(seed)  # noqa: S311 - a simulation
    ranks, step_ms = draw.choice((2, 3, 4)), round(50 * 16 ** draw.random())
    culprit, fault = draw.randrange(ranks), draw.choice(FAULTS)
    steps = max(30, 30_000 // step_ms) + draw.randrange(20)
    with tempfile.TemporaryDirectory() as folder:
        case, moment = Path(folder, "case"), Path(folder, "moment")
        env = {**os.environ, "OMP_NUM_THREADS": "1", "UNHANG_RUNTIME_DIR": f"{folder}/runtime"}
        worker = [str(ROOT / "benchmarks" / "short_steps.py"), str(ranks), str(step_ms),
                  str(steps), str(culprit), fault, str(moment)]  # fmt: skip
        command = program("run", "--on-hang", "kill", "--case", str(case), "--quiet",
                          "--", sys.executable, *worker)  # fmt: skip
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        row: dict[str, object] = {"seed": seed, "ranks": ranks, "step_ms": step_ms, "fault": fault}
        try:
            manifest = json.loads((case / "manifest.json").read_text())
            report = json.loads((case / "report.json").read_text())
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


def main(*, quick: bool = False) -> Section:
    """Let jobs hang; `quick` takes a tenth of them."""
    rows = list(_hangs(HANGS // 10 if quick else HANGS, 0, AT_ONCE))
    ended = [row for row in rows if "failed" not in row]

    def seconds(key: str) -> str:
        took = sorted(float(str(row[key])) for row in ended)
        return f"{statistics.median(took):.1f} s ({took[-1]:.1f})" if took else ""

    right = sum(row["right"] is True for row in ended)
    return Section(
        title="From a hang to its verdict",
        text=(
            "Real Gloo jobs of 2 to 4 ranks with steps of 50 to 800 ms, `--hang-after auto`; from "
            "the moment at which one rank stops: medians, in brackets the slowest."
        ),
        columns=("hangs", "with a verdict", "alarm after", "verdict after", "right culprit"),
        rows=(
            (f"{len(rows)}", f"{len(ended)}", seconds("alarm_s"), seconds("verdict_s"), f"{right}"),
        ),
    )


def _hangs(runs: int, first: int, at_once: int) -> Iterator[dict[str, object]]:
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(_guarded, range(first, first + runs))


def _guarded(seed: int) -> dict[str, object]:
    time.sleep(seed % 4)  # not all at once
    try:
        return one_hang(seed)
    except (OSError, LookupError, subprocess.SubprocessError) as error:
        return {"seed": seed, "failed": f"{type(error).__name__}"}


if __name__ == "__main__":
    for each in _hangs(int(sys.argv[1]), int(sys.argv[2]), int([*sys.argv, "2"][3])):
        print(json.dumps(each), flush=True)
