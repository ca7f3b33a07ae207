"""What the command prints, heard while it runs: a line that says that something stands still.

A serving engine without a token, a queue that no process reads, a watchdog: what prints such a line
has seen the standstill, and stacks are worth most then. Each sort of line counts once; a stream
that is not kept, such as a terminal, is not heard. Nothing is judged here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from unhang.run.child.streams import Stream

if TYPE_CHECKING:
    from unhang.logs.rules import LogRule

_MOST_BYTES: Final = 1 << 20
_REPORTS_BYTES: Final = 1 << 16
_MOST_TEXT: Final = 160
_OWN: Final = b"unhang: "


@dataclass(slots=True)
class Hearing:
    """The streams of one command.

    Attributes:
        streams, folder: As planned, and where the pump keeps its files.
    """

    streams: Sequence[Stream]
    folder: str
    _read: dict[tuple[str, int], int] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def news(self) -> str:
        """The first line since the last look that tells of a standstill, of a sort not yet told."""
        found = [line for stream in self.streams for line in self._in(stream)]
        return next(iter(found), "")

    def _in(self, stream: Stream) -> Iterator[str]:
        data, new = self._since(stream)
        if not new:
            return
        from unhang.logs.lines.serving import standing_still
        from unhang.logs.rules.known import SERVING_STALLED, STANDING

        for line in new.splitlines():
            rule = next((r for r in STANDING if _says(r, line)), None)
            if rule is not None and self._is_new(rule.code):
                yield _text(line)
        stands = standing_still(data)
        if stands is not None and self._is_new(SERVING_STALLED.code):
            yield _text(data[stands.start : stands.end])

    def _is_new(self, code: str) -> bool:
        known = code in self._told
        self._told.add(code)
        return not known

    def _since(self, stream: Stream) -> tuple[bytes, bytes]:
        """Whole lines of the end of a stream: with some of before, and those that are new."""
        path = f"/proc/self/fd/{stream.fds[0]}" if stream.how == "file" else ""
        path = path or (f"{self.folder}/{stream.name}.log" if stream.how else "")
        with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 - as the streams do
            size = file.seek(0, os.SEEK_END)
            key = path, os.fstat(file.fileno()).st_ino
            start = self._read.get(key, stream.start)
            start = 0 if start > size else max(start, size - _MOST_BYTES)
            begin = max(min(start, size - _REPORTS_BYTES), 0)
            file.seek(begin)
            data = file.read(size - begin)
            whole = data[: data.rfind(b"\n") + 1]
            self._read[key] = begin + len(whole) if len(whole) > start - begin else start
            return _of_others(whole), _of_others(whole[start - begin :])
        return b"", b""


def _of_others(data: bytes) -> bytes:
    """Without our own words, which may repeat such a line."""
    lines = data.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(_OWN))


def _says(rule: LogRule, line: bytes) -> bool:
    found = any(anchor.encode() in line for anchor in rule.anchors)
    return found and rule.search(line.decode("utf-8", "replace")) is not None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip()[:_MOST_TEXT]
