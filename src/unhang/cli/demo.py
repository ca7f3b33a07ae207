"""Hang a small real job on this machine and diagnose it: no GPU, no code of your own.

Three processes train together on the CPU under `unhang run`; the data of one of them stop coming.
It takes half a minute. Where torch is not installed, and with --replay, the dumps of a captured
hang are diagnosed instead. Nothing is left behind unless you ask for it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from unhang.errors import InputError, OutputError, ToolError, UsageError
from unhang.isolated import python_command

EXAMPLES = """unhang demo
unhang demo --replay
unhang demo --case my-first-case"""

_HERE = Path(__file__).parents[1] / "demo"
_JOB = _HERE / "train.py"
_CAPTURED = (
    _HERE / "dumps",  # in the wheel
    Path(__file__).parents[3] / "examples" / "never-joined-armed" / "dumps",  # in a checkout
)
_RANKS = 3
_HANG_AFTER_S = 5
_JOB_ENVIRON = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}

_REPLAYED = """\
Four processes trained together until they hung. These are their dumps: three ranks wait for
the fourth. Which rank is it, where is it blocked, and what next?
"""
_NEXT = """
Next:
  unhang explain UH101                what the code means, and what else it could be
  unhang run -- torchrun train.py     your own job: when it hangs, the verdict comes by itself
  unhang diagnose DIR                 a job that hung already, from the dumps that it left"""
_LIVE = f"""\
{_RANKS} processes train together, then hang. When no call has finished for {_HANG_AFTER_S} s,
unhang looks at all of them from outside and says which one blocks the others, and where.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang demo`."""
    parser.add_argument(
        "--replay", action="store_true", help="diagnose a captured hang; needs no torch"
    )
    parser.add_argument(
        "--case", type=Path, metavar="DIR", help="keep the evidence of the live hang in DIR"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep it under unhang-cases/, as unhang run does"
    )


def run(args: argparse.Namespace) -> int:
    """Show a verdict; 0 if it came."""
    keeps = args.keep or args.case is not None
    if args.replay and keeps:
        raise UsageError("a replayed hang makes no case", "Leave out --replay, or --case.")
    if args.replay or find_spec("torch") is None:
        if keeps:
            raise UsageError(
                "a live hang needs torch", "Its CPU build is enough: pip install torch"
            )
        return _replay(asked=args.replay)
    return _live(args)


def _replay(*, asked: bool) -> int:
    """Diagnose what a real job left."""
    captured = next((place for place in _CAPTURED if place.is_dir()), None)
    if captured is None:
        raise InputError("the captured hang is not installed", "Reinstall unhang.")
    if not asked:
        _say("torch is not installed here, so this is a captured hang instead of a live one.\n")
    _say(_REPLAYED)
    _say(f"$ unhang diagnose {captured}\n")
    from unhang.cli.main import main

    code = main(["diagnose", str(captured)])
    if code != 1:
        return code
    _say(_NEXT)
    return 0


def _live(args: argparse.Namespace) -> int:
    """Hang the job under `unhang run`."""
    if args.case is not None and args.case.exists():
        raise OutputError(f"{args.case} exists", "Name a directory that does not.")
    with tempfile.TemporaryDirectory(prefix="unhang-demo-") as scratch:
        command = _command(args, Path(scratch))
        _say(_LIVE)
        _say(f"$ unhang run --hang-after {_HANG_AFTER_S} --on-hang kill -- python train.py\n")
        places = {"UNHANG_RUNTIME_DIR": scratch, "TORCHINDUCTOR_CACHE_DIR": scratch}
        environ = {**os.environ, **places, **_JOB_ENVIRON}
        code = subprocess.run(command, env=environ, check=False).returncode  # noqa: S603 - our own
    if code != 1:
        raise ToolError(
            f"the job of the demo got no verdict (exit code {code})",
            "A captured hang always has one: unhang demo --replay",
        )
    if not (args.keep or args.case):
        _say("\nThat directory is deleted; --keep keeps it.")
    _say(_NEXT)
    return 0


def _command(args: argparse.Namespace, scratch: Path) -> list[str]:
    """`unhang run` on the job, quiet but for the verdict where the case is not kept."""
    case = ["--case", str(args.case)] if args.case else []
    if not case and not args.keep:
        case = ["--case", str(scratch / "case"), "--quiet"]
    watch = ["--hang-after", str(_HANG_AFTER_S), "--on-hang", "kill", "--exit-verdict", *case]
    job = [sys.executable, str(_JOB), str(_RANKS), str(scratch / "meeting")]
    return [*python_command("unhang", "run", *watch), "--", *job]


def _say(text: str) -> None:
    print(text, flush=True)
