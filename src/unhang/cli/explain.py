"""Say what a finding code means, what else it could be and what to do about it."""

from __future__ import annotations

import argparse

from unhang.codes import CODES, lookup
from unhang.errors import UsageError

EXAMPLES = """unhang explain UH301
unhang explain wait-cycle
unhang explain --list"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang explain`."""
    parser.add_argument("code", nargs="?", help="a code or its slug, e.g. UH301 or wait-cycle")
    parser.add_argument("--list", action="store_true", help="list all codes")


def run(args: argparse.Namespace) -> int:
    """Print the page of one code, or the list of all."""
    if args.list or not args.code:
        for entry in CODES.values():
            print(f"{entry.code}  {entry.slug:24} {entry.meaning}")
        return 0
    found = lookup(args.code)
    if found is None:
        raise UsageError(f"there is no finding code {args.code!r}", "unhang explain --list")
    print(f"{found.code} {found.slug}\n\n{found.meaning}")
    return 0
