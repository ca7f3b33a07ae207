"""Trace Python calls of all processes of a command, or the system calls of a process.

Python calls go to bounded files that keep the last calls before silence, also of a process that is
killed or stops answering; without --include, calls of installed packages are left out. System calls
are read with strace: what a process waits in, on which file or socket, and whether it spins.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from unhang.cli.output import add_report_arguments, emit
from unhang.errors import OutputError, ToolError, UsageError

EXAMPLES = """unhang trace -- torchrun --nproc-per-node 4 train.py
unhang trace --include mypackage,torch.distributed -- python train.py
unhang trace --show unhang-trace-20251120-101500
unhang trace --syscalls 4711 --seconds 10"""

MAX_BYTES = 1 << 30


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang trace`."""
    parser.add_argument("--show", metavar="DIR", help="judge a trace that was written before")
    parser.add_argument("--syscalls", type=int, metavar="PID", help="attach strace to a process")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="with --syscalls")
    parser.add_argument("--include", default="", metavar="NAMES", help="packages to trace")
    parser.add_argument("--exclude", default="", metavar="NAMES", help="packages to leave out")
    parser.add_argument("--dir", metavar="DIR", help="where to write (default: a new directory)")
    parser.add_argument("--size", type=int, default=4 << 20, metavar="BYTES", help="per process")
    parser.add_argument("cmd", nargs=argparse.REMAINDER, metavar="-- CMD", help="what to run")
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run and trace a command, show a trace, or trace system calls."""
    command = args.cmd[1:] if args.cmd[:1] == ["--"] else args.cmd
    if sum((bool(args.show), args.syscalls is not None, bool(command))) != 1:
        raise UsageError("one of --show, --syscalls and a command is needed", "See --help.")
    if args.show:
        return _show(Path(args.show), args)
    if args.syscalls is not None:
        return _syscalls(args)
    return _run(command, args)


def _show(folder: Path, args: argparse.Namespace) -> int:
    from unhang.trace.reading import judge_traces, read_traces

    traces, notes = read_traces(folder)
    return emit(judge_traces(traces, notes), args)


def _syscalls(args: argparse.Namespace) -> int:
    from unhang.trace.syscalls import judge_syscalls, parse_strace, trace_pid

    if args.seconds <= 0:
        raise UsageError("--seconds must be above 0", "5 is enough for most.")
    text = trace_pid(args.syscalls, args.seconds)
    return emit(judge_syscalls(parse_strace(text, args.syscalls), args.seconds), args)


def _run(command: list[str], args: argparse.Namespace) -> int:
    """Run the command with the hook before everybody's; returns the command's own exit code."""
    if not 1 << 17 <= args.size <= MAX_BYTES:
        raise UsageError("--size must be 131072 to 1073741824 bytes", "It is per process.")
    folder = Path(args.dir or time.strftime("unhang-trace-%Y%m%d-%H%M%S"))
    try:
        folder.mkdir(parents=True, exist_ok=False)
    except FileExistsError as error:
        raise OutputError(f"{folder} is there already", "Name a new one with --dir.") from error
    except OSError as error:
        raise OutputError(f"{folder} cannot be made: {error.strerror}", "Use --dir.") from error
    hook = str(Path(__file__).parents[1] / "trace" / "hook")
    before = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "PYTHONPATH": hook + (os.pathsep + before if before else ""),
        "UNHANG_TRACE_DIR": str(folder.resolve()),
        "UNHANG_TRACE_INCLUDE": args.include,
        "UNHANG_TRACE_EXCLUDE": args.exclude,
        "UNHANG_TRACE_BYTES": str(args.size // 2),
    }
    code = _child(command, environment)
    print(f"unhang: the trace is in {folder}: unhang trace --show {folder}", file=sys.stderr)
    return code


def _child(command: list[str], environment: dict[str, str]) -> int:
    try:
        with subprocess.Popen(command, env=environment) as process:  # noqa: S603 - what the user typed
            while True:
                try:
                    code = process.wait()
                    break
                except KeyboardInterrupt:
                    continue  # the child got it too and decides
    except OSError as error:
        raise ToolError(f"{command[0]} cannot be started: {error.strerror}") from error
    return 128 - code if code < 0 else code
