"""What `unhang run` says to people: on stderr, whole lines at once."""

from __future__ import annotations

import os
import sys

__all__ = ["say", "write_all"]


def say(text: str) -> None:
    """Write lines to stderr, each with our name before it."""
    write_all("".join(f"unhang: {line}\n" for line in text.splitlines()))


def write_all(text: str) -> None:
    """Write text to stderr in one go; a closed or broken stderr is no reason to stop."""
    try:
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        data = memoryview(text.encode(encoding, "replace"))
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        return
