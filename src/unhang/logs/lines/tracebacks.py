"""Put Python tracebacks together, line by line, although other ranks' lines stand in between.

Feed it the lines of one stream (one rank); it says when a traceback is complete. Chained
tracebacks keep the first one, which is where things went wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from unhang.model import Frame
from unhang.stacks.ownership import same_file

HEADER = "Traceback (most recent call last)"
RECORDED = HEADER + r":\n"
"""A traceback in one line, with its line ends written out, as JSON has them."""
MAX_LINES = 400

_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_EXCEPTION = re.compile(r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::\s?(?P<what>.*))?$")
_THREADS = "threading.py", ("_bootstrap", "_bootstrap_inner")
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


def is_of_a_traceback(text: str) -> bool:
    """Whether a line is the head of a traceback or code in it: what a logger marks line by line."""
    return text[:1].isspace() or text.startswith(HEADER)


@dataclass(frozen=True, slots=True)
class Traceback:
    """A complete traceback. Frames are innermost first; an ignored one stopped nothing.

    `spawned` is the number of the process that it is of, where its parent passed it on, and
    `ranked` the rank. `thread` is the thread that it ended, not the process: its name, or "?" where
    the line with the name is not above it; "" else.
    """

    frames: tuple[Frame, ...]
    exception: str
    message: str
    ignored: bool = False
    spawned: int = -1
    ranked: int = -1
    thread: str = ""


@dataclass(slots=True)
class TracebackReader:
    """Collects one traceback; `feed` returns it when its exception line has come.

    `mark` is what all lines of its stream begin with, where that is known.
    """

    frames: list[Frame] = field(default_factory=list)
    lines: int = 0
    ignored: bool = False
    mark: bytes = b""
    spawned: int = -1
    ranked: int = -1
    thread: str = ""

    def feed(self, text: str) -> Traceback | None:
        """Take the next line of this stream.

        Returns:
            The traceback when complete, also when cut off after MAX_LINES lines (its exception
            is "" then); None while it goes on.
        """
        self.lines += 1
        frame = _FRAME.match(text)
        if frame:
            self.frames.append(Frame(frame["function"] or "?", frame["file"], int(frame["line"])))
            return None
        if self.lines > MAX_LINES:
            return self._finish("", "")
        if not text.strip() or text[0].isspace() or text.startswith(HEADER):
            return None
        ended = _EXCEPTION.match(text)
        if not ended:
            return self._finish("", text)
        return self._finish(ended["type"], ended["what"] or "")

    def _finish(self, exception: str, message: str) -> Traceback:
        frames = tuple(reversed(self.frames))
        # What a thread lets through is printed from the frame in which all threads begin.
        begins = bool(frames) and same_file(frames[-1].file, _THREADS[0])
        thread = self.thread or ("?" if begins and frames[-1].function in _THREADS[1] else "")
        return Traceback(
            frames, exception, message, self.ignored, self.spawned, self.ranked, thread
        )


def is_chain(text: str) -> bool:
    """Whether this line says that the traceback before it caused the one after it."""
    return text.startswith(_CHAIN)
