"""A prefix tree as bytes, for the steps of a reduction: one node's tree, or that of many nodes.

Schema "unhang.stacktree/1": one line of JSON (schema, frames, lengths), then zlib-compressed
little-endian 32-bit integers: parent and frame of each node, then where stacks end as runs
(node, first rank, last rank). What is read comes from outside: lengths are bounded before anything
is unpacked, and every index is checked.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from unhang.incoming import fit, value_of
from unhang.model import Frame
from unhang.stacks.tree.prefix_tree import StackTree

SCHEMA = "unhang.stacktree/1"

IntArray = npt.NDArray[np.integer]

_START = b'{"schema": "unhang.stacktree/'
_MOST = 1 << 28  # integers: a gigabyte
_MOST_BYTES = 1 << 30
_LARGEST_RANK = 1 << 24

_Count = Annotated[int, Meta(ge=0, le=_MOST)]


@dataclass(frozen=True, slots=True)
class _Header:
    """The first line of a tree."""

    schema: str
    nodes: _Count
    runs: _Count
    frames: list[tuple[str, str, int]]


def is_tree(head: bytes) -> bool:
    """Whether a file that begins so is a tree."""
    return head.startswith(_START)


def read_tree(path: Path) -> StackTree | None:
    """Read a file that holds a tree; None for a file or folder that holds none.

    Raises:
        OSError: It cannot be read.
        ValueError: It is a tree and is damaged.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(len(_START))
        if not is_tree(head):
            return None
        data = head + file.read(_MOST_BYTES)
    return from_bytes(data)


def to_bytes(tree: StackTree) -> bytes:
    """Write a tree; ranks that follow each other cost no more than one."""
    starts, stops = _runs(tree.end_node, tree.end_rank)
    header = {
        "schema": SCHEMA,
        "nodes": len(tree),
        "runs": len(starts),
        "frames": [[f.function, f.file, f.line] for f in tree.frames],
    }
    columns = (
        tree.parent,
        tree.frame,
        tree.end_node[starts],
        tree.end_rank[starts],
        tree.end_rank[stops],
    )
    body = b"".join(np.ascontiguousarray(column, "<i4").tobytes() for column in columns)
    return json.dumps(header).encode() + b"\n" + zlib.compress(body, 1)


def _runs(node: IntArray, rank: IntArray) -> tuple[IntArray, IntArray]:
    """First and last index of each run of consecutive ranks at one node."""
    breaks = np.flatnonzero((np.diff(node) != 0) | (np.diff(rank) != 1))
    if not len(node):
        return breaks, breaks
    return np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [len(node) - 1]])


def from_bytes(data: bytes) -> StackTree:
    """Read a tree; ValueError where it is not whole, too large or not a tree."""
    line, _, packed = data.partition(b"\n")
    try:
        header = fit(value_of(line), _Header)
    except ValueError as error:
        raise ValueError("not a tree of stacks") from error
    if header.schema != SCHEMA:
        raise ValueError(f"not of schema {SCHEMA}: a newer unhang may have written it")
    frames = tuple(Frame(*frame) for frame in header.frames)
    nodes, runs = header.nodes, header.runs
    size = 4 * (2 * nodes + 3 * runs)
    unpacked = _unpack(packed, size)
    columns = np.frombuffer(unpacked, "<i4").astype(np.int32)
    parent, frame, *ends = np.split(columns, np.cumsum([nodes, nodes, runs, runs]))
    _check(parent, frame, len(frames), *ends)
    return StackTree(frames, parent, frame, *_spread(*ends))


def _unpack(packed: bytes, size: int) -> bytes:
    if size > 4 * _MOST:
        raise ValueError("too large")
    machine = zlib.decompressobj()
    try:
        unpacked = machine.decompress(packed, size + 1)
    except zlib.error as error:
        raise ValueError("the compressed part is damaged") from error
    if len(unpacked) != size or not machine.eof:
        raise ValueError("cut short or longer than it says")
    return unpacked


def _check(  # what a tree promises, on every index
    parent: IntArray,
    frame: IntArray,
    kinds: int,
    node: IntArray,
    first: IntArray,
    last: IntArray,
) -> None:
    whole = (
        len(parent) > 0
        and parent[0] == -1
        and frame[0] == -1
        and bool(np.all(parent[1:] >= 0))
        and bool(np.all(parent[1:] < np.arange(1, len(parent))))
        and bool(np.all(np.diff(parent) >= 0))
        and bool(np.all((frame[1:] >= 0) & (frame[1:] < kinds)))
        and bool(np.all((node >= 0) & (node < len(parent)) & (np.diff(node, prepend=0) >= 0)))
        and bool(np.all((first >= 0) & (first <= last) & (last < _LARGEST_RANK)))
    )
    if not whole:
        raise ValueError("its nodes do not make a tree")
    if int((last.astype(np.int64) - first + 1).sum()) > _MOST:
        raise ValueError("too large")


def _spread(node: IntArray, first: IntArray, last: IntArray) -> tuple[IntArray, IntArray]:
    """Runs as pairs of node and rank."""
    lengths = (last - first + 1).astype(np.int64)
    begins = np.repeat(np.cumsum(lengths) - lengths, lengths)
    offset = np.arange(len(begins)) - begins
    return np.repeat(node, lengths), (np.repeat(first, lengths) + offset).astype(np.int32)
