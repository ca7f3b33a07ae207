"""That a small case stays quick: what a verdict needs is imported, and no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UNUSED = (
    "numpy.ma", "rich.progress", "tarfile", "zipfile", "unhang.casedir.manifest",
    "unhang.ingest.pickles.unpickle", "unhang.logs.failure", "unhang.logs.rules", "unhang.picture",
    "unhang.stacks.reading", "unhang.trace.reading",
)  # fmt: skip


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of one line."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_a_verdict_from_dumps_imports_nothing_that_it_does_not_need() -> None:
    """No rules of logs without logs, no archives, no page, no reader of stacks."""
    code = (
        "import sys; from unhang.ingest.native.library import Library, found\n"
        "from unhang.cli.main import main\n"
        "main(['diagnose', sys.argv[1]])\n"
        "print(isinstance(found(), Library), *(n for n in sys.argv[2:] if n in sys.modules))"
    )
    done = python(code, "examples/never-joined", *UNUSED)
    library, *imported = done.stdout.splitlines()[-1].split()
    assert library == "True" or "unhang.ingest.pickles.unpickle" in imported
    assert [name for name in imported if library == "True"] == []


@pytest.mark.parametrize("held", [False, True])
def test_a_reading_command_ends_at_once_and_leaves_nothing_out(*, held: bool) -> None:
    """What is registered for the end runs; where a thread runs, Python waits for it."""
    code = (
        "import atexit, sys, threading; from unhang.cli.main import main\n"
        "atexit.register(lambda: print('registered'))\n"
        "class Left:\n"
        "    def __del__(self): print('taken apart')\n"
        "left = Left()\n"
        "done = threading.Event()\n"
        "if sys.argv.pop() == 'True':\n"
        "    threading.Thread(target=lambda: (done.wait(), print('thread'))).start()\n"
        "code = main()\n"
        "done.set(); sys.exit(code)"
    )
    done = python(code, "explain", "UH101", str(held))
    told = done.stdout.splitlines()
    assert done.returncode == 0
    assert "registered" in told
    assert ("taken apart" in told, "thread" in told) == (held, held)
