"""What `unhang run` adds to a command that needs nothing of it, as whole processes."""

from __future__ import annotations

import sys

from benchmarks.figures import Section, measure, program, show

__all__ = ["main"]

RUNS = 21


def main(*, quick: bool = False) -> Section:
    """Measure commands bare and under `unhang run`; `quick` takes fewer runs."""
    runs = 5 if quick else RUNS
    rows = []
    for name, command in (("true", ["true"]), ("python -c ''", [sys.executable, "-c", ""])):
        bare = measure(command, runs=runs)
        wrapped = measure(program("run", "--", *command), runs=runs)
        over = (wrapped.wall_s - bare.wall_s) * 1000
        shown = (f"{bare.wall_s * 1000:.0f} ms", f"{wrapped.wall_s * 1000:.0f} ms")
        rows.append((f"`{name}`", *shown, f"{over:+.0f} ms", "< 100 ms"))
    return Section(
        title="unhang run over the bare command",
        text=f"Wall time of whole processes, medians of {runs} runs, files in the page cache.",
        columns=("command", "bare", "under unhang run", "added", "target"),
        rows=tuple(rows),
    )


if __name__ == "__main__":
    print(show(main(quick="--quick" in sys.argv)))
