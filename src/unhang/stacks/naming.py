"""Which rank a file of stacks is of, from its name, where the content does not say it.

"rank" followed by a number is believed. A bare number may be a process id, so it is believed only
where the files of a folder differ in nothing but one number and these numbers are 0..n-1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from unhang.model import UNKNOWN_RANK

__all__ = ["numbered_ranks", "rank_in_name"]

_RANK = re.compile(r"(?<![a-z])rank[ _.=-]?(\d{1,9})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


def rank_in_name(name: str) -> int:
    """The rank that a path names ("rank_3.txt", "pyspy-rank12.json", "rank_3/stack.txt")."""
    found = _RANK.findall(name)
    return int(found[-1]) if found else UNKNOWN_RANK


def numbered_ranks(names: Sequence[str]) -> dict[str, int]:
    """Ranks of files that are numbered 0..n-1 ("0.txt", "1.txt"…); empty where they are not.

    Args:
        names: Paths relative to one folder.
    """
    by_shape: dict[tuple[str, ...], dict[str, int]] = {}
    for name in names:
        numbers = _NUMBER.findall(PurePath(name).name)
        if len(numbers) == 1 and len(numbers[0]) < 10:  # noqa: PLR2004 - no rank has ten digits
            shape = (str(PurePath(name).parent), _NUMBER.sub("#", PurePath(name).name))
            by_shape.setdefault(shape, {})[name] = int(numbers[0])
    found: dict[str, int] = {}
    for ranks in by_shape.values():
        if len(ranks) > 1 and sorted(ranks.values()) == list(range(len(ranks))):
            found |= ranks
    return found
