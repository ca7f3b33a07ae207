"""Records Python calls inside a program: two memory-mapped files per process, used in turn.

A mapped file keeps its last bytes when the process is killed or stops answering, so the last call
before silence is there. Uses sys.monitoring (Python 3.12 and later), where calls that are left out
cost nothing after the first, else a profile function. Standard library only and self-contained.

Settings: UNHANG_TRACE_DIR, UNHANG_TRACE_INCLUDE and _EXCLUDE (package names, comma separated),
UNHANG_TRACE_BYTES (size of one file).
"""

from __future__ import annotations

import mmap
import os
import sys
import sysconfig
import threading
import time
from types import CodeType, FrameType
from typing import Any

DEFAULT_BYTES = 2 << 20
LONGEST_LINE = 400
HEADER = "# unhang trace 1"
TOOL = "unhang trace"


class Writer:
    """Appends lines to one mapped file and changes to the other when it is full."""

    def __init__(self, folder: str, size: int) -> None:
        """Open the first file of this process."""
        self.folder, self.size, self.turn = folder, size, 0
        self.lock = threading.Lock()
        self.open()

    def open(self) -> None:
        """Map a fresh file in place of the older of the two."""
        name = f"calls-{os.environ.get('RANK', 'x')}-{os.getpid()}.{self.turn % 2}"
        fd = os.open(os.path.join(self.folder, name), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(fd, self.size)
            self.map = mmap.mmap(fd, self.size)
        finally:
            os.close(fd)
        self.position = 0
        words = (HEADER, f"rank={os.environ.get('RANK', '')}", f"pid={os.getpid()}",
                 f"ppid={os.getppid()}", f"turn={self.turn}")  # fmt: skip
        self.put((" ".join(words) + "\n").encode())

    def put(self, line: bytes) -> None:
        """Copy a line into the map; the caller holds the lock."""
        end = self.position + len(line)
        self.map[self.position : end] = line
        self.position = end

    def write(self, line: str) -> None:
        """Append one line."""
        data = line.encode("utf-8", "replace")
        with self.lock:
            if self.position + len(data) > self.size:
                self.turn += 1
                self.open()
            self.put(data)

    def after_fork(self) -> None:
        """Give the child files of its own."""
        self.lock = threading.Lock()
        self.turn = 0
        self.open()


class Chooser:
    """Which calls are recorded, decided once per code object."""

    def __init__(self, include: str, exclude: str) -> None:
        """Take comma separated package names; without `include`, all but installed packages."""
        self.include = tuple(name for name in include.split(",") if name)
        self.exclude = tuple(name for name in exclude.split(",") if name)
        paths = sysconfig.get_paths()
        self.library = tuple({paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")})
        self.known: dict[CodeType, bool] = {}

    def wants(self, code: CodeType, module: str) -> bool:
        """Whether calls of this code are recorded."""
        found = self.known.get(code)
        if found is None:
            found = self.known[code] = self.decide(code, module)
        return found

    def decide(self, code: CodeType, module: str) -> bool:
        """By package name, then by where the file lies."""
        if code.co_filename.startswith("<") or module == "_unhang_trace":
            return False
        if any(module == name or module.startswith(name + ".") for name in self.exclude):
            return False
        if self.include:
            return any(module == name or module.startswith(name + ".") for name in self.include)
        return not code.co_filename.startswith(self.library)


class Tracer:
    """Turns call and return events into lines: time, thread, "+" or "-", depth, place, function."""

    def __init__(self, writer: Writer, chooser: Chooser) -> None:
        """Write to `writer` what `chooser` wants."""
        self.writer, self.chooser = writer, chooser
        self.local = threading.local()

    def called(self, code: CodeType) -> None:
        """Record that a call began."""
        depth = getattr(self.local, "depth", 0)
        self.local.depth = depth + 1
        self.line("+", depth, code)

    def returned(self, code: CodeType) -> None:
        """Record that a call ended, by return or by exception."""
        depth = max(getattr(self.local, "depth", 0) - 1, 0)
        self.local.depth = depth
        self.line("-", depth, code)

    def line(self, sign: str, depth: int, code: CodeType) -> None:
        """Write one event."""
        place = f"{code.co_filename}:{code.co_firstlineno}"[-LONGEST_LINE:]
        name = getattr(code, "co_qualname", code.co_name)  # co_qualname is new in 3.11
        self.writer.write(
            f"{time.time_ns()} {threading.get_ident()} {sign}{depth} {place} {name}\n"
        )

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Take the events of sys.setprofile, for Python before 3.12."""
        if event in ("call", "return"):
            code = frame.f_code
            if self.chooser.wants(code, str(frame.f_globals.get("__name__", ""))):
                (self.called if event == "call" else self.returned)(code)


def monitor(tracer: Tracer) -> bool:
    """Use sys.monitoring; False where there is none or no tool number is free."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return False
    tool = next((n for n in (4, 3) if monitoring.get_tool(n) is None), None)
    if tool is None:
        return False
    events = monitoring.events

    def begin(code: CodeType, _: int) -> object:
        module = str(sys._getframe(1).f_globals.get("__name__", ""))  # noqa: SLF001 - the caller's module
        if not tracer.chooser.wants(code, module):
            return monitoring.DISABLE
        tracer.called(code)
        return None

    def end(code: CodeType, *_: object) -> object:
        if not tracer.chooser.known.get(code):
            return monitoring.DISABLE
        tracer.returned(code)
        return None

    def unwind(code: CodeType, *_: object) -> None:
        if tracer.chooser.known.get(code):  # this event cannot be disabled per code
            tracer.returned(code)

    monitoring.use_tool_id(tool, TOOL)
    monitoring.register_callback(tool, events.PY_START, begin)
    monitoring.register_callback(tool, events.PY_RETURN, end)
    monitoring.register_callback(tool, events.PY_UNWIND, unwind)
    monitoring.set_events(tool, events.PY_START | events.PY_RETURN | events.PY_UNWIND)
    return True


def start() -> None:
    """Begin to record in this process and in what it forks."""
    size = int(os.environ.get("UNHANG_TRACE_BYTES", "") or DEFAULT_BYTES)
    writer = Writer(os.environ["UNHANG_TRACE_DIR"], max(size, 1 << 16))
    tracer = Tracer(writer, Chooser(os.environ.get("UNHANG_TRACE_INCLUDE", ""),
                                    os.environ.get("UNHANG_TRACE_EXCLUDE", "")))  # fmt: skip
    os.register_at_fork(after_in_child=writer.after_fork)
    if not monitor(tracer):
        threading.setprofile(tracer.profile)
        sys.setprofile(tracer.profile)
