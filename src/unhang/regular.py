"""Files that may be anything: regular ones are opened, nothing else is waited for.

A folder of evidence comes from outside. A FIFO or a device in it would hold a reader up for ever;
the descriptor tells what was opened, for it may have been another when it was listed. A link in it
may lead to what is none of it: `leading_out` says which do.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from unhang.model import Note

_FLAGS: Final = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")
)
"""What a system lacks of these it does not need: outside Linux a flag may be missing."""
_LINKS_SHOWN: Final = 16


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        OSError: It cannot be read, or is something else.
    """
    descriptor = os.open(path, _FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is no regular file")
    return os.fdopen(descriptor, "rb")


def leading_out(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """Links whose end lies outside of a folder.

    Args:
        folder: Which.
        names: The files and folders in it that are looked at, with all that is below them.
    """
    home = os.path.join(os.path.realpath(folder), "")  # noqa: PTH118 - with "/" at its end
    for link in _links([os.path.join(folder, name) for name in names]):  # noqa: PTH118 - 100,000 files
        if not os.path.realpath(link).startswith(home):
            yield Path(link)


def links_out(folder: Path) -> list[Path]:
    """All links below a folder that lead out of it, sorted; none of what is no folder."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names
    except OSError:  # its reader says why
        return []
    return sorted(leading_out(folder, names))


def not_followed(folder: Path, links: Sequence[Path], what: str = "folder") -> Iterator[Note]:
    """That links lead out of a folder, for the reader of a verdict without them."""
    from unhang.wording import count_of  # which what travels to nodes goes without

    for link in links[:_LINKS_SHOWN]:
        text = f"not read: a link that leads out of the {what} (to have it read, copy it there)"
        yield Note("warning", str(link), text)
    if (more := len(links) - _LINKS_SHOWN) > 0:
        text = f"not read: {count_of(more, 'more link')} that lead out of the {what}"
        yield Note("warning", str(folder), text)


def _links(paths: list[str]) -> Iterator[str]:
    """Links among paths and below those that are folders; what a link leads to is not entered."""
    yield from filter(os.path.islink, paths)
    waiting = [path for path in paths if not os.path.islink(path) and os.path.isdir(path)]  # noqa: PTH112, PTH114 - as above
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:  # its reader says why not
            for entry in entries:
                if entry.is_symlink():
                    yield entry.path
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def reason(error: Exception) -> str:
    """Why something could not be read, in the words of the system or of who refused it."""
    return getattr(error, "message", "") or getattr(error, "strerror", "") or str(error)
