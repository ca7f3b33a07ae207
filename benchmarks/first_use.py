"""What the first use costs in an environment into which a wheel was just installed, and later ones.

In containers every use may be a first one: nothing that it leaves behind is kept.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import ROOT, Cost, Section, measure, show
from benchmarks.jobs import Shape, write_dumps

__all__ = ["environment", "main"]

SHAPE = Shape(8, 2000)


def main(*, quick: bool = False) -> Section:
    """Measure the first use, and later ones with and without a place to write to."""
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as scratch:
        place = Path(scratch)
        write_dumps(place / "dumps", SHAPE)
        python = environment(place)
        words = [str(python), "-m", "unhang", "diagnose", str(place / "dumps")]
        runs = 3 if quick else 9
        own = {"PYTHONPATH": "", "HOME": str(place)}
        first = measure(words, runs=1, env=own)
        later = measure(words, runs=runs, env=own)
        nowhere = {**own, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
        without = measure(words, runs=runs, env=nowhere)
    return Section(
        title="First use",
        text=(
            f"`unhang diagnose` of {SHAPE.ranks} ranks of {SHAPE.entries:,} entries with a wheel "
            "that pip has just installed into a new environment: the first run, and medians of "
            f"{runs} later ones, with a home directory and without."
        ),
        columns=("use", "time", "CPU", "peak"),
        rows=(_row("the first", first), _row("later", later), _row("with no home", without)),
    )


def environment(folder: Path) -> Path:
    """Install this checkout's wheel, with what `--db` needs, into a new environment; its Python."""
    python = folder / "environment" / "bin" / "python"
    for words in (
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)],
        [sys.executable, "-m", "venv", str(python.parents[1])],
    ):
        subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    wheel = next(folder.glob("*.whl"))
    words = [str(python), "-m", "pip", "install", "-q", f"{wheel}[sql]"]
    subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return python


def _row(name: str, cost: Cost) -> tuple[str, ...]:
    return name, f"{cost.wall_s:.2f} s", f"{cost.cpu_s:.2f} s", f"{cost.peak_mib:.0f} MiB"


if __name__ == "__main__":
    print(show(main(quick="--quick" in sys.argv)))
