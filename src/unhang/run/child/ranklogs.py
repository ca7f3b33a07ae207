"""Logs of single ranks: the launcher is asked to mark each rank's lines, and to keep them apart.

Each launcher has its own variable for that, and none is overridden. Torchrun writes a file for
each rank, which a full disk or a read-only directory would turn into a failure of the job: where
there is no room it is not asked. The files are temporary, unless the user asks for them: a job that
went well leaves none. This is on the path of every command, so nothing dear is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath

from unhang.errors import OutputError
from unhang.run.child.speak import say

FOLDER = "unhang-logs"
"""In the working directory: where logs are left if a job fails and there is no case of it."""

MAX_FILES = 2_048
_ROOM_BYTES = 1 << 30
_MPI = frozenset(("mpirun", "mpiexec", "orterun"))
_FILE = re.compile(r"attempt_\d{1,6}/\d{1,6}/(?:stdout\.log|stderr\.log|error\.json)$")
_IN_MEMORY = (b"tmpfs", b"ramfs")


def rank_log_settings(command: Sequence[str], place: str) -> list[tuple[str, str]]:
    """The variables that make launchers mark lines and keep logs apart.

    Torchrun may be called by a script, so it is always asked. A script may read what srun or mpirun
    print for it: they are asked only where they are the command itself.

    Args:
        command: The command, as it will run.
        place: Directory for the logs, or "" for none.
    """
    program = os.path.basename(command[0])  # noqa: PTH119 - pathlib's calls are dear at start-up
    settings = []
    if program == "srun":
        settings.append(("SLURM_LABELIO", "1"))
    if program in _MPI:
        settings.append(("OMPI_MCA_orte_tag_output", "1"))
    if place:
        settings += [("PET_TEE", "3"), ("PET_LOG_DIR", place)]
    return settings


def place_for_logs(told: str, private: str, run: str) -> str:
    """The directory for this run's logs; "" where nothing has room for them.

    Args:
        told: What the user wants.
        private: The run's own folder. It may lie in memory, which logs must not fill: then, and
            where it is full, a hidden directory in the working directory takes its place.
        run: The run's id.
    """
    if told:
        return os.path.abspath(told)  # noqa: PTH100 - as above
    if _has_room(private) and not _in_memory(private):
        return f"{private}/ranks"
    with suppress(OSError):
        here = os.getcwd()  # noqa: PTH109 - as above
        if _has_room(here):
            return f"{here}/.{FOLDER}-{run}"
    return ""


def make_place(place: str) -> None:
    """Make the directory that the user named for logs.

    Raises:
        OutputError: It cannot be made.
    """
    try:
        os.makedirs(place, exist_ok=True)  # noqa: PTH103 - as above
    except OSError as error:
        raise OutputError(
            f"cannot keep the ranks' logs in {place}: {error.strerror}",
            "name a writable directory with --rank-logs",
        ) from error


def _existing(path: str) -> str:
    """The nearest directory above that is there already."""
    while path and not os.path.isdir(path):  # noqa: PTH112 - as above
        path = os.path.dirname(path)  # noqa: PTH120 - as above
    return path


def _has_room(path: str) -> bool:
    try:
        room = os.statvfs(_existing(path))
    except OSError:
        return False
    enough = room.f_bavail * room.f_frsize >= _ROOM_BYTES
    return enough and os.access(_existing(path), os.W_OK)


def _in_memory(path: str) -> bool:
    """Whether a path lies on a file system that takes memory; proc(5) has the table's columns."""
    with suppress(OSError, IndexError):
        device = os.stat(_existing(path)).st_dev  # noqa: PTH116 - as above
        number = f"{os.major(device)}:{os.minor(device)}".encode()
        with open("/proc/self/mountinfo", "rb") as table:  # noqa: PTH123 - as above
            for line in table:
                mount, _, source = line.partition(b" - ")
                if mount.split()[2] == number:
                    return source.split()[0] in _IN_MEMORY
    return False


def settle_logs(place: str, run: str, *, failed: bool) -> None:
    """Remove the logs of a run that is over; those of a failure that has no case are left.

    Args:
        place: As `place_for_logs` said.
        run: The run's id.
        failed: The command failed and no case holds the logs.
    """
    if not place or not os.path.isdir(place):  # noqa: PTH112 - as above
        return
    import shutil

    if failed and any(rank_logs({"PET_LOG_DIR": place})):
        target = f"{FOLDER}/{run}"
        with suppress(OSError):
            os.makedirs(FOLDER, exist_ok=True)  # noqa: PTH103 - as above
            shutil.move(place, target)
            say(f"the logs of the ranks are in {target}")
    shutil.rmtree(place, ignore_errors=True)


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
