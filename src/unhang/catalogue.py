"""Every kind of finding there is: those of the catalogue, of the log rules and of the checks.

Codes come from outside too (saved reports, a person who asks for one), and this is where they are
looked up. The tables are read only when they are asked for: most findings are of the catalogue.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Final

from unhang.kinds import KINDS, Kind

DOCS: Final = "https://github.com/unhang/unhang/blob/main/docs"
"""Where the pages of the kinds are read, unless UNHANG_DOCS names another place."""

_PLACE = re.compile(r"https?://[\w./:~%-]{1,200}", re.ASCII)


def kind_of(code: str) -> Kind | None:
    """The kind of a code such as "UH101", "UH720" or "UH823"; None for an unknown one."""
    return KINDS.get(code) or all_kinds().get(code)


@lru_cache(maxsize=1)
def all_kinds() -> dict[str, Kind]:
    """All kinds by code."""
    from unhang.checks import CHECKS
    from unhang.logs.rules import RULES

    kinds = (*(rule.kind for rule in RULES), *(check.kind for check in CHECKS.values()))
    return {**KINDS, **{kind.code: kind for kind in kinds}}


def url_of(kind: Kind) -> str:
    """Where the page of a kind is: one of its own, or a section of the page that has the rest."""
    named = os.environ.get("UNHANG_DOCS", "")
    base = named.rstrip("/") if _PLACE.fullmatch(named) else DOCS
    if kind.code in KINDS:
        return f"{base}/codes/{kind.code}.md"
    return f"{base}/kinds.md#{kind.code.lower()}-{kind.slug}"
