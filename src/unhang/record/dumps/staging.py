"""Gives each attempt of a job a file of its own for the dumps that torch's NCCL writes by itself.

`unhang run` sets one path for all attempts, since it cannot know how often the launcher will
restart the job; torch overwrites what is there, and with it the evidence of the attempt before.
The path is set again in the process, before the first process group reads it. The user's own path
is left alone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from unhang.rankenv import attempt_of
from unhang.torchenv import TEMP_FILE

NAMES: Final = (TEMP_FILE.newer, TEMP_FILE.older)


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
