"""Gives each attempt of a job a file of its own for the dumps that torch's NCCL writes by itself.

`unhang run` sets one path for all attempts, since it cannot know how often the launcher will
restart the job; torch overwrites what is there, and with it the evidence of the attempt before.
The path is set anew in the process, before the first process group reads it. The user's own path
is left alone. And it takes back the older name of a setting where `unhang run` has set both and
this torch reads the newer one alone, so that torch does not complain to the user of our doing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from unhang.rankenv import attempt_of

__all__ = ["NAMES", "stage_torch_dumps", "take_back_older_names"]

NAMES: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")

_BOTH: Final = (
    ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
    NAMES,
    ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"),
    ("TORCH_FR_CPP_STACK", "TORCH_NCCL_TRACE_CPP_STACK"),
    ("TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"),
)
"""The newer and the older name of each setting."""
_READS_NEWER: Final = (2, 13)
"""The first torch seen to read the newer names, in its builds without NCCL, and to call the older
ones deprecated. Builds with NCCL keep both: a dump pipe may read the older name alone."""


def take_back_older_names(version: str, *, has_nccl: bool) -> None:
    """Unset the older names that say the same as the newer ones, where nobody reads them.

    Args:
        version: Of torch, as it tells it ("2.13.0+cpu").
        has_nccl: It is a build for CUDA or ROCm.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if has_nccl or not os.environ.get("UNHANG_RUN") or numbers is None:
        return
    if (int(numbers[1]), int(numbers[2])) < _READS_NEWER:
        return
    for newer, older in _BOTH:
        if os.environ.get(older) and os.environ.get(older) == os.environ.get(newer):
            del os.environ[older]


def stage_torch_dumps() -> None:
    """Let torch's dumps of this attempt go to `<staging>/a<attempt>/nccl/rank_<N>`.

    Raises:
        OSError: The directory cannot be made; torch's path is as it was.
    """
    staging = os.environ.get("UNHANG_DIR", "")
    if not staging or not os.environ.get("UNHANG_RUN"):
        return
    ours = re.compile(re.escape(staging) + r"/(a\d+/)?nccl/rank_")
    for name in NAMES:
        if ours.fullmatch(os.environ.get(name, "")):
            folder = Path(staging, f"a{attempt_of(os.environ)}", "nccl")
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.environ[name] = f"{folder}/rank_"
