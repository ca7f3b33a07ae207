"""Run a job with the recorder in it; when it hangs or crashes, collect evidence and diagnose.

CMD is any launcher or script: torchrun, python -m torch.distributed.run, accelerate, deepspeed,
mpirun, srun, or plain python with RANK set. Input, output, signals and exit code
pass through, and its code needs no change. When calls no longer finish, or a rank dies, the
evidence of all ranks goes into a case directory and the verdict to stderr.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from unhang.errors import UsageError
from unhang.isolated import python_command

EXAMPLES = """unhang run -- torchrun --nproc-per-node 8 train.py
unhang run --hang-after 120 --on-hang kill -- torchrun --nproc-per-node 8 train.py
unhang run --serve -- torchrun --nproc-per-node 8 train.py
unhang run --dry-run -- python train.py"""

DEFAULT_HANG_AFTER_S = 300.0
DEFAULT_GRACE_S = 60.0
AUTO = 0.0
"""What stands for `--hang-after auto`."""


def _patience(text: str) -> float:
    """Seconds, or the word "auto"; below 0 for what is neither 0 nor above."""
    if text == "auto":
        return AUTO
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither seconds nor auto") from None
    return seconds if seconds > 0 else -1.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang run`."""
    parser.add_argument(
        "command_line", nargs=argparse.REMAINDER, metavar="-- CMD…", help="the command to run"
    )
    watch = parser.add_argument_group("watching")
    watch.add_argument(
        "--hang-after",
        type=_patience,
        default=AUTO,
        metavar="SECONDS",
        help="declare a hang after SECONDS without a completed call, longer if the job survived "
        "longer pauses. auto (default): derived from the job's usual iteration time, at most 300",
    )
    watch.add_argument(
        "--grace",
        type=float,
        default=DEFAULT_GRACE_S,
        metavar="SECONDS",
        help="how long a rank may pause in its own code (data, storage, a service) while its peers "
        "wait (default: 60). Until then its name has low confidence and --on-hang does nothing",
    )
    watch.add_argument(
        "--on-hang",
        choices=("report", "kill", "keep", "decide"),
        default="report",
        help="after the verdict: leave the job to its own timeout (default), end it, freeze its "
        "processes for a debugger, or (decide) end it if only a fix or a restart helps",
    )
    watch.add_argument(
        "--exit-verdict",
        action="store_true",
        help="return the verdict's exit code (0, 1, 3) instead of the command's",
    )
    case = parser.add_argument_group("case")
    case.add_argument(
        "--case", metavar="DIR", help="directory of the case (default: unhang-cases/<time>-<job>)"
    )
    case.add_argument(
        "--job",
        metavar="ID",
        help="the job's id; give all nodes the same if unhang does not find it",
    )
    case.add_argument(
        "--logs",
        choices=("auto", "always", "never"),
        default="auto",
        help="keep the last output: from files and pipes (default), from terminals too, or never",
    )
    nodes = parser.add_argument_group(
        "nodes", "supervisors of one job act as one where all have the same token"
    )
    nodes.add_argument(
        "--meet",
        metavar="HOST:PORT",
        help="where they meet (default: the job's rendezvous host, 1000 above the job's port)",
    )
    nodes.add_argument(
        "--meet-token",
        metavar="FILE",
        help="file with the token, 16 characters or more, readable by you alone (default: "
        "UNHANG_MEET_TOKEN in the environment); without one nothing listens",
    )
    record = parser.add_argument_group("recording")
    record.add_argument(
        "--no-arm", action="store_true", help="do not load the recorder into the processes"
    )
    record.add_argument(
        "--buffer-size", type=int, default=0, metavar="N", help="calls kept per rank (2000)"
    )
    record.add_argument(
        "--timing", action="store_true", help="let NCCL record start and duration of calls"
    )
    record.add_argument(
        "--rank-logs",
        metavar="DIR",
        help="keep the whole log of each torchrun rank in DIR (default: the end of each, and only "
        "in a case)",
    )
    record.add_argument(
        "--no-rank-logs",
        action="store_true",
        help="do not prefix lines with their rank, and let torchrun write no log per rank",
    )
    record.add_argument(
        "--blocking", action="store_true", help="show errors of kernels at their call; slow"
    )
    devices = record.add_mutually_exclusive_group()
    devices.add_argument(
        "--on-cpu", action="store_true", help='hide all GPUs: CUDA_VISIBLE_DEVICES=""'
    )
    devices.add_argument(
        "--one-gpu", action="store_true", help="show only the first GPU; start one rank"
    )
    record.add_argument(
        "--cpp-stacks",
        action="store_true",
        help="record C++ frames of each call too; dumps take seconds longer, the job hardly slows",
    )
    record.add_argument(
        "--symbolize",
        choices=("fast", "dladdr", "addr2line"),
        help="how names of C++ frames are found, with --cpp-stacks: fast (default); dladdr, which "
        "lacks functions that are not exported; addr2line, slow, with lines of inlined functions",
    )
    talk = parser.add_argument_group("talking")
    talk.add_argument(
        "--serve",
        action="store_true",
        help="show the job live in a browser, on this node; its address is printed",
    )
    talk.add_argument(
        "--notify",
        action="append",
        default=[],
        metavar="URL-OR-CMD",
        help="notify about each verdict, and about a job that recovers: a URL (Slack, "
        "PagerDuty, Alertmanager, or plain JSON), or a command that reads JSON; repeatable",
    )
    talk.add_argument(
        "--metrics",
        metavar="FILE",
        help="write the ranks' progress and the verdict for Prometheus: NAME.prom in the "
        "directory of a textfile collector",
    )
    talk.add_argument(
        "-v", "--verbose", action="store_true", help="print settings and observations"
    )
    talk.add_argument("-q", "--quiet", action="store_true", help="print only the verdict")
    talk.add_argument("--dry-run", action="store_true", help="print the settings and do not run")


def run(args: argparse.Namespace) -> int:
    """Run the command under supervision; returns its exit code."""
    command = list(args.command_line)
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise UsageError("no command to run", "unhang run -- torchrun … train.py")
    if not args.hang_after >= 0:
        raise UsageError("--hang-after takes a time", "give seconds above 0, or auto")
    if not 0 <= args.grace < float("inf"):
        raise UsageError("--grace takes a time", "give seconds, or 0 for none")
    if args.buffer_size < 0:
        raise UsageError(f"--buffer-size {args.buffer_size} is not a size", "give 1 or more")
    if args.notify:
        from unhang.run.incident.notifying import receiver_of

        for text in args.notify:
            receiver_of(text)
    if args.serve and not args.dry_run:
        with _served(args):
            return _session(command, args)
    return _session(command, args)


@contextmanager
def _served(args: argparse.Namespace) -> Iterator[None]:
    """A server next to the job, in its own process; its address goes to stderr."""
    from unhang.casedir.manifest import CASES

    words = ["serve", "--live", "--port", "0", "--for-process", str(os.getpid())]
    words += [
        *(["--job", args.job] if args.job else []),
        "--",
        CASES,
        *([args.case] if args.case else []),
    ]
    command = python_command("unhang", *words)
    server = subprocess.Popen(  # noqa: S603 - our own command
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
    )
    try:
        yield
    finally:
        server.terminate()
        server.wait()


def _session(command: Sequence[str], args: argparse.Namespace) -> int:
    from unhang.run.session import Wishes, run_session

    return run_session(
        command,
        Wishes(
            hang_after_s=args.hang_after or DEFAULT_HANG_AFTER_S,
            auto=args.hang_after == AUTO,
            grace_s=args.grace,
            on_hang=args.on_hang,
            exit_verdict=args.exit_verdict,
            case=args.case or "",
            job=args.job or "",
            logs=args.logs,
            arm=not args.no_arm,
            buffer_size=args.buffer_size,
            timing=args.timing,
            blocking=args.blocking,
            gpus="none" if args.on_cpu else "one" if args.one_gpu else "",
            symbolize=args.symbolize or ("fast" if args.cpp_stacks else ""),
            rank_logs=not args.no_rank_logs,
            rank_log_place=args.rank_logs or "",
            verbose=args.verbose,
            quiet=args.quiet,
            notify=tuple(args.notify),
            dry_run=args.dry_run,
            metrics=args.metrics or "",
            meet=args.meet or "",
            meet_token=args.meet_token or "",
        ),
    )
