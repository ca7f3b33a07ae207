"""Find which rank, call and line a stuck job waits for, from its dumps, stacks and logs.

PATH is a case directory, a directory of dumps, files, a glob, or a tar or zip of those. Without
PATH it is the newest case under ./unhang-cases. With --engine ray it may also be s3://bucket/folder
or another address that fsspec knows, and file:///folder for one that all nodes share.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from glob import glob
from typing import TYPE_CHECKING

from unhang.cli.shared.case_paths import add_case_arguments, load_case, place_of
from unhang.cli.shared.output import DRAWINGS, add_report_arguments, emit, format_of
from unhang.errors import NoEvidenceError, UsageError

if TYPE_CHECKING:
    from unhang.case import Case
    from unhang.casedir.place import Place
    from unhang.ingest import Beside
    from unhang.ingest.ray import RayEngine
    from unhang.redact import Redactor
    from unhang.report import Report

EXAMPLES = """unhang diagnose dumps/
unhang diagnose job.tar.gz --world-size 64
unhang diagnose dumps/ --log train.log --log 'logs/*.err'
unhang diagnose dumps/ --report doctor.json
unhang diagnose --ras ras.json
unhang diagnose dumps/ --format json -o report.json
unhang diagnose dumps/ --db out.duckdb
unhang diagnose dumps/ --redact --format markdown -o for-the-issue.md
unhang diagnose dumps/ --fail-on cause
unhang diagnose --engine ray:10.0.0.1:6379 /tmp/nccl_trace
unhang diagnose --engine ray s3://bucket/run7/dumps
unhang diagnose --watch"""


_FOR_PROGRAMS = ("json", "brief-json", "jsonl")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang diagnose`."""
    add_case_arguments(parser)
    parser.add_argument(
        "--engine",
        metavar="ray[:ADDRESS]",
        help="read and reduce the dumps where they are, by tasks of this Ray cluster",
    )
    beside = parser.add_argument_group("beside the dumps", "each may be repeated")
    for name, metavar, text in (
        ("--log", "FILE", "read this log too: a file, a directory, a glob in quotes, or -"),
        ("--trace", "DIR", "what unhang trace wrote: shows what culprits did last"),
        ("--report", "FILE", "a JSON report of doctor, trace, numerics…: says what it found"),
        ("--ras", "FILE", "what ncclras printed, text or JSON (- for pasted text): who is behind"),
        ("--core", "FILE", "a core file, or a directory of them: shows who crashed, and where"),
    ):
        beside.add_argument(name, action="append", default=[], metavar=metavar, help=text)
    beside.add_argument(
        "--no-logs", action="store_true", help="leave out the logs that lie in the case"
    )
    beside.add_argument(
        "--no-baseline",
        action="store_true",
        help="do not compare them with an earlier case of the same job that ended well",
    )
    judging = parser.add_argument_group("judging")
    judging.add_argument(
        "--slow", action="store_true", help="say who arrives late even where the job is stuck"
    )
    judging.add_argument(
        "--fail-on",
        choices=("any", "cause"),
        default="any",
        help="exit 1 for any problem (default), or only where a cause was found: a slow job passes",
    )
    judging.add_argument(
        "--watch",
        action="store_true",
        help="judge again whenever the files change, until Ctrl-C; not on a terminal: print each "
        "new verdict once",
    )
    tables = parser.add_argument_group("tables")
    tables.add_argument("--db", metavar="FILE", help="also write the case as a DuckDB file")
    tables.add_argument("--parquet", metavar="DIR", help="also write the case as Parquet files")
    tables.add_argument("--force", action="store_true", help="replace tables that are there")
    sharing = parser.add_argument_group("sharing")
    sharing.add_argument(
        "--redact",
        action="store_true",
        help="replace hosts, users, directories, addresses and secrets, the same by the same",
    )
    add_report_arguments(parser, DRAWINGS, case=False)


def run(args: argparse.Namespace) -> int:
    """Read, judge, write what is asked for, report; with --watch again and again."""
    if args.force and not (args.db or args.parquet):
        raise UsageError(
            "--force is about --db and --parquet", "Name one of them, or leave it out."
        )
    if args.db or args.parquet:
        from unhang.tables import engine_soon

        engine_soon()  # before the work: without it no tables can be written
    if not args.watch:
        return _judged(args)[1]()
    from unhang.cli.shared.following import Lookout, follow

    _check_watch(args)
    named = tuple(args.paths)
    beside = (*args.log, *args.trace, *args.core, *args.report, *args.ras)
    lookout = Lookout(named, beside)

    def judge() -> tuple[Report, Callable[[], int]]:
        args.paths = lookout.now()
        return _judged(args)

    return follow(lookout, judge, args.fail_on)


def _check_watch(args: argparse.Namespace) -> None:
    if "-" in (*args.log, *args.ras):
        raise UsageError("--watch looks at files", "What is pasted does not change.")
    if args.db or args.parquet:
        raise UsageError("--watch writes no tables", "Leave out --db and --parquet.")
    if args.engine:
        raise UsageError("--watch looks at files of this machine", "Leave out --engine.")


def _judged(args: argparse.Namespace) -> tuple[Report, Callable[[], int]]:
    """The report, and what writes and shows it."""
    try:
        with _engine(args) as engine:
            case, report = _verdict(args, engine)
            if engine is not None and engine.left_out_times(case, report):
                engine.all_times = True
                case, report = _verdict(args, engine)
    except NoEvidenceError as error:
        if args.redact or format_of(args) not in _FOR_PROGRAMS:
            raise
        nothing = _nothing_read(error)
        return nothing, lambda: emit(nothing, args)
    place = _place(args)

    return report, lambda: emit(report, args, case, place=place)


def _verdict(args: argparse.Namespace, engine: RayEngine | None) -> tuple[Case, Report]:
    """Read and judge, without names where that is asked for."""
    from unhang.analysis import diagnose

    case = load_case(args, _beside(args), engine)
    redactor = _redactor(args, engine)
    if redactor is not None:
        case = redactor.case(case)

    def judged() -> Report:
        report = diagnose(case, slow=args.slow)
        return report if redactor is None else redactor.report(report)

    return case, _with_tables(case, judged, args)


def _engine(args: argparse.Namespace) -> AbstractContextManager[RayEngine | None]:
    """What --engine names; None where files are read here."""
    if args.engine is None:
        return nullcontext()
    name, _, address = args.engine.partition(":")
    if name != "ray":
        raise UsageError(f"there is no engine {args.engine!r}", "There is ray, and ray:ADDRESS.")
    from unhang.ingest.ray import ray_engine

    drawn = format_of(args) not in (*_FOR_PROGRAMS, "text", "markdown")
    once = "-" in (*args.log, *args.ras)  # what is pasted can be read once
    every = bool(args.slow or args.db or args.parquet or drawn or once)
    return ray_engine(address, rank_pattern=args.rank_pattern, all_times=every)


def _place(args: argparse.Namespace) -> Place | None:
    """Where commands that help next find the evidence; None where they would not, or may not."""
    if args.redact:
        return None
    if args.engine is not None:
        args.paths = [str(path).removeprefix("file://") for path in args.paths]
        if not all(glob(str(path)) for path in args.paths):  # noqa: PTH207 - absolute patterns
            return None
    return place_of(args)


def _nothing_read(error: NoEvidenceError) -> Report:
    """What programs are told where no file has anything to judge: a report like any other."""
    from unhang.analysis.decision import without_evidence
    from unhang.kinds import INSUFFICIENT_EVIDENCE
    from unhang.report import Finding, Report

    kind, advice = INSUFFICIENT_EVIDENCE, (error.hint,) if error.hint else ()
    finding = Finding(
        "f1",
        kind.code,
        kind.role,
        "low",
        error.message,
        actions=advice,
        confidence_reasons=("no file could be judged",),
    )
    return Report("insufficient", error.message, findings=(finding,), decision=without_evidence())


def _beside(args: argparse.Namespace) -> Beside:
    from unhang.ingest import Beside

    return Beside(
        logs=tuple(args.log),
        traces=tuple(args.trace),
        cores=tuple(args.core),
        reports=tuple(args.report),
        ras=tuple(args.ras),
        case_logs=not args.no_logs,
        baseline=not args.no_baseline,
    )


def _redactor(args: argparse.Namespace, engine: RayEngine | None) -> Redactor | None:
    if not args.redact:
        return None
    from unhang.redact import Redactor

    redactor = Redactor()
    redactor.learn(hosts=engine.hosts if engine else ())
    return redactor


def _with_tables(case: Case, judged: Callable[[], Report], args: argparse.Namespace) -> Report:
    """The verdict; tables that are asked for are written meanwhile, as far as they do without."""
    if not (args.db or args.parquet):
        return judged()
    from concurrent.futures import ThreadPoolExecutor

    from unhang.tables import write_database, write_parquet

    with ThreadPoolExecutor(1) as other:
        report = other.submit(judged)
        if args.db:
            write_database(case, report.result, args.db, force=args.force)
        if args.parquet:
            write_parquet(case, report.result, args.parquet, force=args.force)
        return report.result()
