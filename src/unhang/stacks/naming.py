"""Which rank or host a file of stacks is of, from its name, where the content does not say it.

"rank" followed by a number is believed. A bare number may be a process id, so it is believed only
where the files of a folder differ in nothing but one number and these numbers are 0..n-1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import PurePath

from unhang.model import UNKNOWN_RANK

_RANK = re.compile(r"(?<![a-z])rank[ _.=-]?(\d{1,9})(?!\d)", re.IGNORECASE)
_NODE = re.compile(r"^(?:trace|stacks?|pyspy|py-spy)-(?P<host>[A-Za-z][\w.-]*)\.(?:out|txt|log)$")
"""What `srun --output=trace-%N.out` makes: one file a node, whatever ranks it has."""
_NUMBER = re.compile(r"\d+")


def rank_in_name(name: str) -> int:
    """The rank that a path names ("rank_3.txt", "pyspy-rank12.json", "rank_3/stack.txt")."""
    found = _RANK.findall(name)
    return int(found[-1]) if found else UNKNOWN_RANK


def host_in_name(name: str) -> str:
    """The node that a file is of ("trace-node07.out"), or ""; one that names a rank is of that."""
    found = _NODE.match(PurePath(name).name) if rank_in_name(name) == UNKNOWN_RANK else None
    return found["host"] if found else ""


def numbered_ranks(names: Sequence[str]) -> dict[str, int]:
    """Ranks of files that are numbered 0..n-1 ("0.txt", "1.txt"…); empty where they are not.

    Args:
        names: Paths relative to one folder.
    """
    by_shape: dict[tuple[str, ...], dict[str, int]] = {}
    for name in names:
        folder, last = os.path.split(name)
        numbers = _NUMBER.findall(last)
        if len(numbers) == 1 and not host_in_name(name) and len(numbers[0]) < 10:  # noqa: PLR2004 - no rank has ten digits
            shape = folder, last.replace(numbers[0], "#")
            by_shape.setdefault(shape, {})[name] = int(numbers[0])
    found: dict[str, int] = {}
    for ranks in by_shape.values():
        if len(ranks) > 1 and sorted(ranks.values()) == list(range(len(ranks))):
            found |= ranks
    return found
