"""What it costs to start: import, --version, a small case, each as a whole process."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.figures import ROOT, Section, measure, program, show

__all__ = ["main"]

RUNS = 11
SMALL_CASE = Path("examples") / "never-joined"


def main(*, quick: bool = False) -> Section:
    """Measure start-up; `quick` takes fewer runs."""
    runs = 5 if quick else RUNS
    bare = measure([sys.executable, "-c", ""], runs=runs)
    commands = (
        ("python -c ''", [sys.executable, "-c", ""], ""),
        ("import unhang", [sys.executable, "-c", "import unhang"], "< 60 ms over the bare one"),
        ("import unhang.record", [sys.executable, "-c", "import unhang.record"], ""),
        ("unhang --version", program("--version"), "< 150 ms"),
        ("unhang --help", program("--help"), ""),
        (f"unhang diagnose {SMALL_CASE}", program("diagnose", str(ROOT / SMALL_CASE)), "< 1 s"),
    )
    rows = []
    for name, command, target in commands:
        cost = measure(command, runs=runs)
        over = (cost.wall_s - bare.wall_s) * 1000
        rows.append((f"`{name}`", f"{cost.wall_s * 1000:.0f} ms", f"{over:+.0f} ms", target))
    return Section(
        title="Start-up",
        text=f"Wall time of whole processes, medians of {runs} runs, files in the page cache.",
        columns=("command", "wall", "over bare python", "target"),
        rows=tuple(rows),
    )


if __name__ == "__main__":
    print(show(main(quick="--quick" in sys.argv)))
