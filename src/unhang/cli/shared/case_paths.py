"""How commands find and read the case that they are about: paths, and what helps to read them.

The arguments are the same for every command that reads dumps; this module is their one home.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.bounds import MAX_RANKS
from unhang.casedir.place import Place, place_in
from unhang.errors import UsageError

if TYPE_CHECKING:
    from unhang.case import Case
    from unhang.ingest import Beside
    from unhang.ingest.ray import RayEngine

CASES = Path("unhang-cases")
"""Where `unhang run` and `unhang collect` put their cases, by default."""


@dataclass(frozen=True, slots=True)
class CaseOptions:
    """Which case, and what helps to read it; numbers and names are None where they were not given.

    Attributes:
        paths: What to read; empty for the newest case.
        world_size: Ranks of the job.
        incident: Which incident of several.
        rank_pattern: Finds the rank in a file name.
        group_world_size: Ranks of one replica.
    """

    paths: tuple[str, ...]
    world_size: int | None
    incident: str | None
    rank_pattern: str | None
    group_world_size: int | None

    def words(self) -> list[str]:
        """The options as they are typed, without paths."""
        named = {
            "--world-size": self.world_size,
            "--incident": self.incident,
            "--rank-pattern": self.rank_pattern,
            "--group-world-size": self.group_world_size,
        }
        given = {name: value for name, value in named.items() if value is not None}
        return [word for name, value in given.items() for word in (name, str(value))]

    def checked(self) -> CaseOptions:
        """The same.

        Raises:
            UsageError: A number is no number of ranks.
        """
        for option, value in (
            ("--world-size", self.world_size),
            ("--group-world-size", self.group_world_size),
        ):
            if value is not None and not 1 <= value <= MAX_RANKS:
                raise UsageError(
                    f"{option} {value} is not a number of ranks", f"It is 1 to {MAX_RANKS:,}."
                )
        return self

    def found(self, beside: Beside | None = None) -> CaseOptions:
        """The newest case stands in for a missing path, unless other options give enough to read.

        Raises:
            UsageError: There is nothing to read by default.
        """
        if self.paths or (beside is not None and beside.named and not _cases(CASES)):
            return self
        return replace(self, paths=(str(newest_case(CASES)),))


def case_options(args: argparse.Namespace, paths: Sequence[str] | None = None) -> CaseOptions:
    """What `add_reading_arguments` has added, as a value; with other paths than the arguments'."""
    return CaseOptions(
        paths=tuple(str(path) for path in (args.paths if paths is None else paths)),
        world_size=args.world_size,
        incident=args.incident,
        rank_pattern=args.rank_pattern,
        group_world_size=args.group_world_size,
    )


def add_case_arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH and the options that help to read it; `case_options` reads them."""
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
        help="number of ranks of the job, if files are missing",
    )
    reading.add_argument(
        "--incident", metavar="ID", help="which incident, if one folder holds several"
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
    options: CaseOptions, beside: Beside | None = None, engine: RayEngine | None = None
) -> Case:
    """Read the case that the options name.

    Args:
        options: Which, and what helps to read it.
        beside: What else to read; without PATH and without a case nothing else is read.
        engine: What finds and reduces the files, in place of this process.

    Raises:
        UsageError: If a number is no number of ranks, or if there is nothing to read by default.
        InputError: If nothing can be read.
    """
    options = options.checked().found(beside)
    from unhang.cli.shared.reading_progress import reading_progress
    from unhang.ingest import load

    with reading_progress() as progress:
        return load(
            engine.behind(options.paths) if engine else options.paths,
            world_size=options.world_size,
            rank_pattern=options.rank_pattern,
            incident=options.incident,
            group_world_size=options.group_world_size,
            beside=beside,
            progress=progress,
        )


def place_of(options: CaseOptions, logs: Sequence[str] = ()) -> Place:
    """Where the evidence lies that `load_case` has read, for commands that read it again."""
    paths, words = options.paths, options.words()
    found = place_in(Path(paths[0]), words) if len(paths) == 1 else Place((*paths, *words))
    named = tuple(log for log in logs if log != "-")
    return replace(found, logs=named or found.logs)


def newest_case(root: Path) -> Path:
    """Return the case directory under `root` that was made last.

    Raises:
        UsageError: If there is none.
    """
    cases = _cases(root)
    if not cases:
        raise UsageError(
            f"no PATH given, and no case under ./{root}",
            "Name the directory that the job left: unhang diagnose DIRECTORY",
        )
    return max(cases, key=lambda path: (path.stat().st_mtime_ns, path.name))


def _cases(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
