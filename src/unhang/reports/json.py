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

_FLAT = ("ranks", "notes", "stacks")
"""Long lists of the report with items that fit a line."""


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever json.dumps did not know
    """Turn a numpy scalar into the number that it stands for."""
    return value.item()


_ENCODE = json.JSONEncoder(allow_nan=False, default=_plain).encode


def render(report: Report, case: Case | None = None, look: Look | None = None) -> str:
    """Return the report as JSON, a rank or a note a line; `case` and `look` change nothing."""
    del case, look
    value = to_json(report)
    try:
        text = _laid_out(value, 4)
    except ValueError:  # NaN or infinity somewhere
        text = _laid_out(_sayable(value), 4)
    if "\\ud" in text:  # perhaps half of a character, which strict readers refuse
        text = _laid_out(_sayable(value), 4)
    return text + "\n"


def _laid_out(value: Any, levels: int, indent: str = "") -> str:  # noqa: ANN401 - any JSON value
    """Write one item a line down to some levels, and each item compact below them.

    `json.dumps(indent=2)` would put every number of a list of 100,000 ranks on its own line, and
    leaves the compiled encoder.
    """
    if not levels or not _has_parts(value):
        return _ENCODE(value)
    deeper = indent + "  "
    if isinstance(value, list):
        lines = [_laid_out(item, levels - 1, deeper) for item in value]
        return _block("[", lines, "]", indent)
    lines = [
        f"{_ENCODE(key)}: {_laid_out(item, levels - (3 if key in _FLAT else 1), deeper)}"
        for key, item in value.items()
    ]
    return _block("{", lines, "}", indent)


def _has_parts(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether a value deserves lines of its own: objects and lists, but for lists of numbers."""
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], (str, dict, list))
    return isinstance(value, dict) and bool(value)


def _block(start: str, lines: list[str], end: str, indent: str) -> str:
    inner = f",\n{indent}  ".join(lines)
    return f"{start}\n{indent}  {inner}\n{indent}{end}"


def sayable_json(value: object) -> Any:  # noqa: ANN401 - JSON
    """A report, or part of one, as JSON that strict readers take: no NaN, no half characters."""
    return _sayable(json.loads(_ENCODE(_sayable(to_json(value)))))


def _sayable(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Replace what JSON has no word for: NaN and infinity by null, halves of characters by text."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _sayable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_sayable(item) for item in value]
    return value
