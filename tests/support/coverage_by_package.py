"""How much of each package the unit tests reach, and whether it is enough: `make coverage`.

A package of `FLOORS` must not fall below its share: those of a thousand statements and more. What
runs in processes of its own (commands, ranks, nodes) is reached by tests/integration, uncounted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

FLOORS = {
    "unhang": 84, "analysis": 97, "logs": 95, "stacks": 94, "reports": 93, "ingest": 87,
    "rehearse": 85, "record": 80, "collect": 76, "doctor": 73, "run": 69, "cli": 61,
}  # fmt: skip
"""Percent of the statements of all and of top packages, as the tests of `make check` reach them."""


def measured() -> dict[str, dict[str, dict[str, int]]]:
    """What `coverage json` tells of each file, by its path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        command = [sys.executable, "-m", "coverage", "json", "-q", "-o", str(path)]
        subprocess.run(command, check=True)
        files: dict[str, dict[str, dict[str, int]]] = json.loads(path.read_text())["files"]
    return files


def shares(files: dict[str, dict[str, dict[str, int]]]) -> dict[str, tuple[float, int]]:
    """Percent reached and number of statements: of each package, of each top package, of all."""
    reached: Counter[str] = Counter()
    all_of: Counter[str] = Counter()
    for path, told in files.items():
        parts = Path(path).parts
        inside = parts[len(parts) - 1 - parts[::-1].index("unhang") :]
        for package in {"unhang", inside[1].removesuffix(".py"), "/".join(inside[:-1])}:
            reached[package] += told["summary"]["covered_lines"]
            all_of[package] += told["summary"]["num_statements"]
    return {each: (100 * reached[each] / max(all_of[each], 1), all_of[each]) for each in all_of}


def main() -> int:
    """Print a line a package, the least covered first; 1 if one is below its floor."""
    told = shares(measured())
    for package, (share, statements) in sorted(told.items(), key=lambda each: each[1]):
        print(f"{share:5.1f} %  {statements:6} statements  {package}")
    low = [each for each, floor in FLOORS.items() if told.get(each, (0.0, 0))[0] < floor]
    for package in low:
        print(f"{package}: below its floor of {FLOORS[package]} %")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
