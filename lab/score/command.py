"""Run tools over the corpus of simulated jobs (and live captures) and print how right they are.

Parts are reported apart: the tuned one, which rules may have been written against, the held-out
one, real dumps of NCCL's recorder, and live captures of Gloo jobs. Peers are scored on the same
files in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.errors import UsageError

if TYPE_CHECKING:
    from lab.score.running import Result

PARTS = ("tuned", "held-out", "real", "live")

EXAMPLES = """python -m lab score --tools unhang --part tuned
python -m lab score --part tuned --class skipped-call --wrong
python -m lab score --part real --wrong
python -m lab score --part live --captures unhang-lab
python -m lab score --part real --tools unhang --versions docs/accuracy.md
python -m lab score --write docs/accuracy.md"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--part",
        action="append",
        choices=PARTS,
        help="which part; may be repeated (default: all four)",
    )
    parser.add_argument(
        "--tools", help="comma separated: unhang, torchfrtrace, fr_attribution (default: all found)"
    )
    parser.add_argument("--class", dest="fault", metavar="NAME", help="only one class of faults")
    parser.add_argument("--largest", type=int, metavar="N", help="only jobs of at most N ranks")
    parser.add_argument(
        "--captures",
        type=Path,
        metavar="DIR",
        help="live captures that are there (directories with truth.json); default: make them now",
    )
    parser.add_argument("--wrong", action="store_true", help="list the cases that we got wrong")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="write the page docs/accuracy.md; what it says of other parts stays",
    )
    parser.add_argument(
        "--versions",
        type=Path,
        metavar="FILE",
        help="put the real part by version of torch into this page",
    )
    parser.add_argument("--processes", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument(
        "--limit",
        type=float,
        default=20.0,
        metavar="S",
        help="a peer's time per case (default: 20)",
    )


def run(args: argparse.Namespace) -> int:
    """Score and print."""
    from lab.score import accuracy

    parts = _results(args)
    if args.json:
        print(json.dumps(accuracy.as_json(parts), indent=1))
    else:
        print(accuracy.as_text(parts))
    if args.wrong:
        print(accuracy.wrong_cases(parts))
    if args.write:
        old = args.write.read_text(encoding="utf-8") if args.write.exists() else ""
        args.write.write_text(accuracy.as_markdown(parts, old), encoding="utf-8")
    if args.versions:
        _write_versions(args.versions, parts)
    return 0


def _write_versions(page: Path, parts: dict[str, list[Result]]) -> None:
    from lab.score.versions import by_version
    from lab.sections import in_page

    if not parts.get("real"):
        raise UsageError("There is no real part to write of.", "Add --part real")
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    page.write_text(in_page(old, by_version(parts["real"])), encoding="utf-8")


def _results(args: argparse.Namespace) -> dict[str, list[Result]]:
    from lab.score.running import score_cases
    from lab.simulate.corpus import cases

    tools = _tools(args.tools)
    wanted = args.part or list(PARTS)
    parts = {}
    for part in wanted:
        if part in ("real", "live"):
            parts[part] = _real(args, tools) if part == "real" else _live(args, tools)
            continue
        specs = [
            spec
            for spec in cases(part)
            if args.fault in (None, spec.fault) and spec.ranks <= (args.largest or spec.ranks)
        ]
        with _progress(part) as step:
            parts[part] = score_cases(
                specs, tools, processes=args.processes, limit_s=args.limit, progress=step
            )
    return parts


def _real(args: argparse.Namespace, tools: list[str]) -> list[Result]:
    """Score the dumps that the real recorder of NCCL has written."""
    from lab.score.captures import score_real

    with _progress("real") as step:
        return score_real(tools, limit_s=args.limit, progress=step)


def _live(args: argparse.Namespace, tools: list[str]) -> list[Result]:
    """Score captures that are there, or make them now."""
    from lab.score.captures import capture_all, score_captures

    if args.captures is not None:
        return score_captures(args.captures, tools, limit_s=args.limit)
    with tempfile.TemporaryDirectory(prefix="unhang-lab-") as folder, _progress("live") as step:
        capture_all(Path(folder), step)
        return score_captures(Path(folder), tools, limit_s=args.limit)


def _tools(text: str | None) -> list[str]:
    from lab.score.adapters import TOOLS, available_tools

    installed = available_tools()
    if text is None:
        return installed
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in TOOLS:
            raise UsageError(f"There is no tool {name!r}.", f"One of: {', '.join(TOOLS)}")
        if name not in installed:
            raise UsageError(f"{name} is not installed.")
    return names


@contextmanager
def _progress(part: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal's stderr, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(part, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
