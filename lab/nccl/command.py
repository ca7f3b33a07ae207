"""Put a released CUDA build of torch on a fake device, and capture what its NCCL recorder writes.

The numbers, states, groups, watchdog, files and pickling are torch's own; the device, NCCL and
what hangs on them are not (lab/nccl/README.md). `make setup-nccl` makes an environment.
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.errors import UsageError

if TYPE_CHECKING:
    from lab.nccl.build import Device

EXAMPLES = """python -m lab nccl build
python -m lab nccl capture -o captures/2.13.0
python -m lab nccl capture stall circle --timing -o captures/2.13.0-timing
python -m lab nccl capture --draw 38 --seed 7 -o captures/drawn
eval "$(python -m lab nccl build)" && .venv-nccl/bin/torchrun --nproc-per-node 2 job.py"""

DEFAULT_PYTHON = Path(".venv-nccl/bin/python")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `python -m lab nccl`."""
    parser.add_argument("do", choices=("build", "capture"), help="what to do")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="which jobs; default: all")
    parser.add_argument(
        "--python", type=Path, default=DEFAULT_PYTHON, help=f"default: {DEFAULT_PYTHON}"
    )
    parser.add_argument("--draw", type=int, metavar="N", help="so many programs made by chance")
    parser.add_argument("--seed", type=int, default=0, help="which programs (default: 0)")
    parser.add_argument("--timing", action="store_true", help="with TORCH_NCCL_ENABLE_TIMING=1")
    parser.add_argument("--at-once", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument("--timeout", type=float, default=12.0, metavar="S", help="default: 12")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep raw dumps and logs here")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where archives go")


def run(args: argparse.Namespace) -> int:
    """Build, or build and capture."""
    from lab.nccl.build import build

    device = build(args.python.absolute())  # jobs run elsewhere
    if args.do == "build":
        for name, value in device.environment().items():
            print(f"export {name}={shlex.quote(value)}")
        return 0
    return _capture(args, device)


def _capture(args: argparse.Namespace, device: Device) -> int:
    from lab.nccl.capture import CaptureRequest, capture, pack
    from lab.nccl.faults import FAULTS
    from lab.nccl.found import FOUND
    from lab.nccl.programs import draw

    jobs = {**FAULTS, **FOUND}
    if unknown := sorted(set(args.jobs) - jobs.keys()):
        raise UsageError(f"There is no job {unknown[0]!r}.", f"One of: {', '.join(jobs)}")
    if args.output is None:
        raise UsageError("Where should the captures go?", "Name a directory: -o DIR")
    faults = [jobs[name] for name in args.jobs] or list(jobs.values())
    if args.draw:
        faults = list(draw(args.seed, args.draw))
    request = CaptureRequest(timing=args.timing, timeout_s=args.timeout, at_once=args.at_once)
    with tempfile.TemporaryDirectory(prefix="unhang-lab-") as place:
        raw = args.keep or Path(place)
        capture(device, faults, request, raw.absolute())
        for name, dumps in pack(raw, faults, args.output).items():
            print(f"{name}: {dumps} dumps")
    return 0
