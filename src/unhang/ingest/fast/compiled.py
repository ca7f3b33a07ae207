"""Compile a function, and keep the result on disk where only the same sources find it again.

Numba itself looks at the date and size of the file that holds the function, and at no other. A
constant of another module is baked in all the same, so after an upgrade old code would run over new
arrays, and write past their ends. Hence a folder for each content of the sources.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba

from unhang._version import __version__

__all__ = ["SOURCES", "compiled", "fingerprint"]

F = TypeVar("F", bound=Callable[..., Any])

_HERE = Path(__file__).parent
SOURCES: Final = (_HERE / "kernel.py", _HERE / "layout.py", _HERE.parent / "pickles" / "opcodes.py")
"""What the compiled code consists of: the functions, and all constants that they use."""


def fingerprint() -> str:
    """Of the sources and the version."""
    digest = hashlib.sha256(__version__.encode())
    for source in (*SOURCES, Path(__file__)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _folder() -> str:
    """Where to keep what is compiled: below what the user has set, or the user's cache."""
    base = numba.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME")
    return str(Path(base or "~/.cache").expanduser() / "unhang-compiled" / fingerprint())


_FOLDER = _folder()


def compiled(function: F) -> F:
    """Compile when first called, and keep the result on disk for the next process."""
    # Without `_nrt` Numba counts references to the arrays, which takes longer than the decoding.
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, _FOLDER
    try:
        compiler = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
        return cast("F", compiler(function))
    except RuntimeError:  # there is no place on this machine where it could keep the result
        return cast("F", numba.njit(nogil=True, error_model="numpy", _nrt=False)(function))
    finally:
        numba.config.CACHE_DIR = before
