"""The page of every code: where it is found, and how a page without prose of its own is made.

Codes of the analysis have a page in docs/codes, which travels in the wheel as `unhang/pages`. Log
rules and the doctor's checks carry all there is to say in their tables: their pages are made from
those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.kinds import KINDS

if TYPE_CHECKING:
    from unhang.doctor.checks.results import Check
    from unhang.logs.rules import LogRule

__all__ = ["CodePage", "entries", "find", "page_of"]

_PACKAGE = Path(__file__).parents[2]
_PLACES = (_PACKAGE / "pages", _PACKAGE.parents[1] / "docs" / "codes")  # wheel, source tree


@dataclass(frozen=True, slots=True)
class CodePage:
    """One code of any table.

    Attributes:
        body: The page below its head where a table holds it; empty where docs/codes does.
    """

    code: str
    slug: str
    meaning: str
    body: str = ""


def entries() -> Iterator[CodePage]:
    """Yield all codes: those of the analysis, of the log rules and of the doctor's checks."""
    from unhang.doctor.checks.results import CHECKS
    from unhang.logs.rules import RULES

    known = [CodePage(code.code, code.slug, code.meaning) for code in KINDS.values()]
    known += [CodePage(rule.code, rule.slug, rule.meaning, _rule_body(rule)) for rule in RULES]
    known += [CodePage(of.code, of.slug, of.why, _check_body(of)) for of in CHECKS.values()]
    yield from sorted(known, key=lambda entry: entry.code)


def find(text: str) -> CodePage | None:
    """Find a code by "UH101", "uh101", "101" or its slug."""
    wanted = text.strip().lower()
    for entry in entries():
        if wanted in (entry.code.lower(), entry.code[2:].lower(), entry.slug):
            return entry
    return None


def page_of(entry: CodePage) -> str:
    """Return the page as Markdown."""
    head = f"# {entry.code} {entry.slug}\n\n{entry.meaning}\n"
    if entry.body:
        return f"{head}\n{entry.body}"
    for place in _PLACES:
        path = place / f"{entry.code}.md"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return head


def _rule_body(rule: LogRule) -> str:
    return f"""\
## What it rests on

A line of a log, of the kind *{rule.kind}*:

{_quoted(rule.fires)}

## A near miss

This is another message, and does not count:

{_quoted(rule.spares)}

## What to do

{rule.action}

Known from: {rule.source}
"""


def _check_body(check: Check) -> str:
    return f"""\
## What it rests on

What the hosts themselves say when they are asked:

    unhang doctor {check.part}

## What to do

{check.action}
"""


def _quoted(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
