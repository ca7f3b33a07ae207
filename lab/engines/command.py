"""Let serving engines, and trainers with a server, stand still in twelve ways: what is said?

Each fault runs real processes with the titles, queues and frames of vLLM or SGLang; `unhang stacks`
looks at all of them, and its verdict is compared with the truth.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lab.engines.faults import FAULTS, EngineFault
from lab.engines.running import started
from unhang.errors import UsageError

EXAMPLES = """python -m lab engines
python -m lab engines worker-stuck idle"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `python -m lab engines`."""
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of: {', '.join(FAULTS)}")


def run(args: argparse.Namespace) -> int:
    """Run faults one after another; 1 where a verdict is not right."""
    if unknown := [name for name in args.faults if name not in FAULTS]:
        raise UsageError(f"there is no fault {unknown[0]!r}", f"There are: {', '.join(FAULTS)}.")
    right = [_told(FAULTS[name]) for name in args.faults or FAULTS]
    print(f"{sum(right)} of {len(right)} are told as they are")
    return 0 if all(right) else 1


def _told(fault: EngineFault) -> bool:
    """Run one fault, and print what is said of it."""
    with (
        tempfile.TemporaryDirectory(prefix="unhang-lab-") as place,
        started(fault, Path(place)) as standing,
    ):
        report = looked_at(standing.processes())
    wrong = fault.wrong(report)
    print(f"{fault.name:16} {wrong or 'right':12} {report['summary']}", flush=True)
    return not wrong


def looked_at(pids: list[int]) -> dict[str, Any]:
    """The report of `unhang stacks` over these processes."""
    named = [word for pid in pids for word in ("--pid", str(pid))]
    command = [sys.executable, "-m", "unhang", "stacks", *named, "--format", "json"]
    done = subprocess.run(  # noqa: S603 - our own command
        command, capture_output=True, text=True, check=False
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report
