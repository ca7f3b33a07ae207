"""How much of each package the tests reach: `make coverage` prints it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path


def measured() -> dict[str, dict[str, dict[str, int]]]:
    """What `coverage json` tells of each file, by its path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        command = [sys.executable, "-m", "coverage", "json", "-q", "-o", str(path)]
        subprocess.run(command, check=True)
        files: dict[str, dict[str, dict[str, int]]] = json.loads(path.read_text())["files"]
    return files


def main() -> None:
    """Print a line a package, the least covered first."""
    reached: Counter[str] = Counter()
    all_of: Counter[str] = Counter()
    for path, told in measured().items():
        parts = Path(path).parts
        package = "/".join(parts[parts.index("unhang") : -1])
        reached[package] += told["summary"]["covered_lines"]
        all_of[package] += told["summary"]["num_statements"]
    for package in sorted(all_of, key=lambda each: reached[each] / max(all_of[each], 1)):
        share = 100 * reached[package] / max(all_of[package], 1)
        print(f"{share:5.1f} %  {all_of[package]:6} statements  {package}")
    whole = 100 * reached.total() / all_of.total()
    print(f"{whole:5.1f} %  {all_of.total():6} statements  all")


if __name__ == "__main__":
    main()
