"""How commands find and read the case that they are about: paths, and what helps to read them.

The arguments are the same for every command that reads dumps; this module is their one home.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.bounds import MAX_RANKS
from unhang.casedir.place import Place, place_in
from unhang.errors import UsageError

if TYPE_CHECKING:
    from unhang.case import Case
    from unhang.ingest import Beside
    from unhang.ingest.ray import RayEngine

__all__ = [
    "CASES",
    "add_case_arguments",
    "add_reading_arguments",
    "load_case",
    "newest_case",
    "place_of",
]

CASES = Path("unhang-cases")
"""Where `unhang run` and `unhang collect` put their cases, unless they are told otherwise."""


def add_case_arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH and the options that help to read it; `load_case` reads them."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help=f"case, directory, files or archive; default: the newest case under ./{CASES}",
    )
    add_reading_arguments(parser)


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that help to read a case."""
    reading = parser.add_argument_group("reading")
    reading.add_argument(
        "--world-size",
        type=int,
        metavar="N",
        help="number of ranks of the job, where files are missing",
    )
    reading.add_argument(
        "--incident", metavar="ID", help="which incident, where several lie in one folder"
    )
    reading.add_argument(
        "--rank-pattern",
        metavar="REGEX",
        help="finds the rank in a file name: its first group, e.g. 'node\\d+-(\\d+)'",
    )
    reading.add_argument(
        "--group-world-size",
        type=int,
        metavar="N",
        help="ranks of one replica, where replicas (torchft) reuse rank numbers",
    )


def load_case(
    args: argparse.Namespace, beside: Beside | None = None, engine: RayEngine | None = None
) -> Case:
    """Read the case that the arguments name.

    Args:
        args: What `add_case_arguments` has added; its paths become those that were read.
        beside: What else to read; without PATH and without a case it is all that is read.
        engine: What finds and reduces the files, in place of this process.

    Raises:
        UsageError: If a number is no number of ranks, or if there is nothing to read by default.
        InputError: If nothing can be read.
    """
    for name in ("world_size", "group_world_size"):
        value = getattr(args, name)
        if value is not None and not 1 <= value <= MAX_RANKS:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} {value} is no number of ranks", f"It is 1 to {MAX_RANKS:,}."
            )
    from unhang.cli.shared.reading_progress import reading_progress
    from unhang.ingest import load

    args.paths = args.paths or _default(beside)
    with reading_progress() as progress:
        return load(
            engine.behind(args.paths) if engine else args.paths,
            world_size=args.world_size,
            rank_pattern=args.rank_pattern,
            incident=args.incident,
            group_world_size=args.group_world_size,
            beside=beside,
            progress=progress,
        )


def place_of(args: argparse.Namespace) -> Place:
    """Where the evidence lies that `load_case` has read, for commands that read it again."""
    options: list[str] = []
    for name in ("world_size", "incident", "rank_pattern", "group_world_size"):
        if (value := getattr(args, name)) is not None:
            options += [f"--{name.replace('_', '-')}", str(value)]
    paths = [str(path) for path in args.paths]
    found = place_in(Path(paths[0]), options) if len(paths) == 1 else Place((*paths, *options))
    logs = tuple(log for log in getattr(args, "log", ()) if log != "-")
    return replace(found, logs=logs or found.logs)


def _default(beside: Beside | None) -> list[Path]:
    """What to read without PATH: the newest case, or nothing where there is something beside it."""
    alone = beside is not None and beside.named and not _cases(CASES)
    return [] if alone else [newest_case(CASES)]


def newest_case(root: Path) -> Path:
    """Return the case directory under `root` that was made last.

    Raises:
        UsageError: If there is none.
    """
    cases = _cases(root)
    if not cases:
        raise UsageError(
            f"no PATH was given, and there is no case under ./{root}",
            "Name what the job left behind: unhang diagnose DIRECTORY",
        )
    return max(cases, key=lambda path: (path.stat().st_mtime_ns, path.name))


def _cases(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
