"""Trace Python calls of all processes of a command, or the system calls of a process.

Python calls go to bounded files that keep the last calls before silence, also of a process that is
killed or stops answering; without --include, calls of installed packages are left out. System calls
are read with strace: what a process waits in, on which file or socket, and whether it spins; with
-o FILE what strace printed is kept (a name that ends in .json, .md or .html takes the report).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from unhang.cli.shared.output import (
    ReportOptions,
    add_report_arguments,
    emit,
    keep,
    look_of,
    report_options,
)
from unhang.errors import InputError, OutputError, ToolError, UsageError

EXAMPLES = """unhang trace -- torchrun --nproc-per-node 4 train.py
unhang trace --include mypackage,torch.distributed -- python train.py
unhang trace --show unhang-trace-20251120-101500
unhang trace --syscalls 4711 --seconds 10 -o strace.txt
unhang trace --syscalls strace.txt
unhang trace --syscalls 4711 --case unhang-cases/20251120-101500-job
unhang trace --syscalls -- python train.py"""

MAX_BYTES = 1 << 30
MAX_SECONDS = 86_400
FROM_THE_START = ""
_REPORTS = (".json", ".md", ".html", ".htm")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang trace`."""
    parser.add_argument("--show", metavar="DIR", help="judge an existing trace")
    parser.add_argument(
        "--syscalls",
        nargs="?",
        const=FROM_THE_START,
        metavar="PID|FILE",
        help="attach strace to a process and all below it; judge what strace -o FILE wrote (also "
        "with -ff; several files; - is stdin); with neither, run the command under strace",
    )
    parser.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="duration, with --syscalls PID"
    )
    parser.add_argument("--include", default="", metavar="NAMES", help="packages to trace")
    parser.add_argument("--exclude", default="", metavar="NAMES", help="packages to leave out")
    parser.add_argument("--dir", metavar="DIR", help="where to write (default: a new directory)")
    parser.add_argument("--size", type=int, default=4 << 20, metavar="BYTES", help="per process")
    parser.add_argument("cmd", nargs=argparse.REMAINDER, metavar="-- CMD", help="what to run")
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run and trace a command, show a trace, or trace system calls."""
    command = args.cmd[1:] if args.cmd[:1] == ["--"] else args.cmd
    if args.syscalls == FROM_THE_START and command:
        return _under_strace(command, args)
    if args.syscalls and all(Path(name).is_file() for name in command):
        args.files, command = [args.syscalls, *command], []
    if args.syscalls == FROM_THE_START:
        raise UsageError(
            "--syscalls needs a process, a file or a command",
            "unhang trace --syscalls PID, or FILE, or -- COMMAND; unhang stacks lists the ranks.",
        )
    if sum((bool(args.show), args.syscalls is not None, bool(command))) != 1:
        raise UsageError("one of --show, --syscalls and a command is needed", "See --help.")
    if args.show:
        return _show(Path(args.show), report_options(args))
    if args.syscalls is not None:
        return _syscalls(args)
    if args.case is not None:
        raise UsageError(
            "--case saves a verdict, and tracing a command gives none",
            "Judge what it wrote: unhang trace --show DIR --case CASE",
        )
    return _run(command, args)


def _show(folder: Path, options: ReportOptions) -> int:
    from unhang.analysis import diagnose
    from unhang.case import Case
    from unhang.trace.reading import last_calls, read_traces

    traces, notes = read_traces(folder)
    calls = last_calls(traces)
    if not calls:
        raise InputError(
            "the traces hold no call", "Was the command traced until it called something?"
        )
    return emit(diagnose(Case(last_calls=calls, notes=tuple(notes))), options)


def _syscalls(args: argparse.Namespace) -> int:
    from unhang.trace.syscall_judging import judge_syscalls
    from unhang.trace.syscalls import read_strace, strace_files, trace_pid

    if not args.syscalls.isdecimal():
        if paths := [path for name in args.files for path in strace_files(name)]:
            return emit(judge_syscalls(read_strace(paths)), report_options(args))
        raise UsageError(
            f"{args.syscalls!r} is no process id and no file",
            "To run a command: unhang trace --syscalls -- …",
        )
    if not int(args.syscalls):
        raise UsageError(f"{args.syscalls!r} is no process id", "See them with: ps -ef")
    if not 0 < args.seconds <= MAX_SECONDS:
        raise UsageError(f"--seconds must be above 0, up to {MAX_SECONDS}", "5 is usually enough.")
    pids, why = _processes(int(args.syscalls))
    with _raw(args) as (raw, options):
        observed = trace_pid(pids, args.seconds, raw, why)
    return emit(judge_syscalls(observed), options)


def _processes(pid: int) -> tuple[list[int], tuple[str, str]]:
    """A process and all below it, and what to say if the kernel does not let us look at it."""
    from unhang.collect.permission import refusal
    from unhang.collect.processes import read_processes

    table = read_processes()
    if pid not in table.by_pid:
        raise UsageError(
            f"there is no process {pid}", "unhang stacks lists the ranks of this node."
        )
    why = refusal(table.by_pid[pid], again=f"unhang trace --syscalls {pid}")
    return [process.pid for process in table.below(pid)], (why.reason, why.hint)


@contextmanager
def _raw(args: argparse.Namespace) -> Iterator[tuple[TextIO | None, ReportOptions]]:
    """The file that keeps what strace prints, its owner's alone; then the report goes elsewhere."""
    name = args.output
    if not name or args.format or Path(name).suffix.lower() in _REPORTS:
        yield None, report_options(args)
        return
    args.output = None
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OutputError(f"{name} cannot be written: {error.strerror}") from error
    with open(descriptor, "w", encoding="utf-8") as keep:  # noqa: PTH123 - a descriptor
        yield keep, report_options(args)
    print(f"unhang: what strace printed is in {name}", file=sys.stderr)


def _under_strace(command: list[str], args: argparse.Namespace) -> int:
    """Run the command under strace; the report goes to -o, or to stderr."""
    from unhang import reports
    from unhang.trace.syscall_judging import judge_syscalls
    from unhang.trace.syscalls import trace_command

    with _raw(args) as (raw, options):
        observed = trace_command(command, raw)
    report = judge_syscalls(observed)
    if options.output:
        emit(report, options)
    else:
        keep(report, options)
        look = look_of(options.look, sys.stderr, os.environ)
        print(reports.render(options.format, report, None, look), file=sys.stderr, end="")
    return observed.exit_code or 0


def _run(command: list[str], args: argparse.Namespace) -> int:
    """Run the command with our hook first; returns the command's own exit code."""
    if not 1 << 17 <= args.size <= MAX_BYTES:
        raise UsageError("--size must be 131072 to 1073741824 bytes", "It is per process.")
    folder = Path(args.dir or time.strftime("unhang-trace-%Y%m%d-%H%M%S"))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=False)
    except FileExistsError as error:
        raise OutputError(f"{folder} exists already", "Name a new one with --dir.") from error
    except OSError as error:
        raise OutputError(f"{folder} cannot be created: {error.strerror}", "Use --dir.") from error
    hook = str(Path(__file__).parents[2] / "trace" / "hook")
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
