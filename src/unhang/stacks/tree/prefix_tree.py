"""One prefix tree over the stacks of many ranks, in numpy: 131,072 ranks at once, or node by node.

Stacks are merged level by level, from the outermost frame inwards: the children of one level are
the distinct pairs (parent, frame). So nodes lie in level order, `parent` never descends, and the
descendants of a node are one contiguous range on every level; a set of ranks is found when it is
asked for, not stored. Trees of nodes merge into one in the same way (`merge`), in any order and
grouping, so that a cluster can reduce them step by step and no one place gets everything.
The idea of merging by rank sets is that of LLNL's Stack Trace Analysis Tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from unhang.model import Frame
from unhang.stacks.once import each_once

IntArray = npt.NDArray[np.integer]

ROOT = 0
_BEFORE_ROOT: IntArray = np.full(1, -1, np.int32)  # parent and frame of the root
_DENSE = 1 << 22  # up to so many possible keys are counted in a table instead of sorted


@dataclass(frozen=True, slots=True, eq=False)
class StackTree:
    """A prefix tree; node 0 is the root and has no frame.

    Attributes:
        frames: The distinct frames.
        parent: Parent of each node, int32; -1 for the root; never descends.
        frame: Index in `frames` of each node, int32; -1 for the root.
        end_node, end_rank: Where stacks end: rank `end_rank[i]` has one at `end_node[i]`. Sorted by
            node, then rank; each pair once.
    """

    frames: tuple[Frame, ...]
    parent: IntArray
    frame: IntArray
    end_node: IntArray
    end_rank: IntArray

    def __len__(self) -> int:
        return len(self.parent)

    def frame_of(self, node: int) -> Frame:
        """The frame of a node other than the root."""
        return self.frames[int(self.frame[node])]

    def children(self, node: int) -> range:
        """Nodes below a node."""
        first, last = np.searchsorted(self.parent, [node, node + 1])
        return range(int(first), int(last))

    def ends(self, node: int) -> IntArray:
        """Ranks whose stacks end exactly here, ascending."""
        first, last = np.searchsorted(self.end_node, [node, node + 1])
        return self.end_rank[first:last]

    def ranks(self, node: int = ROOT) -> IntArray:
        """Ranks with a stack through this node, ascending, each once."""
        found = []
        first, last = node, node + 1
        while first < last:
            start, stop = np.searchsorted(self.end_node, [first, last])
            found.append(self.end_rank[start:stop])
            first, last = (int(i) for i in np.searchsorted(self.parent, [first, last]))
        return np.unique(np.concatenate(found))


def from_rows(
    frames: Sequence[Frame], ranks: IntArray, offsets: IntArray, frame_ids: IntArray
) -> StackTree:
    """Merge stacks given as columns.

    Args:
        frames: The distinct frames.
        ranks: Rank of each stack, shape (n,); one rank may have many stacks.
        offsets: Stack i is `frame_ids[offsets[i]:offsets[i + 1]]`, shape (n + 1,).
        frame_ids: Indices in `frames`, outermost first.
    """
    rows = np.arange(len(ranks), dtype=np.int32)
    node = np.zeros(len(ranks), np.int32)  # where each stack has got to
    narrow = np.int32 if len(frame_ids) < 1 << 31 else np.int64
    at, stop = offsets[:-1].astype(narrow), offsets[1:].astype(narrow)
    ends = np.zeros(len(ranks), np.int32)
    parents, level_frames, size = [_BEFORE_ROOT], [_BEFORE_ROOT], 1
    depth = 0
    while True:
        going = at + depth < stop
        if not going.all():
            ends[rows[~going]] = node[~going]
            rows, node, at, stop = rows[going], node[going], at[going], stop[going]
        if not len(rows):
            break
        parent, frame, inverse = _level(node, frame_ids[at + depth], len(frames))
        parents.append(parent)
        level_frames.append(frame)
        node = (inverse + size).astype(np.int32)
        size += len(parent)
        depth += 1
    end_node, end_rank = _pairs(ends, np.asarray(ranks))
    return StackTree(
        tuple(frames), np.concatenate(parents), np.concatenate(level_frames), end_node, end_rank
    )


def from_stacks(stacks: Iterable[tuple[int, Sequence[Frame]]]) -> StackTree:
    """Merge stacks given as (rank, frames with the outermost first)."""
    table: dict[Frame, int] = {}
    ranks: list[int] = []
    offsets = [0]
    ids: list[int] = []
    numbered = each_once(lambda frames: [table.setdefault(f, len(table)) for f in frames])
    for rank, frames in stacks:
        ids.extend(numbered(tuple(frames)))
        ranks.append(rank)
        offsets.append(len(ids))
    return from_rows(
        tuple(table), np.asarray(ranks, np.int32), np.asarray(offsets), np.asarray(ids, np.int32)
    )


def merge(trees: Sequence[StackTree]) -> StackTree:
    """Merge trees into one; the order and the grouping of merges do not matter.

    Frames are the same if they are equal. Ranks are kept as they are: trees of different nodes
    must hold global ranks.
    """
    table: dict[Frame, int] = {}
    translation = [
        np.fromiter((table.setdefault(f, len(table)) for f in tree.frames), np.int32)
        for tree in trees
    ]
    starts = np.cumsum([0, *(len(tree) for tree in trees)])
    total = int(starts[-1])
    parent = np.empty(total, np.int64)
    frame = np.zeros(total, np.int32)
    for tree, names, start in zip(trees, translation, starts.tolist(), strict=False):
        parent[start : start + len(tree)] = tree.parent + start
        parent[start] = start
        frame[start + 1 : start + len(tree)] = names[tree.frame[1:]]
    new_of, parents, frames = _unify(parent, frame, len(table))
    ends = [tree.end_node + start for tree, start in zip(trees, starts.tolist(), strict=False)]
    end_node = new_of[np.concatenate(ends)] if ends else np.zeros(0, np.int32)
    end_rank = np.concatenate([tree.end_rank for tree in trees]) if trees else end_node
    return StackTree(tuple(table), parents, frames, *_pairs(end_node, end_rank))


def _unify(parent: IntArray, frame: IntArray, kinds: int) -> tuple[IntArray, IntArray, IntArray]:
    """Merge a forest's equal nodes; returns (new number of each node, parents, frames).

    Args:
        parent: Parent of each node; a root is its own.
        frame: Frame of each node; of a root anything.
        kinds: Number of distinct frames.
    """
    depth = _depths(parent)
    order = np.argsort(depth, kind="stable")
    levels = np.cumsum(np.bincount(depth)).tolist() if len(depth) else [0]
    new_of = np.zeros(len(parent), np.int32)
    parents, frames, size = [_BEFORE_ROOT], [_BEFORE_ROOT], 1
    for first, last in pairwise(levels):
        nodes = order[first:last]
        level_parent, level_frame, inverse = _level(new_of[parent[nodes]], frame[nodes], kinds)
        parents.append(level_parent)
        frames.append(level_frame)
        new_of[nodes] = inverse + size
        size += len(level_parent)
    return new_of, np.concatenate(parents), np.concatenate(frames)


def _depths(parent: IntArray) -> IntArray:
    """Depth of each node of a forest, by doubling the step towards the root."""
    ancestor = parent
    depth: IntArray = (parent != np.arange(len(parent))).astype(np.int16)
    while True:
        further = depth[ancestor]
        if not further.any():
            return depth
        depth = depth + further
        ancestor = ancestor[ancestor]


def _level(parent: IntArray, frame: IntArray, kinds: int) -> tuple[IntArray, IntArray, IntArray]:
    """Distinct (parent, frame) of one level, ascending, and which of them each row is."""
    low = int(parent.min())
    key = parent.astype(np.int64)
    key -= low
    key *= kinds
    key += frame
    span = (int(parent.max()) - low + 1) * kinds
    distinct: IntArray
    inverse: IntArray
    if span <= max(_DENSE, 4 * len(key)):
        seen = np.zeros(span, bool)
        seen[key] = True
        distinct = np.flatnonzero(seen)
        number = np.empty(span, np.int32)
        number[distinct] = np.arange(len(distinct), dtype=np.int32)
        inverse = number[key]
    else:
        distinct, inverse = _distinct(key)
    return (
        (distinct // kinds + low).astype(np.int32),
        (distinct % kinds).astype(np.int32),
        inverse,
    )


def _distinct(key: IntArray) -> tuple[IntArray, IntArray]:
    """What `np.unique` with the inverse gives, with less memory at its peak."""
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.diff(key, prepend=-1) != 0
    inverse = np.empty(len(key), np.int32)
    inverse[order] = np.cumsum(first, dtype=np.int32) - 1
    return key[first], inverse


def _pairs(node: IntArray, rank: IntArray) -> tuple[IntArray, IntArray]:
    """Sorted distinct pairs of node and rank."""
    key: IntArray = node.astype(np.int64)
    key <<= 32
    key |= rank
    key.sort()
    key = key[np.diff(key, prepend=-1) != 0]
    return (key >> 32).astype(np.int32), (key & 0xFFFFFFFF).astype(np.int32)
