"""Make what the docs show: tables from the schema, examples by running the real thing.

    python docs/refresh.py            writes what has changed
    python docs/refresh.py --check    exits 1 and names the files that are out of date

Only text between the marks is touched; the prose around it is written by people.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from unhang.cli.main import build_parser
from unhang.tables.schema import TABLES, VIEWS, Table

DOCS = Path(__file__).parent
BLOCK = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
ROOT = DOCS.parent


def tables() -> str:
    """Every table with its columns."""
    return "\n".join(line for table in TABLES for line in _table(table)) + "\n"


def views() -> str:
    """Every view with its columns."""
    return "\n".join(line for view in VIEWS for line in _table(view)) + "\n"


def _table(table: Table) -> Iterator[str]:
    yield f"### {table.name}"
    yield ""
    yield table.meaning
    yield ""
    yield "| column | type | meaning |"
    yield "|---|---|---|"
    for column in table.columns:
        yield f"| `{column.name}` | {column.type} | {column.meaning} |"
    yield ""


def commands() -> str:
    """Every command with its options and examples, from the parsers themselves."""
    parser = build_parser()
    return "".join(_command(sub, 2) for sub in _subparsers(parser))


def _subparsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices.values())
    return []


def _command(parser: argparse.ArgumentParser, level: int) -> str:
    epilog = (parser.epilog or "").replace("examples:\n", "").replace("\n  ", "\n").strip()
    parts = [f"{'#' * level} {parser.prog}", parser.description or ""]
    rows = [row for action in parser._actions if (row := _option(action))]
    if rows:
        parts.append("\n".join(["| argument | meaning |", "|---|---|", *rows]))
    if epilog:
        parts.append(f"```sh\n{epilog}\n```")
    below = [_command(sub, level + 1) for sub in _subparsers(parser)]
    return "\n\n".join(parts) + "\n\n" + "".join(below)


def _option(action: argparse.Action) -> str:
    if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
        return ""
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    value = " ".join(value) if isinstance(value, tuple) else value
    takes = "" if action.nargs == 0 else f" {value}"
    names = ", ".join(action.option_strings) + takes if action.option_strings else value
    return f"| `{names}` | {(action.help or '').replace('%%', '%')} |"


def verdict() -> str:
    """The README's first screen: a captured hang and what diagnose says of it."""
    command = ["unhang", "diagnose", "examples/never-joined-armed"]
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )
    return f"```\n$ {' '.join(command)}\n{done.stdout.strip()}\n```\n"


BLOCKS: dict[str, Callable[[], str]] = {
    "tables": tables,
    "views": views,
    "commands": commands,
    "verdict": verdict,
}


def made(name: str) -> str:
    """Return the content of the block of a name."""
    return BLOCKS[name]()


def refreshed(text: str) -> str:
    """Return a document with all its blocks made anew."""
    return BLOCK.sub(lambda found: f"{found[1]}{made(found[2])}{found[3]}", text)


def main(words: list[str]) -> int:
    """Refresh or check the documents; all of them, or those that are named."""
    names = [word for word in words if not word.startswith("-")]
    stale = []
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        if names and path.name not in names:
            continue
        old = path.read_text(encoding="utf-8")
        new = refreshed(old)
        if new != old:
            stale.append(path)
            if "--check" not in words:
                path.write_text(new, encoding="utf-8")
    for path in stale:
        print(f"{'out of date' if '--check' in words else 'written'}: {path.relative_to(ROOT)}")
    return int("--check" in words and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
