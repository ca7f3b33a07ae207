"""Where in the program a call was made: fast looks at Python frames, resolved to lines later.

A look keeps code objects and instruction offsets only, never frames, so that nothing of the job
(locals, tensors) is kept alive. Line numbers cost ten times the look and are computed for a dump.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

MAX_FRAMES: Final = 100
_PACKAGE: Final = Path(__file__).parents[2]
OURS: Final = tuple(
    str(_PACKAGE / name) for name in ("record", "telltale", "rankenv.py", "torchenv.py", "built.py")
)
"""What runs inside jobs: the recorder, and all that it imports, also from a checkout of sources."""

RawStack = tuple[object, ...]
"""Code object and instruction offset, alternating, innermost first."""


_WRAPPERS: Final = ("/contextlib.py", "/functools.py", "/typing_extensions.py", "/warnings.py")
"""Where decorators of torch's own functions come from: `deprecated` is in the last two."""


class _Machinery(dict[str, bool]):
    """By file name: whether its frames are torch's or ours, rather than the program's."""

    def __missing__(self, filename: str) -> bool:
        value = filename.startswith((*OURS, "<frozen")) or filename.endswith(_WRAPPERS)
        torch = sys.modules.get("torch")
        where = getattr(torch, "__file__", None)
        if where:
            value = value or filename.startswith(str(Path(where).parent) + "/")
            self[filename] = value
        return value


MACHINERY: Final = _Machinery()


class _Libraries(dict[str, bool]):
    """By file name: whether it came with Python or was installed, rather than being the user's."""

    def __missing__(self, filename: str) -> bool:
        installed = tuple({f"{sysconfig.get_path(n)}/" for n in ("stdlib", "purelib", "platlib")})
        value = MACHINERY[filename] or filename.startswith(("<", *installed))
        self[filename] = value
        return value


_LIBRARIES: Final = _Libraries()


def site_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the program itself: the first outside torch and outside unhang."""
    machinery = MACHINERY
    while frame is not None:
        if not machinery[frame.f_code.co_filename]:
            return frame
        frame = frame.f_back
    return None


def capture(frame: FrameType | None, *, to_site: bool = False) -> RawStack:
    """The stack from `frame` outwards, unresolved; at most `MAX_FRAMES` frames.

    Args:
        frame: The innermost.
        to_site: No further than to the program's own frame; () where there is none.
    """
    raw: list[object] = []
    room = MAX_FRAMES
    while frame is not None and room:
        raw.append(frame.f_code)
        raw.append(frame.f_lasti)
        if to_site and not MACHINERY[frame.f_code.co_filename]:
            return tuple(raw)
        frame = frame.f_back
        room -= 1
    return () if to_site else tuple(raw)


class SiteStacks:
    """Stacks of call sites, each captured once as long as it stays the same.

    A loop calls from the same place again and again: comparing takes a quarter of a capture, and
    makes nothing that the garbage collector has to look at.
    """

    __slots__ = ("known",)

    MOST: Final = 512

    def __init__(self) -> None:
        self.known: dict[int, tuple[RawStack, RawStack, RawStack]] = {}

    def of(self, site: int, frame: FrameType | None) -> RawStack:
        """The stack from `frame` outwards.

        Args:
            site: Any number for where the program is: the last stack with that number is tried.
            frame: The innermost frame.
        """
        known = self.known.get(site)
        if known is not None:
            raw, codes, offsets = known
            walker = frame
            for code, offset in zip(codes, offsets):  # noqa: B905 - strict costs a quarter more
                if walker is None or walker.f_lasti != offset or walker.f_code is not code:
                    break
                walker = walker.f_back
            else:
                if walker is None:
                    return raw
        raw = capture(frame)
        if len(self.known) >= self.MOST:
            self.known.clear()
        self.known[site] = (raw, raw[::2], raw[1::2])
        return raw


def line_of(code: CodeType, offset: int) -> int:
    """The source line of an instruction; the function's first line where none is known."""
    for start, stop, line in code.co_lines():
        if start <= offset < stop and line is not None:
            return line
    return code.co_firstlineno


def frames_of(raw: RawStack) -> list[dict[str, object]]:
    """A captured stack as torch writes frames: name, filename, line, innermost first."""
    frames: list[dict[str, object]] = []
    for code, offset in zip(raw[::2], raw[1::2], strict=True):
        if isinstance(code, CodeType) and isinstance(offset, int):
            frames.append(
                {
                    "name": code.co_name,
                    "filename": code.co_filename,
                    "line": line_of(code, offset),
                }
            )
    return frames


def main_site() -> FrameType | None:
    """Where the program's main thread is right now."""
    ident = threading.main_thread().ident
    return site_frame(sys._current_frames().get(ident)) if ident is not None else None


def program_site(frame: FrameType | None = None) -> FrameType | None:
    """Where the user's own code is: in `frame` and its callers, or as `program_frames` finds it."""
    return _own_frame(frame) if frame is not None else program_frames()[1]


def program_frames() -> tuple[FrameType | None, FrameType | None]:
    """Where the thread that runs the program is: its innermost frame, and the user's own in it.

    That is the main thread. Where it shows no line of the user's, it is the only other thread that
    does; a framework may run the program's loop in one. None where no thread shows one, as at the
    end of a process.
    """
    frames = sys._current_frames()
    main = frames.pop(threading.main_thread().ident or 0, None)
    own = _own_frame(main)
    if own is not None:
        return main, own
    others = [(inner, own) for inner in frames.values() if (own := _own_frame(inner)) is not None]
    return others[0] if len(others) == 1 else (None, None)


def _own_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None and _LIBRARIES[frame.f_code.co_filename]:
        frame = frame.f_back
    return frame


def current_stacks() -> dict[int, list[dict[str, object]]]:
    """The Python stacks of all threads right now, by Python thread id, without our own frames."""
    return {
        ident: frames_of(capture(_outside(frame))) for ident, frame in sys._current_frames().items()
    }


def _outside(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is not the recorder's."""
    while frame is not None and frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    return frame
