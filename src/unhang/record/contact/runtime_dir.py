"""Where marks and sockets are: the runtime directory, which belongs to one user alone.

Separate from the marks themselves, because `unhang run` needs the directory before anything else
and the marks only later. It refuses links, other users' directories and open modes.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path


class RuntimeDirError(OSError):
    """No private directory for marks and sockets could be made or trusted."""


def roots() -> list[Path]:
    """Where runtime directories may be, best first: writers take the first that they can use.

    /tmp comes before XDG_RUNTIME_DIR, because the latter vanishes when the user's last login
    session ends and is another one inside a batch job.
    """
    told = os.environ.get("UNHANG_RUNTIME_DIR")
    if told:
        return [Path(told)]
    uid = os.geteuid()
    xdg = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    return [Path(f"/tmp/unhang-{uid}"), Path(xdg) / "unhang"]  # noqa: S108 - ownership is checked


def create_private_dir(path: Path) -> Path:
    """Make `path` with mode 0700, or check that what is there is ours alone.

    Raises:
        RuntimeDirError: It is a link, another user's, open to others, or cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RuntimeDirError(f"{path}: {error.strerror}") from error
    if not is_private(path):
        raise RuntimeDirError(f"{path} is not a directory of this user with mode 0700")
    return path


def private_dir(path: Path, *, exist_ok: bool = True) -> Path:
    """Make a directory, and those above it that are missing, with mode 0700 whatever the umask.

    A directory that is there already keeps the mode that a user gave it.

    Raises:
        OSError: It cannot be made, or is there and must not be.
    """
    if not path.parent.exists():
        private_dir(path.parent)
    try:
        path.mkdir(mode=0o700)
        path.chmod(0o700)
    except FileExistsError:
        if not (exist_ok and path.is_dir()):
            raise
    return path


def private_opener(path: str, flags: int) -> int:
    """For `open`: a file that it makes has mode 0600 whatever the umask."""
    descriptor = os.open(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def is_private(path: Path) -> bool:
    """Whether a directory is this user's alone: no link, mode 0700 or stricter."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & 0o077
    )


def runtime_root() -> Path:
    """The runtime directory to write to, made if need be.

    Raises:
        RuntimeDirError: None of `roots()` can be used; says why for each.
    """
    problems = []
    for root in roots():
        try:
            return create_private_dir(root)
        except RuntimeDirError as error:  # noqa: PERF203 - two rounds at most
            problems.append(str(error))
    raise RuntimeDirError("no runtime directory: " + "; ".join(problems))


def job_dir(job_id: str, root: Path | None = None) -> Path:
    """The directory of one job under the runtime directory, made if need be.

    Raises:
        RuntimeDirError: It cannot be made or trusted.
    """
    return create_private_dir((root or runtime_root()) / safe_name(job_id))


def safe_name(text: str) -> str:
    """`text` as a file name: letters, digits, dot, dash, underscore; at most 64 characters."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._")[:64] or "job"
