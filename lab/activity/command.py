"""Record programs whose truth is known, and score how often their activity is told rightly."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """python -m lab activity score
python -m lab activity record series.jsonl --seconds 30
python -m lab activity record series.jsonl --seconds 15 --burners 4"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `python -m lab activity`."""
    parser.add_argument("do", choices=("record", "score"), help="what to do")
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        help="series: added to, or scored (default: those of the tests)",
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="of each program (default: 30)")
    parser.add_argument(
        "--burners", type=int, default=0, metavar="N", help="processes that compute beside them"
    )


def run(args: argparse.Namespace) -> int:
    """Record or score; exit code 1 if a score has a wrong estimate."""
    from lab.activity.series import SERIES

    path = args.file or SERIES
    return _record(path, args) if args.do == "record" else _score(path)


def _record(path: Path, args: argparse.Namespace) -> int:
    from lab.activity.record import record_all
    from lab.activity.series import line_of

    with path.open("a", encoding="utf-8") as file:
        for series in record_all(args.seconds, burners=args.burners):
            file.write(line_of(series) + "\n")
            file.flush()
            print(f"{series.name}: {len(series.looks)} looks")
    return 0


def _score(path: Path) -> int:
    from lab.activity.score import judged, table_of, wrongs_of
    from lab.activity.series import read

    found = [judged(series) for series in read(path)]
    print(table_of(found))
    wrong = wrongs_of(found)
    print("\n".join(("", *wrong) if wrong else ("", "no estimate is wrong")))
    return int(bool(wrong))
