"""Logs of single ranks: the launcher is asked to mark each rank's lines, and to keep them apart.

Each launcher has its own variable for that, and none is overridden. Torchrun writes a file for
each rank, which a full disk or a read-only directory would turn into a failure of the job: where
there is no room it is not asked. This is on the path of every command, so nothing dear is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

__all__ = ["FOLDER", "is_rank_log", "rank_log_settings", "rank_logs"]

FOLDER = "unhang-logs"
"""In the working directory, where cases are made as well: logs may be larger than /tmp or /run."""

MAX_FILES = 2_048
_ROOM_BYTES = 1 << 30
_MPI = frozenset(("mpirun", "mpiexec", "orterun"))
_FILE = re.compile(r"attempt_\d{1,6}/\d{1,6}/(?:stdout\.log|stderr\.log|error\.json)$")


def rank_log_settings(command: Sequence[str], name: str) -> list[tuple[str, str]]:
    """The variables that make launchers mark lines and keep logs apart.

    Torchrun may be called by a script, so it is always asked. A script may read what srun or mpirun
    print for it: they are asked only where they are the command itself.

    Args:
        command: The command, as it will run.
        name: Of the logs' directory, below FOLDER: its own for each run.
    """
    program = os.path.basename(command[0])  # noqa: PTH119 - pathlib's calls are dear at start-up
    settings = []
    if program == "srun":
        settings.append(("SLURM_LABELIO", "1"))
    if program in _MPI:
        settings.append(("OMPI_MCA_orte_tag_output", "1"))
    directory = _with_room()
    if directory:
        settings += [("PET_TEE", "3"), ("PET_LOG_DIR", f"{directory}/{FOLDER}/{name}")]
    return settings


def _with_room() -> str:
    """The working directory, if files can be written there; else ""."""
    try:
        directory = os.getcwd()  # noqa: PTH109 - as above
        room = os.statvfs(directory)
    except OSError:
        return ""
    enough = room.f_bavail * room.f_frsize >= _ROOM_BYTES
    return directory if enough and os.access(directory, os.W_OK) else ""


def is_rank_log(path: str) -> bool:
    """Whether torchrun names the log of a rank so."""
    return _FILE.search(path) is not None


def rank_logs(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Where torchrun keeps the logs of ranks, and what each is called below the directory.

    Args:
        env: The job's environment; a directory that the user named is as good as ours.
    """
    top = env.get("PET_LOG_DIR", "")
    count = 0
    for folder, _, names in os.walk(top) if top else ():
        for name in sorted(names):
            path = f"{folder}/{name}"
            if count < MAX_FILES and is_rank_log(path):
                count += 1
                yield path, str(PurePath(path).relative_to(top))
