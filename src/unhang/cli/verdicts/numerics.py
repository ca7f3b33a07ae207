"""Find where numbers first differ: one program on two devices or dtypes, or one model on all ranks.

The target is FILE.py:FUNCTION, a function without arguments that returns (program, arguments): a
module or function, and a tuple of its arguments. With --across-ranks it returns a module; start it
on all ranks (torchrun … -m unhang numerics …). The file is run: give only code that you trust.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unhang.cli.shared.output import add_report_arguments, emit, report_options
from unhang.errors import InputError, MissingExtraError, UnhangError, UsageError
from unhang.wording import printable

EXAMPLES = """unhang numerics check.py:build --on cpu/float32 --on cpu/bfloat16
unhang numerics check.py:build --on cpu --on cuda:0 --ops
unhang numerics check.py:build --on cpu --on cuda:0 --rtol 0 --atol 0
torchrun --nproc-per-node 8 -m unhang numerics check.py:model --across-ranks"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang numerics`."""
    parser.add_argument(
        "target", metavar="FILE.py:FUNCTION", help="the function that builds the program"
    )
    parser.add_argument("--on", action="append", metavar="DEVICE[/DTYPE]", help="give it twice")
    parser.add_argument(
        "--ops", action="store_true", help="compare every operator, not only modules"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="X", help="widen the allowed difference"
    )
    parser.add_argument(
        "--rtol",
        type=float,
        metavar="X",
        help="allowed relative difference, as in torch.testing; 0 with --atol 0 for none",
    )
    parser.add_argument(
        "--atol", type=float, metavar="X", help="allowed absolute difference; give both or neither"
    )
    parser.add_argument("--across-ranks", action="store_true", help="compare the ranks' parameters")
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Record twice and compare, or compare over ranks."""
    _check(args)  # before torch, which takes seconds to import
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("Comparing numbers (torch)", "torch") from error
    if args.across_ranks:
        return _across_ranks(args, torch)
    from unhang.numerics import Setting, Tolerance, compare, record

    settings = [Setting.parse(text) for text in args.on]
    torch.manual_seed(args.seed)
    with _users_code(args.target):
        program, arguments = _built(args.target)
        first, second = (
            record(program, arguments, setting, operators=args.ops, seed=args.seed)
            for setting in settings
        )
    allowed = None if args.rtol is None else Tolerance(args.rtol, args.atol)
    return emit(compare(first, second, args.scale, allowed), report_options(args))


@contextmanager
def _users_code(target: str) -> Iterator[None]:
    """Say in a sentence, with the line, what goes wrong in the code that the user gave.

    Raises:
        InputError: The code cannot be read, or raised something.
    """
    try:
        yield
    except UnhangError:
        raise
    except SyntaxError as error:
        place = f"{error.filename}:{error.lineno}"
        raise InputError(f"{target} is no Python: {error.msg} ({place})") from error
    except Exception as error:  # whatever the user's code raises
        own = Path(target.rpartition(":")[0]).resolve()
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == own]
        place = f" at {own.name}:{lines[-1]}" if lines else ""
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        hint = "Run the function by itself first: it must work on every --on."
        raise InputError(f"{target} raised {printable(what, 200)}{place}", hint) from error


def _check(args: argparse.Namespace) -> None:
    """What can be said without torch."""
    name = args.target.rpartition(":")[0]
    if not name or not Path(name).is_file():
        raise InputError(f"{name or args.target!r} is not a file", "Give FILE.py:FUNCTION.")
    if args.across_ranks:
        if "RANK" not in os.environ:
            raise UsageError(
                "--across-ranks runs on all ranks", "Start it with torchrun -m unhang …"
            )
    elif len(args.on or ()) != 2:  # noqa: PLR2004 - two sides
        raise UsageError("two settings are needed", "For example: --on cpu --on cpu/bfloat16")
    if (args.rtol is None) != (args.atol is None):
        raise UsageError("--rtol and --atol go together", "Exactly equal: --rtol 0 --atol 0")
    if any(value is not None and not 0 <= value < math.inf for value in (args.rtol, args.atol)):
        raise UsageError("--rtol and --atol are 0 or above", "Exactly equal: --rtol 0 --atol 0")
    if args.rtol is not None and args.scale != 1:
        raise UsageError("--scale widens what the dtypes allow", "Use it, or --rtol and --atol.")
    if args.scale <= 0:
        raise UsageError("--scale must be above 0", "1 is torch.testing's tolerance.")


def _across_ranks(args: argparse.Namespace, torch: Any) -> int:  # noqa: ANN401 - the module
    from unhang.numerics import compare_across_ranks

    dist = torch.distributed
    started = not dist.is_initialized()
    if started:
        dist.init_process_group("gloo")
    try:
        with _users_code(args.target):
            module = _load(args.target)()
        report = compare_across_ranks(module)
    finally:
        if started:
            dist.destroy_process_group()
    return 0 if report is None else emit(report, report_options(args))


def _built(target: str) -> tuple[Any, tuple[Any, ...]]:
    made = _load(target)()
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[1], tuple):  # noqa: PLR2004 - a pair
        raise UsageError(
            f"{target} does not return (program, arguments)",
            "For example: return model, (torch.randn(4, 8),)",
        )
    return made


def _load(target: str) -> Any:  # noqa: ANN401 - the user's function
    name, _, function = target.rpartition(":")
    path = Path(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{name} is no Python file", "Give FILE.py:FUNCTION.")
    module = importlib.util.module_from_spec(spec)
    # It is the user's program: it finds its own modules as if it had been started by itself.
    sys.path[:0] = dict.fromkeys([str(path.resolve().parent), str(Path.cwd())])
    spec.loader.exec_module(module)
    found = getattr(module, function, None)
    if not callable(found):
        raise UsageError(f"{name} has no function {function!r}", "Give FILE.py:FUNCTION.")
    return found
