"""How far apart calls that are alike usually are: what tells a young open call from an old one.

Dumps are reduced where they lie, and judged elsewhere without most of their times: both ask here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["turn_ns"]

_LEAST_GAPS = 3
_LAST_CALLS = 32


def turn_ns(created_ns: npt.NDArray[np.integer]) -> int:
    """The usual time from one of these calls to the next, by the last of them; -1 if too few tell.

    Args:
        created_ns: When finished calls of one rank, group, name and stack were made, in order.
    """
    created = created_ns[-_LAST_CALLS:]
    gaps = np.diff(created[created > 0])
    return int(np.median(gaps)) if len(gaps) >= _LEAST_GAPS else -1
