"""Make the armed ranks of a job write dumps of what they are doing; the job goes on.

Ranks are armed by `unhang run` or by `unhang.arm()` in the script. Each is asked over its own
socket, which answers only its user; where a thread keeps the GIL, torch's worker server answers in
its place. What comes is a case directory for `unhang diagnose`. No rank is stopped or signalled.
Without a launcher these are the ranks of this node; with one, those of all nodes of the job.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.cli.shared.launching import (
    add_launcher_arguments,
    checked_launcher,
    gather_with_progress,
    is_chosen,
    plan_of,
    refuse_mixture,
    tell_failures,
)
from unhang.cli.shared.output import EXIT_HEALTHY, EXIT_PROBLEM
from unhang.errors import NoEvidenceError, OutputError, UsageError

if TYPE_CHECKING:
    from unhang.casedir.manifest import RankPart
    from unhang.record.contact.marks import Mark
    from unhang.run.incident.evidence import Collector
    from unhang.run.watching.roster import WatchedRank

EXAMPLES = """unhang dump
unhang dump --pid 4711
unhang dump --job 8812 --case case-before-restart
unhang dump --no-stacks
unhang dump --list
unhang dump --slurm 4711
unhang dump --hosts node[01-16] --job train"""

_HINT = (
    "Start the job with 'unhang run -- CMD…', or call unhang.arm() in the script. Without either, "
    "'unhang stacks' inspects any Python process from outside."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang dump`."""
    parser.add_argument(
        "--pid", type=int, action="append", metavar="PID", help="this rank only (may be repeated)"
    )
    parser.add_argument("--job", metavar="ID", help="which job, if several run on this node")
    parser.add_argument(
        "--case",
        type=Path,
        metavar="DIR",
        help="directory to create (default: unhang-cases/<time>-<job>)",
    )
    parser.add_argument(
        "--no-stacks",
        action="store_true",
        help="calls and counters only: milliseconds instead of seconds",
    )
    parser.add_argument(
        "--list", action="store_true", help="list the armed processes here, and stop"
    )
    add_launcher_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, write, say what came; 3 if nothing did."""
    from unhang.record.contact.marks import alive, read_marks

    if is_chosen(args):
        return _elsewhere(args)
    marks = read_marks(args.job)
    living = [mark for mark in marks if alive(mark)]
    if args.list:
        return _show(living)
    members = _chosen(args, marks, living)
    case = _make_case(args, members[0].mark.job_id)
    collector = _collect(case, members, stacks=not args.no_stacks)
    _write_manifest(case, collector, members)
    return _tell(case, collector.parts())


# ------------------------------------------------------------------ whom to ask


def _chosen(
    args: argparse.Namespace, marks: Sequence[Mark], living: Sequence[Mark]
) -> list[WatchedRank]:
    """The ranks to ask, of one job.

    Raises:
        NoEvidenceError: No process is armed, or none of those asked for.
        UsageError: Several jobs run here, and no option says which.
    """
    from unhang.run.watching.roster import member_of

    if args.pid:
        by_pid = {mark.pid: mark for mark in living}
        for pid in args.pid:
            if pid not in by_pid:
                raise NoEvidenceError(f"process {pid} is not armed{_gone(pid, marks)}", _HINT)
        living = [by_pid[pid] for pid in args.pid]
    members = [member for mark in living if (member := member_of(mark)) is not None]
    if not members:
        raise NoEvidenceError(_nobody(args, marks, living), _HINT)
    jobs = sorted({member.mark.job_id for member in members})
    if len(jobs) > 1:
        raise UsageError(
            f"several jobs are armed on this node: {', '.join(jobs)}", "Choose one with --job."
        )
    return members


def _gone(pid: int, marks: Sequence[Mark]) -> str:
    if any(mark.pid == pid for mark in marks):
        return " any more: it has ended"
    return "" if Path(f"/proc/{pid}").exists() else ": there is no such process"


def _nobody(args: argparse.Namespace, marks: Sequence[Mark], living: Sequence[Mark]) -> str:
    whose = f" of job {args.job}" if args.job else ""
    if living:
        roles = ", ".join(sorted({f"{mark.role} {mark.pid}" for mark in living}))
        return f"no armed process{whose} is a rank yet ({roles})"
    if marks:
        return f"all {len(marks)} armed processes{whose} on this node have ended"
    return f"no armed rank{whose} on this node"


def _show(living: Sequence[Mark]) -> int:
    """One line a process."""
    from unhang.wording import printable

    if not living:
        raise NoEvidenceError("no armed process on this node", _HINT)
    for mark in living:
        who = f"rank {mark.rank} of {mark.world_size}" if mark.rank is not None else mark.role
        print(printable(f"{mark.job_id}  {who}  pid {mark.pid}  {mark.phase}  {mark.command}"))
        for failure in mark.failures:
            print(printable(f"    {failure}"))
    return 0


# ------------------------------------------------------------------ asking


def _make_case(args: argparse.Namespace, job: str) -> Path:
    from unhang.casedir.manifest import CASES, create_case

    if args.case is not None and args.case.exists():
        raise OutputError(f"{args.case} exists already", "A case never overwrites: name another.")
    return create_case(Path(CASES).absolute(), job, time.time(), named=args.case).absolute()


def _collect(case: Path, members: Sequence[WatchedRank], *, stacks: bool) -> Collector:
    from unhang.run.incident.evidence import Collector
    from unhang.run.watching.roster import Roster

    first = members[0].mark
    ranks = sorted(members, key=lambda member: member.rank)
    roster = Roster(first.job_id, first.run, members=ranks, attempt=first.attempt)
    collector = Collector(
        case=case,
        run=f"dump-{os.uname().nodename}",
        incident=case.name,
        reason="asked",
        in_time=lambda: True,
        stacks=stacks,
    )
    collector.collect(roster, first.attempt)
    if stacks:
        collector.take_frames()
    return collector


def _write_manifest(case: Path, collector: Collector, members: Sequence[WatchedRank]) -> None:
    from unhang.casedir.manifest import NodePart, write_part
    from unhang.casedir.sharing import cannot_write

    mark = members[0].mark
    part = NodePart(
        run=collector.run,
        host=mark.host,
        job=mark.job_id,
        attempt=mark.attempt,
        world_size=mark.world_size or 0,
        command=(),
        incident={
            "id": case.name,
            "reason": collector.reason,
            "detail": "a user ran 'unhang dump'",
            "time_ns": time.time_ns(),
        },
        ranks=collector.parts(),
        timings_s=collector.timings_s,
        notes=collector.notes,
    )
    try:
        write_part(case, part)
    except OSError as error:
        raise cannot_write(case, error) from error


def _tell(case: Path, ranks: Sequence[RankPart]) -> int:
    """Say of whom dumps came, and of whom not and why.

    Raises:
        NoEvidenceError: None came.
    """
    from unhang.wording import fold_ranks, printable

    came = [part.rank for part in ranks if "dump" in part.came]
    for part in ranks:
        if "dump" not in part.came:
            why = part.missing.get("dump", "nothing came")
            where = f"pid {part.pid} on {part.host}"
            print(printable(f"unhang: rank {part.rank} ({where}): {why}"), file=sys.stderr)
    if not came:
        raise NoEvidenceError(f"no rank wrote a dump; other evidence is in {_shown(case)}", _HINT)
    print(f"{_shown(case)}: dumps of ranks {fold_ranks(came)}")
    print(f"next: unhang diagnose {_shown(case)}")
    return EXIT_HEALTHY


# ------------------------------------------------------------------ other nodes


def _elsewhere(args: argparse.Namespace) -> int:
    """Ask the ranks of all nodes of a job, at once; 1 if a node or a rank did not answer."""
    from unhang.wording import printable

    if args.pid or args.list:
        raise UsageError("--pid and --list are of this node", "Use one or the other.")
    launcher = checked_launcher(args)
    nodes = launcher.nodes()
    case = _make_case(args, args.job or launcher.job or "dump")
    orders: dict[str, object] = {
        "incident": case.name,
        "what": ["dumps"] if args.no_stacks else ["dumps", "stacks"],
        "asked_only": True,
        "whole_dumps": True,
        "frames": not args.no_stacks,
    }
    if args.job is not None:
        orders["job"] = args.job
    gathered = gather_with_progress(launcher, nodes, plan_of(args, orders), case)
    refuse_mixture(gathered, case)
    for note in dict.fromkeys(gathered.notes):
        print(f"note: {printable(note)}", file=sys.stderr)
    tell_failures(gathered, nodes)
    _tell(case, [gathered.parts[rank] for rank in sorted(gathered.parts)])
    silent = any("dump" not in part.came for part in gathered.parts.values())
    missing = set(range(gathered.world_size)) - gathered.ranks
    return EXIT_PROBLEM if gathered.failed or silent or missing else EXIT_HEALTHY


def _shown(path: Path) -> str:
    """Relative to here, where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
