"""What gdb writes for `thread apply all bt`: native frames only, threads numbered from the oldest.

C++ names hold spaces and brackets, so a frame's name is what stands before the last balanced pair
of brackets, which holds the arguments.
"""

from __future__ import annotations

import re

from unhang.model import UNKNOWN_RANK, Frame, ProcessSample, ThreadStack

__all__ = ["matches", "parse"]

TOOL = "gdb"

_THREAD = re.compile(
    r"^Thread (\d+) \((?:Thread 0x[0-9a-f]+ )?\(?(?:LWP|process) (\d+)\)?"
    r'(?: "(.*?)")?\)(?: \(Exiting\))?:?\s*$',
    re.MULTILINE,
)
_FRAME = re.compile(r"^#\d+ +(?:0x[0-9a-f]+ in )?(.*)$")
_AT = re.compile(r" at ([^\s].*):(\d+)$")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_FROM = re.compile(r" from (/\S.*)$")


def matches(text: str) -> bool:
    """Whether gdb wrote this."""
    return _THREAD.search(text) is not None


def parse(text: str) -> list[ProcessSample]:
    """The one sample of a report: thread 1 is the main thread, its LWP the process id."""
    blocks: list[tuple[re.Match[str], list[str]]] = []
    for line in text.splitlines():
        if heading := _THREAD.match(line):
            blocks.append((heading, []))
        elif blocks and line.startswith("#"):
            blocks[-1][1].append(line)
        elif blocks and blocks[-1][1] and line.startswith("    "):
            blocks[-1][1][-1] += " " + line.strip()
    threads = [
        ThreadStack(
            name="MainThread" if heading[1] == "1" else heading[3] or "",
            tid=int(heading[2]),
            frames=tuple(_frame(line) for line in lines),
            is_main=heading[1] == "1",
            native=True,
        )
        for heading, lines in blocks
    ]
    pid = next((thread.tid for thread in threads if thread.is_main), -1)
    ordered = tuple(sorted(threads, key=lambda thread: (not thread.is_main, thread.tid)))
    return [ProcessSample(rank=UNKNOWN_RANK, host="", pid=pid, threads=ordered, tool=TOOL)]


def _frame(line: str) -> Frame:
    found = _FRAME.match(line)
    rest = found[1] if found else line
    file, number = "", 0
    if place := _AT.search(rest):
        file, number, rest = place[1], int(place[2]), rest[: place.start()]
    elif library := _FROM.search(rest):
        file, rest = library[1], rest[: library.start()]
    return Frame(_without_arguments(rest.strip()), file, number)


def _without_arguments(call: str) -> str:
    """Cut "(this=0x1)" off "std::function<void (int)>::operator()(int) const (this=0x1)"."""
    call = _STRING.sub("", call)  # a string among the arguments may hold brackets
    if not call.endswith(")"):
        return call
    depth = 0
    for position in range(len(call) - 1, -1, -1):
        depth += (call[position] == ")") - (call[position] == "(")
        if depth == 0:
            return call[:position].rstrip() or call
    return call
