"""How far apart calls that are alike usually are: what tells a young open call from an old one.

Dumps are reduced where they lie, and judged elsewhere without most of their times: both ask here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_LEAST_GAPS = 3
_LAST_CALLS = 32

Times = npt.NDArray[np.integer]


def begun_ns(created_ns: Times, completed_ns: Times, retired: npt.NDArray[np.bool_]) -> Times:
    """From when on each of the calls that a rank made in one group was the next to finish.

    Hosts run ahead of their devices: a call waits since the one before it was over, if that was
    later than it was made. Only what a watchdog has retired counts as over: of other calls a dump
    says when it was made itself.

    Args:
        created_ns: When the calls were made, in order.
        completed_ns: When they were seen finished; 0 for never.
        retired: Whether they were looked at while they ran.
    """
    before = np.zeros(len(created_ns), np.int64)
    before[1:] = np.maximum.accumulate(np.where(retired, completed_ns, 0))[:-1]
    begun: Times = np.where(created_ns > 0, np.maximum(created_ns, before), 0)
    return begun


def turn_ns(begun: Times) -> int:
    """The usual time from one of these calls to the next, by the last of them; -1 if too few tell.

    Args:
        begun: When finished calls of one rank, group, name and stack began, in order; 0 unknown.
    """
    last = begun[-_LAST_CALLS:]
    gaps = sorted(np.diff(last[last > 0]).tolist())
    middle = len(gaps) // 2
    return int((gaps[middle] + gaps[~middle]) / 2) if len(gaps) >= _LEAST_GAPS else -1
