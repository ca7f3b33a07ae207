"""What Python prints of its threads by `traceback`: pytest-timeout, and the usual recipes.

Each thread has a heading; its frames stand as in an exception, the outermost first, most of them
with a line of their source.
"""

from __future__ import annotations

import re

from unhang.model import UNKNOWN_RANK, Frame, ProcessSample, ThreadStack
from unhang.stacks.formats.faulthandlers import main_index

TOOL = "traceback"

_HEAD = re.compile(
    r"^\s*(?:~{3,} ?Stack of (?P<name>.{1,80}?) \((?P<tid>\d+)\) ?~{3,}"
    r"|# ?Thread(?:ID)?: ?(?P<other>[^(\n]{0,80}?)\(?(?P<number>\d*)\)?)\s*$",
    re.MULTILINE,
)
_FRAME = re.compile(r'^\s*File:? "(.*)", line (\d+),? in (\S+)\s*$')


def matches(text: str) -> bool:
    """Whether threads were printed, each below its heading."""
    return _HEAD.search(text) is not None and any(map(_FRAME.match, text.splitlines()))


def parse(text: str) -> list[ProcessSample]:
    """The one sample of a text; the main thread is named so, or begins as one."""
    heads: list[re.Match[str]] = []
    stacks: list[list[Frame]] = []
    for line in text.splitlines():
        if head := _HEAD.match(line):
            heads.append(head)
            stacks.append([])
        elif stacks and (frame := _FRAME.match(line)):
            stacks[-1].insert(0, Frame(frame[3], frame[1], int(frame[2])))
    names = [(head["name"] or head["other"] or "").strip() for head in heads]
    named = names.index("MainThread") if "MainThread" in names else -1
    main = named if named >= 0 else main_index(stacks)
    threads = [
        ThreadStack(
            name="MainThread" if index == main else names[index],
            tid=int(head["tid"] or head["number"] or 0),
            frames=tuple(frames),
            is_main=index == main,
        )
        for index, (head, frames) in enumerate(zip(heads, stacks, strict=True))
        if frames
    ]
    ordered = tuple(sorted(threads, key=lambda thread: not thread.is_main))
    return [ProcessSample(UNKNOWN_RANK, "", -1, ordered, tool=TOOL)]
