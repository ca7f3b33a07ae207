"""How far clocks are apart, from calls that all members finished at one moment.

A recorder notes when its watchdog saw that a call was finished: the true moment, plus up to one
round of that watchdog, plus the clock's offset. Rounds fall differently on each rank, so the mean
over many of them is the offset; how many rounds its own watchdog made says how well it is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from unhang.analysis.state.columns import Floats
from unhang.spans import distinct

_LEAST_ROUNDS = 4


class Clocks(Struct, frozen=True, eq=False):
    """Clocks of some ranks, against the middle of all of them.

    Attributes:
        offset_ms: How far each is ahead; 0 where nothing tells.
        error_ms: Standard error of that; 0 where nothing tells.
        set: Whether anything tells.
    """

    offset_ms: Floats
    error_ms: Floats
    set: bool


def set_clocks(finished_ms: Floats, hosts: Sequence[str]) -> Clocks:
    """Compare clocks.

    Args:
        finished_ms: (calls, ranks) when each rank saw a call finished.
        hosts: Host of each rank, "" where unknown; ranks of one host have one clock.
    """
    n_ranks = len(hosts)
    own = [distinct(column) for column in finished_ms.T] if len(finished_ms) else []
    count = np.asarray([len(moments) for moments in own])
    if not len(count) or count.min() < _LEAST_ROUNDS:
        return Clocks(np.zeros(n_ranks), np.zeros(n_ranks), set=False)
    rounds = _rounds(finished_ms)
    apart = rounds - np.median(rounds, axis=1, keepdims=True)
    offset = apart.mean(axis=0)
    error = np.maximum(apart.std(axis=0), _round_ms(own) / 2) / np.sqrt(count)
    by_host: dict[str, list[int]] = defaultdict(list)
    for column, host in enumerate(hosts):
        by_host[host or f"rank {column}"].append(column)
    for columns in by_host.values():
        offset[columns] = offset[columns].mean()
        error[columns] = np.sqrt((error[columns] ** 2).sum()) / len(columns)
    return Clocks(offset, error, set=True)


def _round_ms(own: Sequence[Floats]) -> float:
    """How long a round of the watchdogs takes; what is seen has half of that as its error.

    Args:
        own: Per rank the moments at which its watchdog saw anything finished.
    """
    return float(np.median(np.concatenate([np.diff(moments) for moments in own])))


def _rounds(finished_ms: Floats) -> Floats:
    """One call for each round of any watchdog: calls seen in the same round tell nothing new."""
    new = np.ones(len(finished_ms), np.bool_)
    new[1:] = (finished_ms[1:] != finished_ms[:-1]).any(axis=1)
    return finished_ms[new]
