"""From the alarm to the verdict: real jobs on Gloo that hang under `unhang run`, on this machine.

The clock starts where the hang watch raises its alarm; the manifest of the case has the rest. All
ranks share this machine's cores with what collects from them, as on a node.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures import ROOT, Section, program, show

__all__ = ["main"]

JOB = Path(__file__).with_name("hanging_job.py")
SIZES = ((8, 5, 5), (64, 40, 3))
"""Ranks, --hang-after (more than starting so many takes), how often."""

CULPRIT = 1
STEPS = ("dumps", "stacks", "verdict")
PATIENCE_S = 900


def main(*, quick: bool = False) -> Section:
    """Let jobs hang; `quick` takes eight ranks once."""
    sizes = ((8, 5, 1),) if quick else SIZES
    rows = []
    for ranks, hang_after_s, runs in sizes:
        found = [_hang(ranks, hang_after_s) for _ in range(runs)]
        times = [
            f"{statistics.median(times):.1f} s ({max(times):.1f})"
            for step in STEPS
            if (times := [case["nodes"][0]["timings_s"][step] for case in found])
        ]
        came = min(sum("dump" in r["came"] for r in case["ranks"].values()) for case in found)
        seen = min(sum("stacks" in r["came"] for r in case["ranks"].values()) for case in found)
        right = sum(case["culprits"] == [CULPRIT] for case in found)
        target = "≤ 10 s" if ranks == sizes[0][0] else ""
        rows.append((str(ranks), f"{came}", f"{seen}", *times, target, f"{right} of {runs}"))
    load = os.getloadavg()[0]
    return Section(
        title="From the alarm to the verdict",
        text="Real jobs on Gloo in which one rank stops, under `unhang run`. Seconds from the "
        "alarm to the end of each step: median of the runs, in brackets the slowest. "
        f"Load of the machine at the end: {load:.1f}.",
        columns=("ranks", "dumps", "stacks", "dumps after", "two looks after", "verdict after",
                 "target", "right culprit"),
        rows=tuple(rows),
    )  # fmt: skip


def _hang(ranks: int, hang_after_s: int) -> Mapping[str, Any]:
    """Let one job hang; returns its manifest with the verdict's culprits."""
    with tempfile.TemporaryDirectory() as folder:
        case = Path(folder, "case")
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1",
               "UNHANG_RUNTIME_DIR": str(Path(folder, "runtime"))}  # fmt: skip
        command = program(
            "run", "--hang-after", str(hang_after_s), "--grace", "0", "--on-hang", "kill",
            "--case", str(case), "--", sys.executable, str(JOB), str(ranks), str(_free_port()),
            str(CULPRIT),
        )  # fmt: skip
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        if not (case / "report.json").exists():
            raise RuntimeError(f"no verdict on {ranks} ranks: {done.stderr[-2000:]}")
        manifest = dict(json.loads((case / "manifest.json").read_text()))
        report = json.loads((case / "report.json").read_text())
        return manifest | {"culprits": report["findings"][0]["culprits"]}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    print(show(main(quick="--quick" in sys.argv)))
