"""Explain a finding code: its meaning, its evidence, what else it could be and what to do.

A code is given with or without "UH", or by its slug. Without one all are listed, by family. The
last line is the page's address; UNHANG_DOCS=https://… names another place where the pages lie.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

from unhang.cli.shared.output import add_look_arguments, look_of, look_options
from unhang.errors import UsageError
from unhang.wording import printable

EXAMPLES = """unhang explain UH301
unhang explain wait-cycle
unhang explain --list"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang explain`."""
    parser.add_argument("code", nargs="?", help="a code or its slug, e.g. UH301 or wait-cycle")
    parser.add_argument("--list", action="store_true", help="list all codes")
    add_look_arguments(parser.add_argument_group("output"))


def run(args: argparse.Namespace) -> int:
    """Print the page of one code, or the list of all."""
    from unhang.catalogue import url_of
    from unhang.reports.content.kind_pages import find, page_of

    look = look_of(look_options(args), sys.stdout, os.environ)
    if args.list or not args.code:
        print("\n\n".join(_listed()))
        return 0
    found = find(args.code)
    if found is None:
        raise UsageError(
            f"there is no finding code '{printable(args.code, 40)}'",
            "unhang explain --list shows all of them.",
        )
    page = f"{page_of(found).rstrip()}\n\n{url_of(found)}\n"
    if look.color:
        from rich.markdown import Markdown

        from unhang.reports.paint import paint

        page = paint(Markdown(page), look)
    sys.stdout.write(page)
    return 0


def _listed() -> Iterator[str]:
    """A block for each family: its name and what it is, then a line for each kind."""
    from unhang.kinds import FAMILIES
    from unhang.reports.content.kind_pages import by_family

    for family, kinds in by_family():
        rows = (f"  {kind.code:6}  {kind.slug:30} {kind.meaning}" for kind in kinds)
        yield "\n".join((f"{family}: {FAMILIES[family]}", *rows))
