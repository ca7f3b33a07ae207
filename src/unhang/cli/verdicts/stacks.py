"""Show where the ranks of a job are: their stacks in one tree, equal ones folded, odd ones first.

Without arguments it finds the ranks on this node and samples them twice, to separate ranks that
move from ranks that are stuck. PATH is a file or a folder of saved stacks: py-spy, faulthandler,
pystack, gdb, torch's debug server, or what this command wrote with --save.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
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
from unhang.cli.shared.output import (
    EXIT_HEALTHY,
    ReportOptions,
    add_report_arguments,
    deliver,
    emit,
    exit_code,
    keep,
    look_of,
    report_options,
)
from unhang.errors import InputError, NoEvidenceError, OutputError, UsageError
from unhang.wording import fold_ranks, parse_ranks, printable

if TYPE_CHECKING:
    from unhang.case import Case
    from unhang.collect.processes import Process
    from unhang.collect.ranks import Target
    from unhang.model import Note, ProcessSample
    from unhang.stacks.tree.prefix_tree import StackTree

EXAMPLES = """unhang stacks
unhang stacks --native --samples 3 --interval 5
unhang stacks --pid 4711
unhang stacks --tree 4711 --full
unhang stacks saved-stacks/ --format json
unhang stacks saved-stacks/ --no-verdict --ranks 0-3,7
py-spy dump --pid 4711 | unhang stacks -
unhang stacks --slurm 4711
unhang stacks --hosts node[01-16] --job train
unhang stacks --format speedscope -o stacks.speedscope.json
unhang stacks --save stacks.json"""

_TREE_FORMATS = ("speedscope", "collapsed", "tree")
_LONGEST_INTERVAL_S = 3_600.0
_MOST_SAMPLES = 100
_STDIN = "-"
_MOST_PASTED = 256 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang stacks`."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="saved stacks, globs, or - for pasted text; default: inspect live processes",
    )
    whom = parser.add_argument_group("which processes")
    choice = whom.add_mutually_exclusive_group()
    choice.add_argument("--pid", type=int, action="append", metavar="PID", help="this process only")
    choice.add_argument("--tree", type=int, metavar="PID", help="a process and all below it")
    choice.add_argument("--all-python", action="store_true", help="every Python process here")
    whom.add_argument("--job", metavar="ID", help="which job, if several run on this node")
    how = parser.add_argument_group("how to look")
    how.add_argument(
        "--samples", type=int, default=2, metavar="N", help="number of samples (default: 2)"
    )
    how.add_argument(
        "--interval",
        type=float,
        default=1.0,
        metavar="S",
        help="seconds between samples (default: 1)",
    )
    how.add_argument(
        "--native",
        action="store_true",
        help="include C and C++ frames; pauses each process briefly",
    )
    how.add_argument(
        "--timeout",
        type=float,
        default=10.0,
        metavar="S",
        help="time limit for one sample of one process",
    )
    add_launcher_arguments(parser)
    parser.add_argument("--save", metavar="FILE", help="also save the stacks, for PATH")
    show = parser.add_argument_group("what to show")
    show.add_argument(
        "--full", action="store_true", help="show all threads, helpers, library frames"
    )
    show.add_argument("--ranks", metavar="LIST", help="like 0-3,7; default: all")
    show.add_argument(
        "--no-verdict", action="store_true", help="print the stacks without a verdict"
    )
    add_report_arguments(parser, _TREE_FORMATS)


def run(args: argparse.Namespace) -> int:
    """Look or read, judge, show."""
    _check(args)
    trees: list[StackTree] = []
    try:
        case = _of_ranks(_evidence(args, trees), trees, args.ranks)
    except NoEvidenceError:
        if (code := _as_paste(args)) is not None:
            return code
        raise
    if args.save:
        _save(case, args.save)
    shown = report_options(args)
    return _show(case, trees, shown, full=args.full, judges=not args.no_verdict)


def _as_paste(args: argparse.Namespace) -> int | None:
    """The verdict on files that hold other evidence than stacks; None where none is wanted."""
    shown = report_options(args)
    if not args.paths or args.no_verdict or args.save or shown.format in _TREE_FORMATS:
        return None
    from unhang.cli.verdicts.paste import instead

    return instead(args.paths, "saved stacks", shown)


def _check(args: argparse.Namespace) -> None:
    pids = [*(args.pid or ()), *([] if args.tree is None else [args.tree])]
    if is_chosen(args) and (args.paths or pids or args.all_python):
        raise UsageError(
            "other nodes are searched for ranks; PATH, --pid, --tree and --all-python are of this",
            "Use one or the other.",
        )
    if args.paths and (pids or args.all_python or args.job):
        raise UsageError(
            "PATH is for saved stacks; --pid, --tree, --all-python and --job for live processes",
            "Use one or the other.",
        )
    if not 1 <= args.samples <= _MOST_SAMPLES:
        raise UsageError(f"--samples {args.samples} is out of bounds", f"1 to {_MOST_SAMPLES}.")
    if not 0 <= args.interval <= _LONGEST_INTERVAL_S:
        raise UsageError(f"--interval {args.interval:g} is out of bounds", "Seconds, 0 to 3600.")
    if not 0 < args.timeout <= _LONGEST_INTERVAL_S:
        raise UsageError(f"--timeout {args.timeout:g} is out of bounds", "Seconds, above 0.")
    if any(pid <= 0 for pid in pids):
        raise UsageError("a process id is above 0", "See them with: ps -ef")


def _of_ranks(case: Case, trees: Sequence[StackTree], wanted: str | None) -> Case:
    """The case with the samples of some ranks alone."""
    if wanted is None:
        return case
    if trees:
        raise UsageError("--ranks picks from stacks of ranks, not from merged trees")
    ranks, there = parse_ranks(wanted), {sample.rank for sample in case.samples}
    if strangers := ranks - there:
        known = fold_ranks(rank for rank in there if rank >= 0)
        raise UsageError(
            f"there is no stack of rank {fold_ranks(strangers)}",
            f"Ranks with stacks: {known or 'none'}",
        )
    return replace(case, samples=tuple(s for s in case.samples if s.rank in ranks))


def _evidence(args: argparse.Namespace, trees: list[StackTree]) -> Case:
    if args.paths:
        return _saved(args, trees)
    return _elsewhere(args) if is_chosen(args) else _live(args)


def _saved(args: argparse.Namespace, trees: list[StackTree]) -> Case:
    """Read saved stacks; partial trees go to `trees`."""
    from unhang.case import Case
    from unhang.globs import expanded
    from unhang.regular import links_out, not_followed
    from unhang.stacks.reading import parse_stacks, read_stacks

    samples: list[ProcessSample] = []
    notes: list[Note] = []
    for name in args.paths:
        if name == _STDIN:
            reading = parse_stacks(sys.stdin.buffer.read(_MOST_PASTED), "standard input")
            samples += reading.samples
            notes += reading.notes
            continue
        for path in expanded(name, "Give files or folders of saved stacks, globs, or - ."):
            if (tree := _tree(path)) is not None:
                trees.append(tree)
                continue
            links = links_out(Path(path)) if Path(path).is_dir() else []
            notes += not_followed(Path(path), links)
            reading = read_stacks(path, {*links})
            samples += reading.samples
            notes += reading.notes
    if not samples and not trees:
        why = f": {notes[0].source} {notes[0].text}" if notes else ""
        raise NoEvidenceError(
            f"found no stacks{why}",
            "Known are py-spy, faulthandler, pystack, gdb, lldb, torch's debug server and our own.",
        )
    return Case(samples=tuple(samples), notes=tuple(notes))


def _tree(name: str) -> StackTree | None:
    from unhang.stacks.tree.treefile import read_tree

    try:
        return read_tree(Path(name))
    except (OSError, ValueError) as error:
        raise InputError(f"{name} cannot be read: {error}") from error


def _live(args: argparse.Namespace) -> Case:
    from unhang.case import Case
    from unhang.collect.sampling import sample_processes

    targets = _targets(args)
    looks = sample_processes(
        targets,
        looks=args.samples,
        interval_s=args.interval,
        native=args.native,
        timeout_s=args.timeout,
    )
    if args.pid and not any(sample.threads for sample in looks.samples):
        first = next((sample for sample in looks.samples if sample.error), None)
        why = f": {first.error}" if first else ""
        hint = looks.hints[0] if looks.hints else "Name a Python process, or try --native."
        raise NoEvidenceError(f"no stack of process {args.pid[0]} could be taken{why}", hint)
    world_size = max((target.world_size for target in targets), default=0)
    return Case(samples=looks.samples, notes=looks.notes, world_size=world_size)


def _elsewhere(args: argparse.Namespace) -> Case:
    """Look at the ranks of other nodes, through a launcher."""
    from unhang.case import Case
    from unhang.casedir.manifest import create_case
    from unhang.model import Note
    from unhang.stacks.reading import read_stacks

    launcher = checked_launcher(args)
    orders: dict[str, object] = {
        "what": ["stacks"],
        "looks": args.samples,
        "interval_s": args.interval,
        "native": args.native,
        "look_s": args.timeout,
    }
    if args.job is not None:
        orders["job"] = args.job
    plan = plan_of(args, orders)
    nodes = launcher.nodes()
    with TemporaryDirectory(prefix="unhang-stacks-") as scratch:
        case = create_case(Path(scratch), "stacks", time.time())
        gathered = gather_with_progress(launcher, nodes, plan, case)
        reading = read_stacks(case / "stacks")
    refuse_mixture(gathered)
    tell_failures(gathered, nodes)
    if not reading.samples:
        why = f": {gathered.notes[0]}" if gathered.notes else ""
        raise NoEvidenceError(f"no node sent a stack{why}", "See unhang stacks on a node.")
    notes = [Note("warning", node, why) for node, why in sorted(gathered.failed.items())]
    notes += [Note("info", "nodes", note) for note in dict.fromkeys(gathered.notes)]
    return Case(
        samples=reading.samples,
        notes=(*notes, *reading.notes),
        world_size=gathered.world_size,
    )


def _targets(args: argparse.Namespace) -> Sequence[Target]:
    from unhang.collect.processes import read_processes
    from unhang.collect.ranks import (
        Target,
        below,
        find_ranks,
        marks_of,
        of_one_job,
        python_processes,
    )

    table = read_processes()
    skip = [os.getpid(), *(process.pid for process in table.above(os.getpid()))]
    ranks = find_ranks(table, marks_of(table), skip)
    for pid in [*(args.pid or ()), *([args.tree] if args.tree else [])]:
        if pid not in table.by_pid:
            raise InputError(f"there is no process {pid}", "It may have ended: see ps -ef.")
    if args.pid:
        known = {target.process.pid: target for target in ranks}
        return of_one_job([known.get(pid, Target(table.by_pid[pid])) for pid in args.pid])
    if args.tree:
        return of_one_job(below(table, args.tree, ranks))
    if args.all_python:
        found = python_processes(table, ranks)
        return of_one_job([target for target in found if target.process.pid not in skip])
    return _of_one_job(ranks, args.job, _where_else(table.by_pid))


def _where_else(processes: Mapping[int, Process]) -> str:
    """What to do where no rank is found: other users' processes may be hidden from us."""
    hidden = sum(each.python and each.environ is None for each in processes.values())
    if hidden:
        return (
            f"{hidden} Python processes of other users hide their environment: "
            "run it as that user, or with sudo."
        )
    if 1 not in processes:  # every PID namespace has it: /proc is mounted with hidepid
        return "/proc hides other users' processes here: run it as the job's user, or with sudo."
    return "Name processes with --pid or --tree, or inspect all of them with --all-python."


def _of_one_job(targets: Sequence[Target], job: str | None, hint: str) -> Sequence[Target]:
    jobs = sorted({target.job for target in targets})
    if job is not None:
        chosen = [target for target in targets if target.job == job]
        if not chosen:
            raise InputError(f"no rank of job {job} runs here", f"There are: {_listed(jobs)}.")
        return chosen
    if not targets:
        raise NoEvidenceError("no rank of any job was found on this node", hint)
    if len(jobs) > 1:
        raise UsageError(
            f"several jobs run on this node: {_listed(jobs)}", "Choose one with --job ID."
        )
    return targets


def _listed(jobs: Sequence[str]) -> str:
    return ", ".join(job or "''" for job in jobs) or "none"


def _save(case: Case, name: str) -> None:
    from unhang.casedir.reports import keep_private
    from unhang.stacks.formats.saved import write_samples

    try:
        write_samples(Path(name), case.samples)
        keep_private(Path(name), Path(name))
    except OSError as error:
        raise OutputError(f"{name} cannot be written: {error.strerror}") from error


def _show(
    case: Case, trees: list[StackTree], options: ReportOptions, *, full: bool, judges: bool
) -> int:
    from unhang.stacks.tree.gathering import rows_of
    from unhang.stacks.tree.prefix_tree import from_stacks, merge

    tree = merge([from_stacks(rows_of(case.samples, full=full)), *trees])
    exported = options.format in _TREE_FORMATS
    if exported:
        _export(tree, options)
    if not judges or not case.samples:
        _tell_losses(case)
        return _show_tree(tree, options, full=full, judges=judges)
    from unhang.analysis import diagnose

    report = diagnose(case)
    if exported:
        keep(report, options)
        return exit_code(report)
    below = _drawn(tree, options, full=full) if options.is_prose else ""
    return emit(report, options, case, below=below)


def _show_tree(tree: StackTree, options: ReportOptions, *, full: bool, judges: bool) -> int:
    """What is only to be looked at: partial trees, or whatever --no-verdict is given for."""
    what, instead = "a merged tree holds", "Give the saved stacks themselves"
    if not judges:
        what, instead = "with --no-verdict there is", "Leave --no-verdict out"
    if options.case is not None:
        raise UsageError(f"{what} no verdict to save", f"{instead}.")
    if options.format not in _TREE_FORMATS:
        if not options.is_prose:
            raise UsageError(
                f"{what} no verdict to write as {options.format}",
                f"{instead}, or use --format text.",
            )
        deliver(_drawn(tree, options, full=full), options.output)
    return EXIT_HEALTHY


def _tell_losses(case: Case) -> None:
    """What could not be read stands in no verdict here."""
    for note in case.notes:
        if note.level != "info":
            print(f"unhang: {printable(note.source)}: {printable(note.text)}", file=sys.stderr)


def _drawn(tree: StackTree, options: ReportOptions, *, full: bool) -> str:
    from unhang.stacks.tree.drawing import draw

    look = look_of(options.look, sys.stdout, os.environ)
    text = draw(tree, unicode=look.unicode, full=full)
    return f"```text\n{text}```\n" if options.format == "markdown" else text


def _export(tree: StackTree, options: ReportOptions) -> None:
    from unhang.stacks.tree.exports import collapsed, speedscope
    from unhang.stacks.tree.treefile import to_bytes
    from unhang.wording import count_of

    if options.format == "tree":
        if not options.output:
            raise UsageError("a tree is no text", "Name a file with -o, for PATH or for a merge.")
        deliver(to_bytes(tree), options.output)
    elif options.format == "collapsed":
        deliver(collapsed(tree), options.output)
    else:
        deliver(
            speedscope(tree, f"stacks of {count_of(len(tree.ranks()), 'rank')}"), options.output
        )
