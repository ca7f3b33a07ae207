"""Conditions of single rules that no regular expression states: a row names one by `only`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from unhang.logs.rules.sxids import is_corrected, is_fault


def _more_joined(match: re.Match[str]) -> bool:
    """More processes have joined than are expected: fewer is how each barrier begins."""
    return int(match["joined"]) > int(match["expected"])


ONLY: Final[dict[str, Callable[[re.Match[str]], bool]]] = {
    "more-joined": _more_joined,
    "switch-corrected": lambda match: is_corrected(int(match["sxid"]), match["what"]),
    "switch-fault": lambda match: is_fault(int(match["sxid"]), match["what"]),
}
