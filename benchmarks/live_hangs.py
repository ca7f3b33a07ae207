"""Real Gloo jobs that hang under `unhang run`: from the hang to the alarm, and to the verdict.

Measuring detection and showing it are apart, because the former takes an hour of a quiet machine:

    python -m benchmarks.live_hangs 500 --at-once 4   # writes benchmarks/measured/detection.json
    python -m benchmarks detection                    # table and picture, from that file
    python -m benchmarks.live_hangs 50 --nodes        # writes benchmarks/measured/two_nodes.json
    python -m benchmarks two_nodes                    # table, from that file

Each hang is written as it comes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.drawing import shares
from benchmarks.harness import ROOT, Section, machine, placed, program, scratch, table

JOB = Path(__file__).with_name("hanging_job.py")
PATIENCE_S = 900


def _started(
    folder: Path, options: Sequence[str], job: Sequence[object], **env: str
) -> subprocess.Popen[str]:
    """Start a job that hangs under `unhang run`; what that says on stderr can be read."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "UNHANG_RUNTIME_DIR": str(folder / "runtime"),
        **env,
    }
    words = [sys.executable, str(JOB), *map(str, job)]
    command = program("run", "--grace", "0", "--on-hang", "kill", *options, "--", *words)
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        command, cwd=folder, env=env, stdout=quiet, stderr=subprocess.PIPE, text=True
    )


def _let_hang(
    folder: Path, options: list[str], ranks: int, step_ms: int, steps: int, culprit: int, fault: str
) -> str:
    """Run a job that hangs, with its case in the folder; returns what was said on stderr."""
    job = (ranks, step_ms, steps, culprit, fault, folder / "moment")
    with _started(folder, ["--case", str(folder / "case"), *options], job) as process:
        return process.communicate(timeout=PATIENCE_S)[1]


# ------------------------------------------------------------------ from the alarm

SIZES = ((8, 5, 5), (64, 40, 3))
"""Ranks, --hang-after (more than starting so many takes), how often."""

CULPRIT = 1
STEPS = ("dumps", "stacks", "verdict")


def hang_verdict(*, quick: bool) -> Section:
    """From the alarm to the verdict; `quick` takes eight ranks once.

    The clock starts where the hang watch raises its alarm; the manifest of the case has the rest.
    All ranks share this machine's cores with what collects from them, as on a node.
    """
    sizes = ((8, 5, 1),) if quick else SIZES
    rows = []
    for ranks, hang_after_s, runs in sizes:
        found = [_judged(ranks, hang_after_s) for _ in range(runs)]
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


def _judged(ranks: int, hang_after_s: int) -> Mapping[str, Any]:
    """Let one job hang; returns its manifest with the verdict's culprits."""
    with scratch() as folder:
        options = ["--hang-after", str(hang_after_s)]
        said = _let_hang(folder, options, ranks, 0, 20, CULPRIT, "loader")
        case = folder / "case"
        if not (case / "report.json").exists():
            raise RuntimeError(f"no verdict on {ranks} ranks: {said[-2000:]}")
        manifest = dict(json.loads((case / "manifest.json").read_text()))
        report = json.loads((case / "report.json").read_text())
        return manifest | {"culprits": report["findings"][0]["culprits"]}


# ------------------------------------------------------------------ from the hang

MEASURED = Path(__file__).with_name("measured") / "detection.json"
PICTURE = ROOT / "docs" / "images" / "detection.svg"
PAGE, BEGIN, END = ROOT / "docs" / "watching.md", "<!-- detection -->\n", "<!-- detection ends -->"
FAULTS = ("loader", "lock", "file", "skips")


def one_hang(seed: int) -> list[dict[str, object]]:
    """Let one job hang: seconds from the hang to the alarm and the verdict, and who was named.

    It trains in steps of a length of its own (50 to 800 ms), saves a checkpoint now and then, and
    at a random step one rank stops: in its loader, in a lock, in a busy read, or by leaving a call
    out. The job notes when; the case has when the alarm was raised and the verdict was there.
    """
    draw = random.Random(seed)  # noqa: S311 - a simulation
    ranks, step_ms = draw.choice((2, 3, 4)), round(50 * 16 ** draw.random())
    culprit, fault = draw.randrange(ranks), draw.choice(FAULTS)
    steps = max(25, 25_000 // step_ms) + draw.randrange(20)
    with scratch() as folder:
        said = _let_hang(folder, ["--quiet"], ranks, step_ms, steps, culprit, fault)
        row = {"seed": seed, "ranks": ranks, "step_ms": step_ms, "fault": fault}
        return [row | _timed(folder, "case*", culprit, said)]


def _timed(folder: Path, cases: str, culprit: int, said: str) -> dict[str, object]:
    """When the alarm was raised and the verdict was there, and whether it was right."""
    try:
        manifest, report = _of_the_hang(folder, cases)
        hung_s = float((folder / "moment").read_text())
    except (OSError, ValueError):
        return {"failed": said[-300:]}
    alarm_s = manifest["incident"]["time_ns"] / 1e9 - hung_s
    verdict_s = max(part["timings_s"].get("verdict", 0.0) for part in manifest["nodes"])
    found = report["findings"][0] if report["findings"] else {"culprits": []}
    return {
        "alarm_s": round(alarm_s, 2),
        "verdict_s": round(alarm_s + verdict_s, 2),
        "right": found["culprits"] == [culprit],
        "code": found.get("code", ""),
        "load": round(os.getloadavg()[0], 1),
    }


def _of_the_hang(folder: Path, cases: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Manifest and report of the first incident that is a hang: a slow rank may be told before."""
    for case in sorted(folder.glob(cases), key=lambda path: (len(path.name), path.name)):
        if (case / "report.json").exists():
            manifest = json.loads((case / "manifest.json").read_text())
            if manifest["incident"]["reason"] != "slow":
                return manifest, json.loads((case / "report.json").read_text())
    raise FileNotFoundError(folder)


# ------------------------------------------------------------------ on two nodes

TWO_NODES = Path(__file__).with_name("measured") / "two_nodes.json"
WORLD = 8
"""Ranks of these jobs: all on one node, or half of them on each of two."""


def on_one_and_two(seed: int) -> list[dict[str, object]]:
    """Let one job hang on one node and on two, both at the same time: all else meets both."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(_on_nodes, (seed, seed), (1, 2)))


def _on_nodes(seed: int, nodes: int) -> dict[str, object]:
    """Let the job of a seed hang on so many nodes, whose supervisors meet over the network.

    Each supervisor has a folder, a runtime directory and cases of its own, and sees the ranks
    that it started. All are on this machine.
    """
    draw = random.Random(seed)  # noqa: S311 - a simulation
    step_ms, culprit = round(50 * 16 ** draw.random()), draw.randrange(WORLD)
    fault, steps = draw.choice(FAULTS), max(25, 25_000 // step_ms) + draw.randrange(20)
    row = {"seed": seed, "nodes": nodes, "step_ms": step_ms, "fault": fault}
    with scratch() as folder, socket.create_server(("127.0.0.1", 0)) as held:
        options = ["--quiet", "--job", f"hang-{seed}"]
        token = {}
        if nodes > 1:
            options += ["--meet", f"127.0.0.1:{held.getsockname()[1]}"]
            token["UNHANG_MEET_TOKEN"] = secrets.token_hex(16)
        held.close()
        started = []
        for number in range(nodes):
            (own := folder / f"node{number}").mkdir()
            ranks = WORLD // nodes
            job = (ranks, step_ms, steps, culprit, fault, folder / "moment", number * ranks, WORLD)
            started.append(_started(own, options, job, **token))
        said = [process.communicate(timeout=PATIENCE_S)[1] for process in started]
        ended_s = time.time()
        row |= _timed(folder, "node*/unhang-cases/*", culprit, "\n".join(said))
        moment = folder / "moment"
        return row | {"ended_s": round(ended_s - float(moment.read_text()), 2)}


def two_nodes(*, quick: bool) -> Section:
    """Show what was measured on one and on two nodes; where nothing was, two jobs hang first."""
    del quick
    if not TWO_NODES.exists():
        measure(2, 0, 1, on_one_and_two, TWO_NODES)
    known: Mapping[str, Any] = json.loads(TWO_NODES.read_text())
    found = [row for row in known["rows"] if "alarm_s" in row]
    rows, worst = [], {}
    for nodes, where in ((1, f"one node of {WORLD} ranks"), (2, f"two nodes of {WORLD // 2}")):
        own = [row for row in found if row["nodes"] == nodes]
        cells = []
        for what in ("alarm_s", "verdict_s"):
            median, worst[nodes, what], _ = placed([row[what] for row in own])
            cells += [f"{median:.1f} s", f"{worst[nodes, what]:.1f} s"]
        right = sum(bool(row["right"]) for row in own)
        rows.append((where, *cells, f"{right} of {len(own)}"))
    shares = [worst[2, what] / worst[1, what] for what in ("alarm_s", "verdict_s")]
    rows.append(("two nodes to one", "", f"{shares[0]:.2f}", "", f"{shares[1]:.2f}", ""))
    load = sorted(row["load"] for row in found)[len(found) // 2]
    return Section(
        title="From a hang to its verdict on two nodes",
        text=f"The same Gloo jobs of {WORLD} ranks on one node and on two, whose supervisors meet "
        f"over the loopback: both at the same time, {known['at_once']} such pairs at once, load "
        f"average {load:g} in the middle. {len(known['rows']) - len(found)} jobs gave no verdict. "
        "The target: 95 of 100 hangs on two nodes take at most 1.5 times what they take on one.",
        columns=("job", "alarm", "p95", "verdict", "p95", "right culprit"),
        rows=tuple(rows),
    )  # fmt: skip


# ------------------------------------------------------------------ many of them


def measure(
    runs: int,
    first: int,
    at_once: int,
    let_hang: Callable[[int], list[dict[str, object]]],
    place: Path,
    *,
    add: bool = False,
) -> None:
    """Let so many jobs hang, a few at once, and add them to a file as they come.

    Args:
        runs: How many.
        first: The seed of the first.
        at_once: How many at the same time.
        let_hang: Lets the jobs of a seed hang, and returns their rows.
        place: The file.
        add: Keep what the file has, and let no job of a seed in it hang again.
    """
    place.parent.mkdir(exist_ok=True)
    known = json.loads(place.read_text()) if add and place.exists() else {"rows": []}
    rows = [row for row in known["rows"] if "alarm_s" in row]
    seeds = [seed for seed in range(first, first + runs) if seed not in {r["seed"] for r in rows}]
    with ThreadPoolExecutor(at_once) as pool:
        for told in pool.map(partial(_guarded, let_hang), seeds):
            rows += told
            print(f"{len(rows)}: {json.dumps(told)}", file=sys.stderr, flush=True)
            text = ",\n".join(json.dumps(each) for each in rows)
            head = f'"machine": {json.dumps(machine())}, "at_once": {at_once}'
            place.write_text(f'{{{head}, "rows": [\n{text}\n]}}\n')


def _guarded(
    let_hang: Callable[[int], list[dict[str, object]]], seed: int
) -> list[dict[str, object]]:
    time.sleep(seed % 4)  # not all at once
    try:
        return let_hang(seed)
    except (OSError, LookupError, subprocess.SubprocessError) as error:
        return [{"seed": seed, "failed": f"{type(error).__name__}"}]


def detection(*, quick: bool) -> Section:
    """Show what was measured, and draw it; where nothing was, a few jobs hang first."""
    del quick
    if not MEASURED.exists():
        measure(4, 0, os.cpu_count() or 1, one_hang, MEASURED)
    known: Mapping[str, Any] = json.loads(MEASURED.read_text())
    found = [row for row in known["rows"] if "alarm_s" in row]
    times = {what: [row[f"{what}_s"] for row in found] for what in ("alarm", "verdict")}
    title = "Seconds from a hang to the alarm and the verdict"
    PICTURE.write_text(shares(title, times, (5, 10, 15, 20, 30, 60, 120)))
    load = sorted(row["load"] for row in found)[len(found) // 2]
    right = sum(bool(row["right"]) for row in found)
    rows = [
        (f"the {what}", *(f"{value:.1f} s" for value in placed(values)), target)
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
    """Put text and table where docs/watching.md has them."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if end:
        PAGE.write_text(f"{before}{BEGIN}{section.text}\n\n{table(section)}\n\n{end}{after}")


SECTIONS = {"hang_verdict": hang_verdict, "detection": detection, "two_nodes": two_nodes}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, nargs="?", default=0, help="jobs to let hang; 0: show")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--at-once", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("--add", action="store_true", help="keep the rows that the file has")
    parser.add_argument("--nodes", action="store_true", help="on one node and on two")
    words = parser.parse_args()
    if words.runs:
        what = (on_one_and_two, TWO_NODES) if words.nodes else (one_hang, MEASURED)
        measure(words.runs, words.first, words.at_once, *what, add=words.add)
