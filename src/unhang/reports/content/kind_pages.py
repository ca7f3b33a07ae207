"""The page of every kind of finding: where it is found, how one without own prose is made.

Kinds of the catalogue have a page in docs/codes, which travels in the wheel as `unhang/pages`. Log
rules and the doctor's checks carry all there is to say in their rows: their pages are made from
those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.catalogue import all_kinds
from unhang.kinds import FAMILIES, Family, Kind

if TYPE_CHECKING:
    from unhang.checks import Check
    from unhang.logs.rules import LogRule

_PACKAGE = Path(__file__).parents[2]
_PLACES = (_PACKAGE / "pages", _PACKAGE.parents[1] / "docs" / "codes")  # wheel, source tree
_MARKS = re.compile(r"^<!-- [^\n]* -->\n", re.MULTILINE)
"""Where `docs/refresh.py` puts what it makes: no part of the page that people read."""


def by_family() -> Iterator[tuple[Family, list[Kind]]]:
    """Yield each family and its kinds, by code."""
    kinds = sorted(all_kinds().values(), key=lambda kind: (len(kind.code), kind.code))
    for family in FAMILIES:
        yield family, [kind for kind in kinds if kind.family == family]


def find(text: str) -> Kind | None:
    """Find a kind by "UH101", "uh101", "101" or its slug."""
    wanted = text.strip().lower()
    for kind in all_kinds().values():
        if wanted in (kind.code.lower(), kind.code[2:].lower(), kind.slug):
            return kind
    return None


def page_of(kind: Kind) -> str:
    """Return the page as Markdown."""
    from unhang.checks import CHECKS
    from unhang.logs.rules import rule_of

    head = f"# {kind.code} {kind.slug}\n\n{kind.meaning}\n"
    if rule := rule_of(kind.code):
        return f"{head}\n{_rule_body(rule)}"
    if check := CHECKS.get(kind.code):
        return f"{head}\n{_check_body(check)}"
    pages = (place / f"{kind.code}.md" for place in _PLACES)
    own = next((page.read_text(encoding="utf-8") for page in pages if page.is_file()), head)
    return _MARKS.sub("", own)


def _rule_body(rule: LogRule) -> str:
    return f"""\
## What it rests on

A line of a log, reported as *{rule.role}*:

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

What the hosts themselves report:

    unhang doctor {check.part}

## What to do

{check.action}
"""


def _quoted(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
