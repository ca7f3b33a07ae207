"""What pystack writes of a live process or a core: `pystack remote PID`, `pystack core FILE`.

It lists the outermost call first; here, as everywhere, the innermost comes first. The process id is
only in the heading of a core.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from unhang.model import UNKNOWN_RANK, Frame, ProcessSample, ThreadStack
from unhang.stacks.formats.faulthandlers import main_index

TOOL = "pystack"

_THREAD = re.compile(
    r"^Traceback for thread (\d+)(?: \((.*?)\))? \[(.*)\] \(most recent call last\):\s*$",
    re.MULTILINE,
)
_FRAME = re.compile(r'^    \((Python|C)\) File "(.*)", line (\d+), in ((?:.*\S)?)\s*$')
_LIBRARY = re.compile(r"^(.*?)(?: \(inlined\))?(?: \((/[^()]*)\))?$")
_CORE_PID = re.compile(r"^(?:state: .*|.*\b)?pid: (\d+) ppid:", re.MULTILINE)
_UNKNOWN = "???"
_HAS_GIL = "Has the GIL"


class _Block(NamedTuple):
    """One thread of the report; frames (with whether each is native) outermost first."""

    tid: int
    name: str
    status: str
    frames: list[tuple[Frame, bool]]


def matches(text: str) -> bool:
    """Whether pystack wrote this."""
    return _THREAD.search(text) is not None


def parse(text: str) -> list[ProcessSample]:
    """The one sample of a report; the main thread is found by its outermost frame."""
    blocks: list[_Block] = []
    for line in text.splitlines():
        if heading := _THREAD.match(line):
            blocks.append(_Block(int(heading[1]), heading[2] or "", heading[3], []))
        elif blocks and (frame := _FRAME.match(line)):
            blocks[-1].frames.append((_frame(frame), frame[1] == "C"))
    known = _CORE_PID.search(text)
    pid = int(known[1]) if known else -1
    main = _main(blocks, pid)
    gil_seen = any(_HAS_GIL in block.status for block in blocks)
    threads = [
        ThreadStack(
            name="MainThread" if index == main else block.name,
            tid=block.tid,
            frames=tuple(frame for frame, _ in reversed(block.frames)),
            is_main=index == main,
            holds_gil=_HAS_GIL in block.status if gil_seen else None,
            native=any(native for _, native in block.frames),
        )
        for index, block in enumerate(blocks)
    ]
    ordered = tuple(sorted(threads, key=lambda thread: (not thread.is_main, thread.tid)))
    return [ProcessSample(rank=UNKNOWN_RANK, host="", pid=pid, threads=ordered, tool=TOOL)]


def _main(blocks: list[_Block], pid: int) -> int:
    for index, block in enumerate(blocks):
        if block.tid == pid:
            return index
    return main_index(
        [[frame for frame, native in reversed(b.frames) if not native] for b in blocks]
    )


def _frame(found: re.Match[str]) -> Frame:
    file, line, function = found[2], int(found[3]), found[4]
    if found[1] == "C" and (parts := _LIBRARY.match(function)):
        function = parts[1]
        if file == _UNKNOWN and parts[2]:
            file = parts[2]
    return Frame(function, file, line)
