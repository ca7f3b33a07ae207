"""What Python's faulthandler writes: on a fatal signal, on request, or every N seconds.

Also what torch's worker server returns as `dump_traceback`. There is no process id in it, and no
word about the GIL: "Current thread" is only the thread that wrote or crashed.
"""

from __future__ import annotations

import re

from unhang.model import UNKNOWN_RANK, Frame, ProcessSample, ThreadStack

TOOL = "faulthandler"

_THREAD = re.compile(
    r"^(Current thread|Thread|Current thread's C stack trace|Stack)"
    r"(?: (0x[0-9a-fA-F]+))?(?: \[(.*)\])? \(most recent call first\):\s*$",
    re.MULTILINE,
)
_FRAME = re.compile(r'^ {0,4}File "(.*)", line (\d+|\?\?\?) in ((?:.*\S)?)\s*$')
_AGAIN = re.compile(r"^(Timeout \(\d+:\d\d:\d\d.*\)!|Fatal Python error: .*)$")
_HEADLESS = "Thread (most recent call first):"
_C_STACK = "Current thread's C stack trace"


_LEAST = 2
"""Frames of a stack whose heading is cut off: one line may be anything."""


def matches(text: str) -> bool:
    """Whether faulthandler wrote this, also where the heading of its one thread is cut off."""
    if _THREAD.search(text) is not None:
        return True
    return sum(_FRAME.match(line) is not None for line in text.splitlines()) >= _LEAST


def parse(text: str) -> list[ProcessSample]:
    """One sample a dump: repeated ones (`dump_traceback_later(repeat=True)`) are numbered."""
    dumps: list[list[str]] = [[]]
    errors = [""]
    for line in text.splitlines():
        if heading := _AGAIN.match(line):
            dumps.append([])
            errors.append(heading[1] if heading[1].startswith("Fatal") else "")
        else:
            dumps[-1].append(line)
    found = [(_threads(lines), error) for lines, error in zip(dumps, errors, strict=True)]
    return [
        ProcessSample(
            rank=UNKNOWN_RANK,
            host="",
            pid=-1,
            threads=threads,
            sample=number,
            tool=TOOL,
            error=error,
        )
        for number, (threads, error) in enumerate(item for item in found if item[0])
    ]


def _threads(lines: list[str]) -> tuple[ThreadStack, ...]:
    blocks: list[tuple[re.Match[str], list[Frame]]] = []
    if not any(map(_THREAD.match, lines)) and (headless := _THREAD.match(_HEADLESS)):
        blocks.append((headless, []))
    for line in lines:
        if heading := _THREAD.match(line):
            blocks.append((heading, []))
        elif blocks and (frame := _FRAME.match(line)):
            number = int(frame[2]) if frame[2].isdigit() else 0
            blocks[-1][1].append(Frame(frame[3], frame[1], number))
    blocks = [block for block in blocks if block[0][1] != _C_STACK]
    main = main_index([frames for _, frames in blocks])
    threads = [
        ThreadStack(
            name=heading[3] or ("MainThread" if index == main else ""),
            tid=int(heading[2] or "0", 16),
            frames=tuple(frames),
            is_main=index == main,
        )
        for index, (heading, frames) in enumerate(blocks)
        if frames or heading[2]
    ]
    return tuple(sorted(threads, key=lambda thread: not thread.is_main))


def main_index(stacks: list[list[Frame]]) -> int:
    """Which of a process's stacks is the main thread's, where the tool does not say; -1 for none.

    The last one that does not begin in `threading`: tools list the oldest thread last, and every
    other Python thread begins in `Thread._bootstrap`.
    """
    for index in range(len(stacks) - 1, -1, -1):
        if not stacks[index]:
            continue
        outermost = stacks[index][-1]
        if outermost.function.rpartition(".")[2] != "_bootstrap":
            return index
    return -1
