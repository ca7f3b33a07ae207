"""The dictionaries that all dumps of one case share: names, signatures, stacks, threads.

Columns hold numbers; this is where the numbers come from. Everything that arrives is untrusted, so
each value is checked and bounded when it is first met, and never again after that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from unhang.case import Stacks
from unhang.ingest.columns.memberships import Memberships
from unhang.model import Frame, OpName, Shape, Signature
from unhang.stacks.ownership import is_recorders

MAX_TEXT = 4096
"""Longer names and paths are cut."""

MAX_FRAMES = 1024
"""Deeper stacks are cut at their outer end."""

MAX_TENSORS = 1 << 17
"""Tensors of one call: an all-to-all over 131,072 ranks has one for each."""

MAX_DIMENSIONS = 64

K = TypeVar("K")

_PEERS = re.compile(r"(?P<op>send|recv)[ _](?P<own>\d{1,9}|r)(?P<way>->|<-)(?P<peer>\d{1,9}|\?)$")


class Numbering(dict[K, int]):
    """Numbers each key in order of first use."""

    def __missing__(self, key: K) -> int:
        self[key] = index = len(self)
        return index


class Frames(Numbering[Frame]):
    """Numbers frames, and keeps which are of our own recorder.

    Attributes:
        own: Their numbers.
    """

    __slots__ = ("own",)

    def __init__(self) -> None:
        super().__init__()
        self.own: set[int] = set()

    def __missing__(self, key: Frame) -> int:
        number = super().__missing__(key)
        if is_recorders(key):
            self.own.add(number)
        return number


@dataclass(slots=True)
class Dictionaries:
    """One instance reads one case."""

    names: Numbering[str] = field(default_factory=Numbering)
    threads: Numbering[str] = field(default_factory=Numbering)
    groups: Numbering[tuple[str, str]] = field(default_factory=Numbering)
    signatures: Numbering[Signature] = field(default_factory=Numbering)
    frames: Frames = field(default_factory=Frames)
    stacks: Numbering[tuple[int, ...]] = field(default_factory=Numbering)
    memberships: Memberships = field(default_factory=Memberships)

    def stack(self, frames: Iterable[Frame]) -> int:
        """Number of a stack, given innermost first; -1 for none."""
        return self.numbered_stack(self.frames[frame] for frame in frames)

    def numbered_stack(self, frames: Iterable[int]) -> int:
        """Number of a stack, given the numbers of its frames; -1 for none.

        Frames of our own recorder are left out: of the calls of one line some pass through it, and
        some do not.
        """
        ids, own = tuple(frames), self.frames.own
        if own and not own.isdisjoint(ids):
            ids = tuple(number for number in ids if number not in own)
        return self.stacks[ids] if ids else -1

    def thread(self, name: str, time: int) -> int:
        """Number of a process' first, second… thread of a name; -1 where it has none."""
        if not name:
            return -1
        return self.threads[name if time == 1 else f"{name} #{time}"]

    def op_names(self) -> tuple[OpName, ...]:
        """All profiling names, taken apart."""
        return tuple(parse_op(name) for name in self.names)

    def packed_stacks(self) -> Stacks:
        """All stacks as the case wants them."""
        lengths = np.fromiter((len(ids) for ids in self.stacks), np.int64, len(self.stacks))
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        frame_ids = np.fromiter(
            (frame for ids in self.stacks for frame in ids), np.int32, int(offsets[-1])
        )
        return Stacks(offsets, frame_ids, tuple(self.frames))


def clean_text(value: object) -> str:
    """A text of bounded length; "" for anything that is no text."""
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def parse_op(raw: str) -> OpName:
    """Take a profiling name apart.

    Sends and receives carry group ranks, the caller's own first: "nccl:send 0->1",
    "nccl:recv 1<-0"; a receive from any source is "recv r<-?" or "recv 1<-?" (torch after 2.13).
    A plugin's backend may have colons in its name; an operation has none.
    """
    backend, _, op = raw.rpartition(":")
    match = _PEERS.match(op)
    if match is None:
        return OpName(raw, backend, op)
    own, peer = (int(match[end]) if match[end].isdecimal() else -1 for end in ("own", "peer"))
    src, dst = (own, peer) if match["way"] == "->" else (peer, own)
    return OpName(raw, backend, match["op"], src, dst)


def clean_shapes(value: object) -> tuple[Shape, ...]:
    """Sizes of the tensors of one side; what is no list of lists of integers is left out."""
    if not isinstance(value, (list, tuple)):
        return ()
    shapes = (_clean_shape(item) for item in value[:MAX_TENSORS])
    return tuple(shape for shape in shapes if shape is not None)


def _clean_shape(value: object) -> Shape | None:
    if not isinstance(value, (list, tuple)) or len(value) > MAX_DIMENSIONS:
        return None
    return tuple(value) if all(type(size) is int for size in value) else None


def clean_dtypes(value: object) -> tuple[str, ...]:
    """Names of the dtypes of one side."""
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(clean_text(item) for item in value[:MAX_TENSORS])


def clean_frame(value: object) -> Frame:
    """One frame of torch's layout; missing parts stay empty."""
    if not isinstance(value, dict):
        return Frame("", "", 0)
    line = value.get("line")
    return Frame(
        clean_text(value.get("name")),
        clean_text(value.get("filename")),
        line if type(line) is int else 0,
    )
