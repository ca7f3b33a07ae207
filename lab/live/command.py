"""Run a real distributed job with a fault in it and keep what torch's recorder holds when it hangs.

Each fault is a small training script; its processes talk over Gloo on this machine, no GPU is
needed. The capture is a directory with one dump per rank, which `unhang diagnose` reads, and with
the truth about it.
"""

from __future__ import annotations

import argparse
import sys
from itertools import count
from pathlib import Path

from lab.live.faults import FAULTS
from unhang.errors import UsageError

EXAMPLES = """python -m lab live --list
python -m lab live never-joined --diagnose
python -m lab live crossed-order --ranks 8 -o captures/crossed"""

DEFAULT_PLACE = Path("unhang-lab")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `python -m lab live`."""
    parser.add_argument("fault", nargs="?", metavar="FAULT", help="which fault; see --list")
    parser.add_argument("--list", action="store_true", help="list the faults and leave")
    parser.add_argument("--ranks", type=int, metavar="N", help="number of processes, 2 to 8")
    parser.add_argument("--odd", type=int, metavar="RANK", help="which rank has the fault")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help=f"where the capture goes; default: the next free name in {DEFAULT_PLACE}/",
    )
    parser.add_argument("--diagnose", action="store_true", help="say at once what is wrong")
    parser.add_argument(
        "--redact", action="store_true", help="replace the paths of this machine in the dumps"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how long the job may take to get stuck (default: 120)",
    )


def run(args: argparse.Namespace) -> int:
    """Capture one fault, and diagnose it if asked; without --diagnose the exit code is 0."""
    if args.list:
        return _list()
    fault = FAULTS.get(args.fault or "")
    if fault is None:
        wanted = f"there is no live fault {args.fault!r}" if args.fault else "name a fault"
        raise UsageError(wanted, "python -m lab live --list")
    from lab.live.capture import capture, checked_request

    request = checked_request(
        fault, ranks=args.ranks, odd=args.odd, timeout_s=args.timeout, redact=args.redact
    )
    directory = args.output or _free_place(fault.name)
    _say(f"{fault.meaning}")
    _say(f"starting {request.ranks} ranks, and waiting until the right ones are stuck")
    truth = capture(request, directory)
    _say(" ".join([f"captured in {directory}.", *truth.notes[1:]]))
    return _diagnose(directory) if args.diagnose else 0


def _list() -> int:
    width = max(map(len, FAULTS))
    for fault in FAULTS.values():
        print(f"{fault.name:{width}}  {fault.meaning}")
    return 0


def _free_place(name: str) -> Path:
    return next(
        place for number in count(1) if not (place := DEFAULT_PLACE / f"{name}-{number}").exists()
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _diagnose(directory: Path) -> int:
    from unhang.cli.main import main

    _say(f"$ unhang diagnose {directory}\n")
    return main(["diagnose", str(directory)])
