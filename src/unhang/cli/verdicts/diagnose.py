"""Find which rank, call and line a stuck job waits for, from its dumps, stacks and logs.

PATH is a case directory, a directory of dumps, files, a glob, or a tar or zip of those. Without
PATH it is the newest case under ./unhang-cases. With --engine ray it may also be s3://bucket/folder
or another address that fsspec knows, and file:///folder for one that all nodes share.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from glob import glob
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from unhang.cli.shared.case_paths import (
    CaseOptions,
    add_case_arguments,
    case_options,
    load_case,
    place_of,
)
from unhang.cli.shared.output import (
    DRAWINGS,
    ReportOptions,
    add_report_arguments,
    emit,
    report_options,
)
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


_MALLOC = ((-1, (1 << 31) - 1), (-2, 64 << 20), (-3, 32 << 20))
"""M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_THRESHOLD of mallopt(3), each near its largest."""
_FOR_PROGRAMS = ("json", "brief-json", "jsonl")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang diagnose`."""
    add_case_arguments(parser)
    parser.add_argument(
        "--engine",
        metavar="ray[:ADDRESS]",
        help="read and reduce the dumps where they are, by tasks of this Ray cluster",
    )
    beside = parser.add_argument_group("further evidence", "each may be repeated")
    for name, metavar, text in (
        ("--log", "FILE", "read this log too: a file, a directory, a glob in quotes, or -"),
        ("--trace", "DIR", "a trace by unhang trace: shows what culprits did last"),
        ("--report", "FILE", "a JSON report of doctor, trace, numerics…: adds its findings"),
        (
            "--ras",
            "FILE",
            "output of ncclras, text or JSON (- for pasted text): shows ranks that are behind",
        ),
        (
            "--core",
            "FILE",
            "a core file, or a directory of them: shows which rank crashed, and where",
        ),
    ):
        beside.add_argument(name, action="append", default=[], metavar=metavar, help=text)
    beside.add_argument("--no-logs", action="store_true", help="ignore the logs in the case")
    beside.add_argument(
        "--no-baseline",
        action="store_true",
        help="do not compare logs with an earlier healthy case of the same job",
    )
    judging = parser.add_argument_group("judging")
    judging.add_argument(
        "--slow", action="store_true", help="report late ranks even if the job is stuck"
    )
    judging.add_argument(
        "--fail-on",
        choices=("any", "cause"),
        default="any",
        help="exit 1 for any problem (default), or only if a cause is found: a slow job passes",
    )
    judging.add_argument(
        "--history",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="search the saved reports of cases in DIR for the same incident; repeatable",
    )
    judging.add_argument(
        "--watch",
        action="store_true",
        help="judge again whenever the files change, until Ctrl-C; without a terminal, print each "
        "new verdict once",
    )
    tables = parser.add_argument_group("tables")
    tables.add_argument("--db", metavar="FILE", help="also write the case as a DuckDB file")
    tables.add_argument("--parquet", metavar="DIR", help="also write the case as Parquet files")
    tables.add_argument("--force", action="store_true", help="replace existing tables")
    sharing = parser.add_argument_group("sharing")
    sharing.add_argument(
        "--redact",
        action="store_true",
        help="replace hosts, users, directories, addresses and secrets consistently",
    )
    add_report_arguments(parser, DRAWINGS, case=False)


@dataclass(frozen=True, slots=True)
class DiagnoseOptions:
    """What was asked for, made once.

    Attributes:
        reading: Which case.
        beside: What else is read.
        report: Where the verdict goes.
        engine: As --engine has it.
        slow: Say who arrives late even where the job is stuck.
        redact: Replace names and addresses.
        db: The DuckDB file to write.
        parquet: The directory of Parquet files to write.
        force: Replace tables that are there.
    """

    reading: CaseOptions
    beside: Beside
    report: ReportOptions
    engine: str | None
    slow: bool
    redact: bool
    db: str | None
    parquet: str | None
    force: bool

    @property
    def writes_tables(self) -> bool:
        """Whether the case is also written as tables."""
        return bool(self.db or self.parquet)

    @property
    def is_pasted(self) -> bool:
        """Whether something is read from stdin, which can be read once."""
        return "-" in (*self.beside.logs, *self.beside.ras)

    @property
    def for_programs(self) -> bool:
        """Whether a program reads the verdict."""
        return self.report.format in _FOR_PROGRAMS


def _options(args: argparse.Namespace) -> DiagnoseOptions:
    from unhang.ingest import Beside

    beside = Beside(
        logs=tuple(args.log),
        traces=tuple(args.trace),
        cores=tuple(args.core),
        reports=tuple(args.report),
        ras=tuple(args.ras),
        case_logs=not args.no_logs,
        baseline=not args.no_baseline,
    )
    return DiagnoseOptions(
        case_options(args), beside, report_options(args), args.engine, args.slow, args.redact,
        args.db, args.parquet, args.force,
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Read, judge, write what is asked for, report; with --watch again and again."""
    if args.force and not (args.db or args.parquet):
        raise UsageError(
            "--force is about --db and --parquet", "Name one of them, or leave it out."
        )
    if args.db or args.parquet:
        from unhang.tables import engine_soon

        engine_soon()  # before the work: without it no tables can be written
    options = _options(args)
    if args.watch:
        return _watch(options)
    try:
        return _judged(options)[1]()
    except NoEvidenceError as error:
        code = None if options.redact or options.writes_tables else _as_paste(options)
        if code is not None:
            return code
        if options.redact or not options.for_programs:
            raise
        return emit(_nothing_read(error), options.report)


def _as_paste(options: DiagnoseOptions) -> int | None:
    """The verdict where the paths are texts: logs, stacks, what RAS printed."""
    from unhang.cli.verdicts.paste import instead

    paths = options.reading.paths
    return instead(paths, "dump", options.report) if paths and not options.engine else None


def _watch(options: DiagnoseOptions) -> int:
    """Judge again whenever the files change."""
    from unhang.cli.shared.lookout import Lookout, follow

    _check_watch(options)
    beside = options.beside
    others = (*beside.logs, *beside.traces, *beside.cores, *beside.reports, *beside.ras)
    lookout = Lookout(options.reading.paths, tuple(map(str, others)))

    def judge() -> tuple[Report, Callable[[], int]]:
        return _judged(
            replace(options, reading=replace(options.reading, paths=tuple(lookout.now())))
        )

    return follow(lookout, judge, options.report.fail_on)


def _check_watch(options: DiagnoseOptions) -> None:
    if options.is_pasted:
        raise UsageError("--watch looks at files", "Pasted text does not change.")
    if options.writes_tables:
        raise UsageError("--watch writes no tables", "Leave out --db and --parquet.")
    if options.engine:
        raise UsageError("--watch watches files of this machine", "Leave out --engine.")


def _judged(options: DiagnoseOptions) -> tuple[Report, Callable[[], int]]:
    """The report, and what writes and shows it."""
    reading = options.reading.checked().found(options.beside)
    options = replace(options, reading=reading)
    with _engine(options) as engine:
        case, report = _verdict(options, engine)
        if engine is not None and engine.left_out_times(case, report):
            engine.all_times = True
            case, report = _verdict(options, engine)
    place = _place(options)
    return report, lambda: emit(report, options.report, case, place=place)


def _verdict(options: DiagnoseOptions, engine: RayEngine | None) -> tuple[Case, Report]:
    """Read and judge, without names where that is asked for."""
    Thread(target=_import_analysis, daemon=True).start()
    _keep_freed_memory()
    case = load_case(options.reading, options.beside, engine)
    from unhang.analysis import diagnose

    redactor = _redactor(options, engine)
    if redactor is not None:
        case = redactor.case(case)

    def judged() -> Report:
        report = diagnose(case, slow=options.slow)
        return report if redactor is None else redactor.report(report)

    return case, _with_tables(case, judged, options)


def _keep_freed_memory() -> None:
    """Have glibc keep what columns free: the next ones need it, and the process ends soon.

    Giving pages back and taking them again was a seventh of the CPU time for 1,024 ranks.
    """
    import ctypes

    with suppress(AttributeError):  # another C library
        for option, value in _MALLOC:
            ctypes.CDLL(None).mallopt(option, value)


def _import_analysis() -> None:
    """Import what judges while dumps are decoded, which needs no Python.

    What fails here fails again where it is needed, and is said there.
    """
    with suppress(Exception):
        import_module("unhang.analysis")
        import_module("unhang.reports.text")


def _engine(options: DiagnoseOptions) -> AbstractContextManager[RayEngine | None]:
    """What --engine names; None where files are read here."""
    if options.engine is None:
        return nullcontext()
    name, _, address = options.engine.partition(":")
    if name != "ray":
        raise UsageError(f"there is no engine {options.engine!r}", "Use ray or ray:ADDRESS.")
    from unhang.ingest.ray import ray_engine

    drawn = not (options.for_programs or options.report.is_prose)
    every = bool(options.slow or options.writes_tables or drawn or options.is_pasted)
    return ray_engine(address, rank_pattern=options.reading.rank_pattern, all_times=every)


def _place(options: DiagnoseOptions) -> Place | None:
    """Where commands that help next find the evidence; None where they would not, or may not."""
    if options.redact:
        return None
    reading = options.reading
    if options.engine is not None:
        reading = replace(
            reading, paths=tuple(path.removeprefix("file://") for path in reading.paths)
        )
        if not all(glob(path) for path in reading.paths):  # noqa: PTH207 - absolute patterns
            return None
    return place_of(reading, tuple(map(str, options.beside.logs)))


def _nothing_read(error: NoEvidenceError) -> Report:
    """The report for programs if no file has anything to judge: it has the usual form."""
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


def _redactor(options: DiagnoseOptions, engine: RayEngine | None) -> Redactor | None:
    if not options.redact:
        return None
    from unhang.redact import Redactor

    redactor = Redactor()
    redactor.learn(hosts=engine.hosts if engine else ())
    return redactor


def _with_tables(case: Case, judged: Callable[[], Report], options: DiagnoseOptions) -> Report:
    """The verdict; tables that do not need it are written at the same time."""
    if not options.writes_tables:
        return judged()
    from concurrent.futures import ThreadPoolExecutor

    from unhang.tables import write_database, write_parquet

    with ThreadPoolExecutor(1) as other:
        report = other.submit(judged)
        if options.db:
            write_database(case, report.result, options.db, force=options.force)
        if options.parquet:
            write_parquet(case, report.result, options.parquet, force=options.force)
        return report.result()
