"""Reading: the only code that meets untrusted bytes. One bad file is a note, never an exception."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

from unhang.case import Case

__all__ = ["Progress", "load"]

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (files read, files in all) while reading goes on."""


def load(  # the options of `unhang diagnose`, one by one
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    world_size: int | None = None,
    rank_pattern: str | None = None,
    incident: str | None = None,
    group_world_size: int | None = None,
    progress: Progress | None = None,
) -> Case:
    """Read what a stuck job left behind."""
    raise NotImplementedError
