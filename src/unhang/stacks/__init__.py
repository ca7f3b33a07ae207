"""Stacks of many processes: readers of saved ones, one tree over ranks, what a frame means.

Importing this package costs only the standard library, because the collector that travels to bare
nodes uses it; the tree, which needs numpy, is in `unhang.stacks.tree`.
"""

from __future__ import annotations

from unhang.stacks.reading import Reading, is_stacks, parse_stacks, read_stacks
from unhang.stacks.saved import dump_samples, write_samples

__all__ = [
    "Reading",
    "dump_samples",
    "is_stacks",
    "parse_stacks",
    "read_stacks",
    "write_samples",
]
