"""The table of log rules: what a known message means, and what to do about it.

A rule is a row of a TOML file here. They are read from rows.json, which `python docs/refresh.py`
makes of them: TOML costs a start of the program a tenth of a second, and Python 3.10 has no reader
of it. One code per rule, never reused. The order matters: the first rule that matches a line has
it, so a specific rule stands before a general one of the same family.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Final

from unhang.logs.rules.base import LogRule, rule_from

__all__ = ["RULES", "LogRule", "rule_of"]

RULES: Final[tuple[LogRule, ...]] = tuple(
    map(rule_from, json.loads(Path(__file__).with_name("rows.json").read_bytes()))
)


@lru_cache(maxsize=1)
def _by_code() -> dict[str, LogRule]:
    return {rule.code: rule for rule in RULES}


def rule_of(code: str) -> LogRule | None:
    """The rule of a code such as "UH701", or None."""
    return _by_code().get(code)
