"""Columns from values that another program wrote: always the promised dtype, never an exception.

Numbers may come as numbers, as text (torch's JSON writes counters so), as None or as anything at
all; what cannot be a number becomes the column's default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from unhang.bounds import is_rank

MAX_INT64 = 2**63 - 1
MAX_DIGITS = 19
MAX_TEXT_OF_NUMBER = 64
"""Longer text is no number, and not looked at: a dump's values may share one long text."""
MAX_GROUP_RANK = 2**31 - 1


def as_int(value: object, default: int = -1) -> int:
    """A number of 64 bits from an int, a float, or text of digits; the default for all else."""
    if type(value) is int and -MAX_INT64 <= value <= MAX_INT64:
        return value
    if isinstance(value, str):
        digits = value.strip() if len(value) <= MAX_TEXT_OF_NUMBER else ""
        sign = digits[:1] == "-"
        digits = digits[sign:]
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= MAX_DIGITS):
            return default
        value = -int(digits) if sign else int(digits)
    elif isinstance(value, float):
        if not math.isfinite(value):
            return default
        value = int(value)
    if not isinstance(value, int):
        return default
    return int(value) if -MAX_INT64 <= value <= MAX_INT64 else default


def int_column(values: Sequence[Any], default: int = -1) -> npt.NDArray[np.int64]:
    """All values as 64-bit numbers."""
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    return np.array([as_int(value, default) for value in values], np.int64)


def local_ids(column: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Local ids of groups, in the range of their column; -1 for what is none."""
    return np.where((column < 0) | (column > MAX_GROUP_RANK), -1, column)


def float_column(values: Sequence[Any]) -> npt.NDArray[np.float64]:
    """All values as floating point numbers; NaN for what is none."""
    return np.array(
        [value if isinstance(value, (int, float)) else math.nan for value in values], np.float64
    )


def parse_members(value: object) -> tuple[int, ...]:
    """Ranks from "[0, 1, 2]" (how torch writes them) or from a list.

    Empty if it is neither, or names what cannot be a rank: a part of a group is another group.
    """
    if isinstance(value, str):
        text = value.strip()
        if not (text.startswith("[") and text.endswith("]")):
            return ()
        value = [part for part in text[1:-1].split(",") if part.strip()]
    if not isinstance(value, (list, tuple)):
        return ()
    ranks = tuple(as_int(part) for part in value)
    return ranks if all(map(is_rank, ranks)) else ()
