"""Read the logs of a distributed job: what failed first, on which rank, and what only followed.

Takes torchrun, srun --label, mpirun --tag-output, kubectl and plain logs, .gz and .zst, files,
directories or standard input (-). Lines are given to ranks by their prefixes or their file's name.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.cli.shared.output import add_report_arguments, emit, report_options
from unhang.errors import InputError, UsageError

if TYPE_CHECKING:
    from unhang.logs.files import LogSource
    from unhang.logs.keeping import LogScan
    from unhang.model import Note

EXAMPLES = """unhang logs train.log
unhang logs torchrun-logs/ --format json
kubectl logs -l job=train --prefix | unhang logs -
unhang logs train.log --rank 3
unhang logs train.log --split by-rank/
unhang logs train.log --fold
unhang logs train.log --baseline good-run.log
unhang logs train.log --baseline unhang-cases/
unhang logs -f train.log"""

POLL_S = 0.5
_MOST_OF_A_PASTE = 4 << 20
"""Bytes of logs in which stacks and RAS are looked for: people paste less, and jobs write more."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang logs`."""
    parser.add_argument("paths", nargs="+", metavar="FILE", help="logs, directories, globs, or -")
    views = parser.add_mutually_exclusive_group()
    views.add_argument("--rank", type=int, metavar="N", help="print the lines of one rank")
    views.add_argument("--split", metavar="DIR", help="write one file per rank into a new DIR")
    views.add_argument("--fold", action="store_true", help="print equal lines of all ranks once")
    views.add_argument(
        "--timeline", action="store_true", help="print known messages in order of time"
    )
    views.add_argument(
        "-f", "--follow", action="store_true", help="wait for more lines, until Ctrl-C"
    )
    parser.add_argument(
        "--baseline",
        action="append",
        default=[],
        metavar="GOODLOG",
        help="logs of a good run, or earlier healthy cases: report lines at the end that these "
        "never wrote",
    )
    parser.add_argument(
        "--no-baseline",
        action="store_true",
        help="of a case: do not compare with an earlier healthy case of the same job",
    )
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Judge the logs, or show them another way."""
    from unhang.logs.files import links_noted, named_logs

    _check(args)
    try:
        sources = named_logs(args.paths)
    except InputError:
        code = None if _view(args) else _as_paste(args, "file with the name of a log")
        if code is None:
            raise
        return code
    notes: list[Note] = links_noted(args.paths)
    if args.rank is not None:
        return _print_rank(sources, args.rank, notes)
    if args.split:
        return _split(sources, args.split, notes)
    if args.fold:
        return _fold(sources, notes)
    if args.follow:
        return _follow(sources)
    return _judge(sources, args, notes)


def _check(args: argparse.Namespace) -> None:
    """Views print lines: what is about the verdict cannot go with them."""
    if args.baseline and args.no_baseline:
        raise UsageError("--baseline and --no-baseline contradict each other", "Leave one out.")
    if args.baseline and "-" in args.paths:
        raise UsageError(
            "--baseline reads the log twice, but standard input can be read once only",
            "Save it to a file first.",
        )
    if args.rank is not None and args.rank < 0:
        raise UsageError(f"--rank {args.rank} is not a rank", "Ranks begin at 0.")
    view = _view(args)
    if view and (args.format or args.output or args.case or args.baseline):
        raise UsageError(
            f"{view} prints lines, and --format, -o, --case and --baseline are about the verdict",
            "Leave one of them out; > writes lines to a file.",
        )


def _view(args: argparse.Namespace) -> str:
    """The option that prints lines in the place of a verdict, or ""."""
    views = {
        "--rank": args.rank is not None,
        "--split": bool(args.split),
        "--fold": args.fold,
        "--timeline": args.timeline,
        "--follow": args.follow,
    }
    return next((name for name, wanted in views.items() if wanted), "")


def _judge(sources: list[LogSource], args: argparse.Namespace, notes: list[Note]) -> int:
    from unhang.analysis import diagnose
    from unhang.casedir.place import Place

    scan = _scan(sources)
    scan.notes += notes
    if not scan.bytes_read:
        first = scan.notes[0] if scan.notes else None
        what = f"{first.source} {first.text}" if first else f"{sources[0].path} is empty"
        code = _as_paste(args, "plain log") if first else None
        if code is not None:
            return code
        raise InputError(what, "No log could be read.")
    if args.timeline:
        return _timeline(scan)
    if args.baseline:
        _compare(scan, sources, args.baseline)
    elif not args.no_baseline:
        _compare_with_earlier(scan, sources, args.paths)
    from unhang.casebuilder import case_of_logs

    case = case_of_logs(scan)
    report = diagnose(case)
    small = scan.bytes_read <= _MOST_OF_A_PASTE
    if report.status == "insufficient" and small:
        code = _as_paste(args, "cause in the log", beside_logs=True)
        if code is not None:
            return code
    files = tuple(str(path) for path in args.paths if str(path) != "-")
    return emit(report, report_options(args), case, place=Place(logs=files))


def _as_paste(args: argparse.Namespace, lacks: str, *, beside_logs: bool = False) -> int | None:
    """The verdict with the stacks and RAS among the lines, where logs alone do not settle it."""
    from unhang.cli.verdicts.paste import instead

    return instead(args.paths, lacks, report_options(args), beside_logs=beside_logs)


def _compare(scan: LogScan, sources: list[LogSource], baseline: list[str]) -> None:
    """Add what is new since a good run to what was found."""
    from unhang.logs.files import named_logs
    from unhang.logs.novelty import add_new, read_good_run

    folders = [folder for name in baseline for folder in _cases_in(Path(name))]
    plain = [name for name in baseline if not _cases_in(Path(name))]
    good = read_good_run(
        named_logs(plain) if plain else (),
        scan.notes,
        named_logs([str(folder) for folder in folders]) if folders else (),
    )
    if not good.shapes:
        raise InputError(
            "--baseline holds no line",
            "Give the log of a run that went well, or a case that has logs.",
        )
    add_new(scan, sources, good)


def _compare_with_earlier(scan: LogScan, sources: list[LogSource], paths: list[str]) -> None:
    """Add what is new since the last good run, where all logs are of one case."""
    from unhang.casedir.earlier import case_of
    from unhang.logs.since import add_new_since

    cases = {case_of(Path(name)) for name in paths if name != "-"}
    if len(cases) == 1 and (case := cases.pop()) is not None:
        add_new_since(scan, sources, case)


def _cases_in(path: Path) -> list[Path]:
    """The folders of logs of a case, or of the cases that lie in a directory."""
    from unhang.casedir.place import place_in
    from unhang.casedir.reports import is_case

    if not path.is_dir():
        return []
    cases = [path] if is_case(path) else [case for case in sorted(path.iterdir()) if is_case(case)]
    return [Path(folder) for case in cases for folder in place_in(case).logs]


def _scan(sources: list[LogSource]) -> LogScan:
    """Scan with a progress bar, on a terminal and for large logs."""
    from unhang.logs.scan import scan_logs

    total = sum(source.size for source in sources)
    if total < 50 << 20 or not sys.stderr.isatty():
        return scan_logs(sources)
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading logs", total=total)
        return scan_logs(sources, lambda count: progress.advance(task, count))


def _timeline(scan: LogScan) -> int:
    from unhang.logs.failure import fold

    for group in fold(scan.events):
        event = group.first
        print(f"{_clock(event.time_ns)}  {_ranks(set(group.ranks)):14} {event.code} {event.text}")
    return 0


def _clock(time_ns: int) -> str:
    if not time_ns:
        return "(no time)          "
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time_ns / 1e9))


def _ranks(ranks: set[int]) -> str:
    from unhang.wording import fold_ranks

    if not ranks:
        return "rank ?"
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {fold_ranks(ranks)}"


def _print_rank(sources: list[LogSource], rank: int, notes: list[Note]) -> int:
    from unhang.logs.streams import lines_of, rank_of

    found = False
    for source, line in lines_of(sources, notes):
        if rank_of(source, line) == rank:
            found = True
            print(line.text)
    _complain(notes)
    if not found:
        raise UsageError(
            f"no line belongs to rank {rank}",
            "Ranks come from prefixes such as [rank3]: or from names such as rank_3.log.",
        )
    return 0


def _split(sources: list[LogSource], target: str, notes: list[Note]) -> int:
    from unhang.logs.streams import split_by_rank

    counts = split_by_rank(sources, Path(target), notes)
    _complain(notes)
    for name, lines in sorted(counts.items(), key=lambda item: (len(item[0]), item[0])):
        print(f"{target.rstrip('/')}/{name}  {lines} lines")
    return 0


def _fold(sources: list[LogSource], notes: list[Note]) -> int:
    from unhang.logs.streams import fold_lines

    for entry in fold_lines(sources, notes):
        times = f" ({entry.count} times)" if entry.count > max(len(entry.ranks), 1) else ""
        print(f"{_ranks(entry.ranks)}: {entry.text}{times}")
    _complain(notes)
    return 0


def _complain(notes: list[Note]) -> None:
    for note in notes:
        print(f"unhang: {note.source}: {note.text}", file=sys.stderr)


def _follow(sources: list[LogSource]) -> int:
    """Print known messages as they come; ends with Ctrl-C, or with the end of standard input."""
    from unhang.logs.files import open_log
    from unhang.logs.keeping import LogScan
    from unhang.logs.scan import FileScanner

    found = LogScan()
    year = time.gmtime().tm_year
    scanners = [(FileScanner(s, found, year), open_log(s.path), s.path) for s in sources]
    shown = 0
    rests = dict.fromkeys((path for _, _, path in scanners), b"")
    while True:
        ended = True
        for scanner, stream, path in scanners:
            data = rests[path] + (stream.readline() if path == "-" else stream.read())
            cut = data.rfind(b"\n") + 1
            rests[path] = data[cut:]
            scanner.feed(data[:cut])
            ended = ended and path == "-" and not cut
        for line in _news(found, shown):
            print(line, flush=True)
        shown = len(found.events)
        if ended:
            return 0
        if not any(path == "-" for path in rests):
            time.sleep(POLL_S)


def _news(found: LogScan, shown: int) -> Iterator[str]:
    from unhang.logs.rules import rule_of

    for event in found.events[shown:]:
        rule = rule_of(event.code)
        ranks = _ranks({event.rank} if event.rank >= 0 else set())
        yield f"{_clock(event.time_ns)}  {ranks}  {event.code} {event.role}: {event.text}"
        if rule and event.role == "cause":
            yield f"    {rule.meaning} {rule.action}"
