"""Paths as people name them: a glob in quotes is what the shell would have made of it.

So a pattern reaches all of too many files for a command line, and works where there is no shell.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from typing import Any

from unhang.errors import InputError
from unhang.wording import printable


def expanded(name: str, hint: str, key: Callable[[str], Any] | None = None) -> list[str]:
    """The paths behind a name; a file that is called like a glob is that file.

    Args:
        name: A path or a glob.
        hint: What may be named.
        key: By which the paths are sorted.

    Raises:
        InputError: There is none.
    """
    if os.path.lexists(name):
        return [name]
    found = glob.glob(name, recursive=True) if glob.has_magic(name) else []  # noqa: PTH207 - a glob may be absolute
    if not found:
        shown = printable(os.fsencode(name).decode("utf-8", "backslashreplace"))
        raise InputError(f"{shown} does not exist", hint)
    return sorted(found, key=key)
