"""What `py-spy dump` writes, as text and with `--json`, of one or several processes.

In the text form an idle thread may still hold the GIL (py-spy writes "idle" either way), so
`holds_gil` stays None there; the JSON form tells. Text names files without their directories.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby

from unhang.model import UNKNOWN_RANK, Frame, ProcessSample, ThreadStack

TOOL = "py-spy"

_PROCESS = re.compile(r"^Process (\d+): ?(.*)$")
_THREAD = re.compile(
    r"^ {0,3}Thread (?:(?:(\d+|0x[0-9A-Fa-f]+)|<[\w -]{1,20}>|[X.]{1,12}) )?\(([a-z+]+)\):?"
    r'(?: "(.*)")?:?\s*$',
    re.MULTILINE,
)
"""A heading; people put a placeholder where the number was."""
_RETYPED = re.compile(r"^(.{0,80}?)\bpid[ =:]+(\d+),? \((\w+),? ([a-z+]+)\):?\s*$", re.MULTILINE)
"""A heading of a process and its thread in one, as people write it by hand."""
_MAIN = "MainThread"
_REMARK = r"(?:[ \t]+(?:<-|\u2190|#).*)?\s*$"
"""What people write behind a frame: "<-- blocked here"."""
_FRAME = re.compile(rf"^ {{4}}(\S(?:.*\S)?) +\(((?:(?! \().)*?)(?::(\d+))?\){_REMARK}")
_INDENTED = re.compile(rf"^[ \t]{{1,12}}([^\s()](?:[^()]*[^\s()])?) +\(([^()\s]+):(\d+)\){_REMARK}")
"""A frame with other spaces than py-spy's, as what is copied from a page has them."""
_JSON_HEAD = re.compile(r'^\s*\[\s*(\{\s*"pid"\s*:|\])')


def matches_text(text: str) -> bool:
    """Whether this is the plain output of `py-spy dump`."""
    return _THREAD.search(_unfolded(text)) is not None


def _unfolded(text: str) -> str:
    """A text in which headings that were written by hand are those of py-spy."""
    return _RETYPED.sub(r'Process \2: \1\nThread \2 (\4): "\3"', text) if "pid" in text else text


def parse_text(text: str) -> list[ProcessSample]:
    """Samples of the plain output; several "Process" headings make several samples.

    A filter (`grep -A5 MainThread`) takes the headings away: each main thread begins a process.
    """
    blocks: list[tuple[int, str, list[str]]] = []
    for line in _unfolded(text).splitlines():
        heading, thread = _PROCESS.match(line), _heading(line)
        if heading:
            blocks.append((int(heading[1]), heading[2], []))
        elif thread and (not blocks or _is_next(thread, blocks[-1])):
            blocks.append((_process_of(thread), "", [line]))
        elif blocks:
            blocks[-1][2].append(line)
    _share(blocks)
    return [_sample(pid, command, _text_threads(lines, pid)) for pid, command, lines in blocks]


def _share(blocks: list[tuple[int, str, list[str]]]) -> None:
    """Give processes whose headings stand right above another one's the stack below that."""
    for (pid, _, lines), (_, _, below) in zip(blocks[-2::-1], blocks[:0:-1], strict=True):
        if pid >= 0 and len(lines) == 1 and below and _heading(below[0]):
            lines.extend(below[1:])


def _is_next(thread: re.Match[str], block: tuple[int, str, list[str]]) -> bool:
    """Whether a heading is of another process's main thread, where no heading tells it."""
    lines = block[2]
    return thread[3] == _MAIN and any(_MAIN in line and _THREAD.match(line) for line in lines)


def _process_of(thread: re.Match[str]) -> int:
    """The process whose main thread this is: Linux gives both one number; -1 where it is none."""
    number = thread[1] or ""
    return int(number) if thread[3] == _MAIN and number.isdigit() else -1


def _heading(line: str) -> re.Match[str] | None:
    """Of a thread; most lines are none, which is seen without the pattern."""
    return _THREAD.match(line) if "Thread " in line else None


def _text_threads(lines: Iterable[str], pid: int) -> Iterator[ThreadStack]:
    heading: re.Match[str] | None = None
    below: list[str] = []
    for line in lines:
        if found := _heading(line):
            if heading:
                yield _text_thread(heading, tuple(below), pid)
            heading, below = found, []
        else:
            below.append(line)
    if heading:
        yield _text_thread(heading, tuple(below), pid)


@lru_cache(maxsize=4_096)
def _frames_of(lines: tuple[str, ...]) -> tuple[tuple[Frame, ...], bool]:
    """The frames below a heading, and whether one is native; ranks that stand alike share them."""
    frames: list[Frame] = []
    for line in lines:
        if found := _frame(line, frames):
            frames.append(Frame(found[1], found[2], int(found[3] or 0)))
    return tuple(frames), any(map(_is_native, frames))


def _frame(line: str, above: list[Frame]) -> re.Match[str] | None:
    """A frame; of another depth of spaces only where no frame of this thread has py-spy's own."""
    return _FRAME.match(line) or (_INDENTED.match(line) if not above or above[-1].line else None)


def _text_thread(heading: re.Match[str], below: tuple[str, ...], pid: int) -> ThreadStack:
    frames, native = _frames_of(below)
    tid, status, name = int(heading[1] or "-1", 0), heading[2], heading[3] or ""
    return ThreadStack(
        name=name,
        tid=tid,
        frames=frames,
        is_main=name == _MAIN or (tid == pid and tid >= 0),
        holds_gil=True if "gil" in status else False if "active" in status else None,
        active="active" in status,
        native=native,
    )


def matches_json(text: str) -> bool:
    """Whether this is the output of `py-spy dump --json`."""
    return _JSON_HEAD.match(text) is not None


def parse_json(text: str) -> list[ProcessSample]:
    """Samples of the JSON output; several arrays may follow each other in one file."""
    decoder = json.JSONDecoder()
    samples: list[ProcessSample] = []
    position = 0
    while position < len(text):
        if text[position] in " \t\r\n":
            position += 1
            continue
        try:
            rows, position = decoder.raw_decode(text, position)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        samples.extend(_json_samples(rows))
    return samples


def _json_samples(rows: object) -> Iterator[ProcessSample]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("not a list of threads")
    for pid, group in groupby(rows, key=lambda row: _number(row.get("pid"))):
        threads = list(group)
        command = next((_command(row) for row in threads if _command(row)), "")
        yield _sample(pid, command, (_json_thread(row, pid) for row in threads))


def _command(row: dict[str, object]) -> str:
    info = row.get("process_info")
    return str(info.get("command_line", "")) if isinstance(info, dict) else ""


def _json_thread(row: dict[str, object], pid: int) -> ThreadStack:
    raw = row.get("frames")
    told = raw if isinstance(raw, list) else []
    frames = tuple(_json_frame(item) for item in told if isinstance(item, dict))
    tid = _number(row.get("os_thread_id"))
    name = str(row.get("thread_name") or "")
    gil, active = row.get("owns_gil"), row.get("active")
    return ThreadStack(
        name=name,
        tid=tid if tid >= 0 else _number(row.get("thread_id")),
        frames=frames,
        is_main=name == _MAIN or (tid == pid and tid >= 0),
        holds_gil=gil if isinstance(gil, bool) else None,
        active=active if isinstance(active, bool) else None,
        native=any(_is_native(frame) for frame in frames),
    )


def _json_frame(item: dict[str, object]) -> Frame:
    return Frame(
        str(item.get("name", "")), str(item.get("filename", "")), max(_number(item.get("line")), 0)
    )


def _is_native(frame: Frame) -> bool:
    """py-spy gives a native frame the library as its file, or the line of a C source."""
    return frame.line == 0 or not frame.file.endswith((".py", ">"))


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _sample(pid: int, command: str, threads: Iterable[ThreadStack]) -> ProcessSample:
    ordered = sorted(threads, key=lambda thread: (not thread.is_main, thread.tid))
    return ProcessSample(
        rank=UNKNOWN_RANK, host="", pid=pid, threads=tuple(ordered), command=command, tool=TOOL
    )
