"""The command line as a test runs it: in a process of its own, with its output."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

LIMIT_S = 600


def unhang(
    *words: object, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `unhang WORDS…`."""
    return subprocess.run(
        [sys.executable, "-m", "unhang", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=environ,
        cwd=cwd,
    )
