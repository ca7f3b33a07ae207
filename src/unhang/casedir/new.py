"""New files and folders of a case: whole, or not there.

A disk that is full in the midst of it would leave an empty case, or half a report, for the next
reader to wonder about.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unhang.record.contact.runtime_dir import private_opener


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet, through to the disk.

    Raises:
        FileExistsError: There is one of that name.
        OSError: It cannot be written; nothing of it is left.
    """
    with open(path, "x", encoding="utf-8", opener=private_opener) as stream:
        try:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        except OSError:
            path.unlink(missing_ok=True)
            raise


@contextmanager
def undone_if_empty(folder: Path) -> Iterator[None]:
    """Take a folder that was made within this away again where an error leaves it empty."""
    was_there = os.path.lexists(folder)
    try:
        yield
    except OSError:
        if not was_there:
            for path, _, _ in os.walk(folder, topdown=False):
                with suppress(OSError):  # there is something in it
                    os.rmdir(path)  # noqa: PTH106 - a name of os.walk's
        raise
