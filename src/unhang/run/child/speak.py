"""What `unhang run` says to people: on stderr, whole lines at once."""

from __future__ import annotations

import os
import sys
from collections import deque

_said: deque[bytes] = deque(maxlen=256)


def say(text: str) -> None:
    """Write lines to stderr, each with our name before it."""
    write_all("".join(f"unhang: {line}\n" for line in text.splitlines()))


def write_all(text: str) -> None:
    """Write text to stderr in one go; a closed or broken stderr is no reason to stop."""
    try:
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        data = memoryview(text.encode(encoding, "replace"))
        if text.strip():
            _said.append(bytes(data))
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        return


def without_own_words(data: bytes) -> bytes:
    """Output without what we have said: a verdict shows lines of logs, and is none itself."""
    for words in sorted(_said, key=len, reverse=True):
        data = data.replace(words, b"")
    return data
