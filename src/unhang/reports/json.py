"""The report as JSON: the contract "unhang.report/1" for CI, agents and other programs.

Output is pure ASCII and valid JSON whatever the input held: no NaN, no lone surrogates.
"""

from __future__ import annotations

import json
import math
from typing import Any

from unhang.case import Case
from unhang.report import Report, to_json
from unhang.reports.look import Look

__all__ = ["render"]


def render(report: Report, case: Case | None = None, look: Look | None = None) -> str:
    """Return the report as indented JSON; `case` and `look` change nothing."""
    del case, look
    return json.dumps(_finite(to_json(report)), indent=2, allow_nan=False, default=_plain) + "\n"


def _finite(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Replace what JSON has no word for (NaN, infinity) by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever json.dumps did not know
    """Turn a numpy scalar into the number that it stands for."""
    return value.item()
