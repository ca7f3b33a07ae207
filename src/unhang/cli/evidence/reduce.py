"""Reduce the dumps of a node to a part: about 1 KB a rank, and the same verdict.

A part holds every call, sequences that repeat written once; of times, where they would take more
room than the rest, those that a verdict reads. `unhang diagnose` takes parts and dumps alike.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from unhang.errors import OutputError
from unhang.wording import count_of

EXAMPLES = """unhang reduce /tmp/nccl_trace -o node-07.part
unhang reduce dumps/ --times -o node-07.part
unhang reduce dumps/ -o - | ssh login 'cat > node-07.part'
unhang diagnose node-*.part"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang reduce`."""
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="directories of dumps, files, archives, parts"
    )
    parser.add_argument(
        "-o", "--output", metavar="PART", required=True, help="the file to write, or - for stdout"
    )
    parser.add_argument(
        "--times",
        action="store_true",
        help="keep the times of all calls (about 15 KB a rank), to find slow ranks",
    )


def run(args: argparse.Namespace) -> int:
    """Read, reduce, write."""
    from unhang.cli.shared.reading_progress import reading_progress
    from unhang.ingest.reducing import reduce

    _check(args.output, args.paths)
    with reading_progress(what="reducing") as progress:
        found = reduce(args.paths, all_times=args.times, progress=progress)
    if args.output == "-":
        sys.stdout.buffer.write(found.data)
        sys.stdout.buffer.flush()
    else:
        _write(Path(args.output), found.data)
    lost = f", {found.n_unreadable:,} of them unreadable" if found.n_unreadable else ""
    few = "; of times, those that tell of a hang" if found.few_times else ""
    print(
        f"unhang: {count_of(found.n_dumps, 'dump')}{lost}: {found.bytes_read:,} bytes became "
        f"{len(found.data):,}{few}",
        file=sys.stderr,
    )
    return 0


def _check(output: str, inputs: list[str]) -> None:
    """What can be said of the place before the work."""
    from unhang.cli.shared.output import check_is_no_input

    check_is_no_input(output, inputs, below=True)
    if output != "-" and Path(output).is_dir():
        raise OutputError(f"{output} is a directory", "Name a file in it: -o node.part")
    if output == "-" and sys.stdout.isatty():
        raise OutputError("a part is no text for a terminal", "Name a file: -o node.part")


def _write(target: Path, data: bytes) -> None:
    """Write the part as its owner's alone, whole or not at all."""
    from unhang.record.contact.runtime_dir import private_opener

    scratch = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        with open(scratch, "wb", opener=private_opener) as file:
            file.write(data)
        scratch.replace(target)
    except OSError as error:
        raise OutputError(
            f"{target} cannot be written: {error.strerror}", "Name another place with -o."
        ) from error
    finally:
        scratch.unlink(missing_ok=True)
