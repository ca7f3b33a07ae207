"""Simulate a distributed job with a fault and write the dumps that torch would have written.

The truth about it (status, culprits, codes, call, line) stands in truth.json beside the dumps.
Everything is decided by the arguments and the seed: the same command writes the same bytes.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from unhang.errors import UsageError

EXAMPLES = """python -m lab simulate --list
python -m lab simulate out --layout megatron --ranks 64 --fault never-joined
python -m lab simulate out --layout tp --ranks 131072 --fault never-joined --active-only
python -m lab simulate out --case tuned/skipped-call-3
unhang diagnose out/dumps"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("output", nargs="?", type=Path, metavar="DIR", help="where to write")
    parser.add_argument("--list", action="store_true", help="list layouts, faults and cases")
    parser.add_argument("--case", metavar="NAME", help="a case of the corpus, by name")
    parser.add_argument("--layout", default="ddp", help="parallel layout (default: ddp)")
    parser.add_argument("--ranks", type=int, default=8, help="2 to 131072 (default: 8)")
    parser.add_argument("--fault", default="never-joined", help="default: never-joined")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    recording = parser.add_argument_group("recording")
    recording.add_argument(
        "--condition", default="plain", help="a set of recording conditions; see --list"
    )
    recording.add_argument("--version", dest="format_version", help="format version, e.g. 2.7")
    recording.add_argument("--buffer", type=int, metavar="N", help="entries that the ring holds")
    recording.add_argument("--no-stacks", action="store_true", help="entries without frames")
    recording.add_argument("--active-only", action="store_true", help="unfinished entries only")
    recording.add_argument("--timing", action="store_true", help="starts and durations are known")
    recording.add_argument("--json", action="store_true", help="write JSON instead of pickle")
    recording.add_argument("--names", help="how files are named; see --list")
    recording.add_argument("--clock-skew", type=float, metavar="S", help="hosts' clocks are off")
    recording.add_argument("--missing", metavar="RANKS", help='lost files, e.g. "3,8-11"')
    recording.add_argument("--empty", metavar="RANKS", help="files without a byte")
    recording.add_argument("--truncated", metavar="RANKS", help="files that were cut")


def run(args: argparse.Namespace) -> int:
    """Write the case."""
    if args.list:
        return _list()
    if args.output is None:
        raise UsageError("Name a directory to write to.", "See: python -m lab simulate --help")
    from lab.simulate.corpus import CONDITIONS, CaseSpec, spec_named
    from lab.simulate.writing import DUMPS, simulate

    if args.condition not in CONDITIONS:
        raise UsageError(
            f"There is no condition {args.condition!r}.", "python -m lab simulate --list"
        )
    name = f"{args.layout}/{args.fault}"
    spec = CaseSpec(name, args.fault, args.layout, args.ranks, args.condition, args.seed)
    if args.case:
        spec = spec_named(args.case)
    made = simulate(spec, args.output, **_changes(args))
    truth = made.case.truth
    print(f"{spec.fault} in {spec.layout}, {spec.ranks} ranks: {made.bytes_written:,} bytes")
    for cause in truth.causes:
        who = ", ".join(map(str, cause.culprits)) or "nobody"
        print(f"truth: {truth.status[0]}, {' or '.join(cause.codes)}, to blame: {who}")
    if not truth.causes:
        print(f"truth: {truth.status[0]}")
    print(f"look:  unhang diagnose {args.output / DUMPS}")
    return 0


def _changes(args: argparse.Namespace) -> dict[str, object]:
    """The recording options that were given."""
    from lab.recorder.recording import FILE_NAMES, VERSIONS

    if args.format_version not in (None, *VERSIONS):
        raise UsageError(f"There is no version {args.format_version!r}.", ", ".join(VERSIONS))
    if args.names not in (None, *FILE_NAMES):
        raise UsageError(f"There is no way of naming {args.names!r}.", ", ".join(FILE_NAMES))
    given = {
        "version": args.format_version,
        "buffer": args.buffer,
        "stacks": False if args.no_stacks else None,
        "active_only": args.active_only or None,
        "timing": args.timing or None,
        "json": args.json or None,
        "names": args.names,
        "clock_skew_s": args.clock_skew,
        "missing": _ranks(args.missing),
        "empty": _ranks(args.empty),
        "truncated": _ranks(args.truncated),
    }
    return {key: value for key, value in given.items() if value is not None}


def _ranks(text: str | None) -> frozenset[int] | None:
    """Ranks from "3,8-11"."""
    if text is None:
        return None
    ranks: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        if found is None:
            raise UsageError(f"{text!r} is no list of ranks.", 'For example: "3,8-11"')
        ranks |= set(range(int(found[1]), int(found[2] or found[1]) + 1))
    return frozenset(ranks)


def _list() -> int:
    from lab.faults import FAULTS
    from lab.layouts.table import LAYOUTS
    from lab.recorder.recording import FILE_NAMES
    from lab.simulate.corpus import CONDITIONS, PARTS, cases

    print("layouts:    " + " ".join(LAYOUTS))
    print("conditions: " + " ".join(CONDITIONS))
    print("file names: " + " ".join(FILE_NAMES))
    print("faults:")
    for fault in FAULTS.values():
        print(f"  {fault.name:24} {fault.code or 'healthy':8} {fault.meaning.splitlines()[0]}")
    for part in PARTS:
        print(f"cases of the {part} part: {len(cases(part))}")
    print("\n".join(f"  {spec.name}" for spec in cases("tuned")))
    return 0
