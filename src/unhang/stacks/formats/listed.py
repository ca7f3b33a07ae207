"""Stacks that people and agents wrote down by hand: a line a rank, or frames without a heading.

    DP0,3: broadcast (torch/distributed/distributed_c10d.py:2841)
    DP1:   step (train.py:12)
             main (train.py:40)

Every frame has its file and line; a text that holds mostly something else is none of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.model import UNKNOWN_RANK, Frame, ProcessSample, ThreadStack

TOOL = "by hand"
MOST_RANKS = 4_096

_CALL = (
    r"(?P<function>[^\s()][^()]*)\((?P<file>[^()\s]+|<\w+>):(?P<line>\d{1,7})\)"
    r"\s*(?:(?:<-|\u2190|#).*)?$"
)
_FRAME = re.compile(rf"^\s*(?:at )?{_CALL}")
_HEADED = re.compile(
    r"^\s*(?P<kind>rank|worker|gpu|DP|TP|EP|PP)s?[ _#]?(?P<who>\d{1,6}(?:(?: ?, ?|-)\d{1,6})*): +"
    + _CALL,
    re.IGNORECASE,
)
_LEAST = 3
"""Frames of a stack without any heading: one or two lines may be anything."""
_OUTERMOST = "<module>"
"""Where a program begins: with it two frames are a stack."""


def matches(text: str) -> bool:
    """Whether lines tell ranks and where these stand, all of them by one name."""
    heads = [head for line in text.splitlines() if (head := _HEADED.match(line))]
    return bool(heads) and len({head["kind"].lower() for head in heads}) == 1 and _mostly(text)


def matches_frames(text: str) -> bool:
    """Whether the text is one stack of Python without its heading."""
    frames = [found for line in text.splitlines() if (found := _FRAME.match(line))]
    whole = len(frames) > 1 and frames[-1]["function"].strip() == _OUTERMOST
    return (whole or len(frames) >= _LEAST) and _mostly(text)


def _mostly(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return sum(bool(_FRAME.match(line) or _HEADED.match(line)) for line in lines) * 2 > len(lines)


def parse(text: str) -> list[ProcessSample]:
    """A sample of each rank that is named."""
    return [
        ProcessSample(rank, "", -1, (_thread(frames),), tool=TOOL, role="rank")
        for who, frames in _stacks(text)
        for rank in _numbers(who)
    ]


def parse_frames(text: str) -> list[ProcessSample]:
    """The one stack, about which nothing tells whose it is."""
    frames = [_frame(found) for line in text.splitlines() if (found := _FRAME.match(line))]
    return [ProcessSample(UNKNOWN_RANK, "", -1, (_thread(frames),), tool=TOOL)]


def _stacks(text: str) -> Iterator[tuple[str, list[Frame]]]:
    who, frames = "", list[Frame]()
    for line in text.splitlines():
        if head := _HEADED.match(line):
            if frames:
                yield who, frames
            who, frames = head["who"], [_frame(head)]
        elif frames and (found := _FRAME.match(line)):
            frames.append(_frame(found))
    if frames:
        yield who, frames


def _numbers(who: str) -> list[int]:
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", who):
        found += range(int(first), min(int(last or first), int(first) + MOST_RANKS) + 1)
    return found[:MOST_RANKS]


def _thread(frames: list[Frame]) -> ThreadStack:
    return ThreadStack("MainThread", -1, tuple(frames), is_main=True)


def _frame(found: re.Match[str]) -> Frame:
    return Frame(found["function"].strip(), found["file"], int(found["line"]))
