"""Reports that lie in a case: what `--case` saves of every judging command, and how its file tells.

    <case>/reports/<command>-<UTC time>.json

One file a verdict, never overwritten. This module knows names and places; what is in such a file is
read, as hostile as any other, by `unhang.ingest.savedreports`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from unhang.casedir.contents import MANIFEST
from unhang.casedir.new import undone_if_empty, write_new
from unhang.errors import OutputError, UsageError
from unhang.record.contact.runtime_dir import private_dir
from unhang.wording import printable

FOLDER: Final = "reports"
_STAMP: Final = "%Y%m%dT%H%M%SZ"
_NAME: Final = re.compile(r"(?P<command>[a-z]{2,20})-(?P<time>\d{8}T\d{6}Z)(?:-\d{1,5})?\.json")


def is_case(root: Path) -> bool:
    """Whether a directory has the layout of a case."""
    return (root / MANIFEST).is_file() or any(
        (root / kind).is_dir() for kind in ("dumps", "stacks")
    )


def keep_private(path: Path, place: Path) -> None:
    """Give a document that is about to go to a place in a case the mode of a case's files.

    Args:
        path: The document, or a directory of documents, under its temporary name.
        place: Where it goes; outside of cases nothing is changed.

    Raises:
        OSError: The mode cannot be set.
    """
    above = place.absolute().parents
    if not any((root / MANIFEST).is_file() and (root / "parts").is_dir() for root in above):
        return
    for file in path.iterdir() if path.is_dir() else ():
        file.chmod(0o600)
    path.chmod(0o700 if path.is_dir() else 0o600)


def check_place(root: Path) -> None:
    """See whether reports may be saved there: a case, or a directory that is new or empty.

    Dumps that lie loose in a directory would not be found any more once it looked like a case.

    Raises:
        UsageError: It is something else.
        OutputError: It cannot be looked at, or not be written.
    """
    name = printable(str(root))
    try:
        there = next(path for path in (root, *root.absolute().parents) if os.path.lexists(path))
        if not there.is_dir():
            where = printable(str(there))
            raise UsageError(f"{where} is not a directory", "--case: name a case, or a new one.")
        if there == root and not is_case(root) and any(root.iterdir()):
            raise UsageError(
                f"{name} is not a case directory",
                "Name a case or a new directory; or save with -o report.json, then: unhang "
                "diagnose PATH --report report.json",
            )
    except OSError as error:
        raise OutputError(
            f"{name} cannot be read: {error.strerror or error}", "Name another place with --case."
        ) from error
    if not os.access(there, os.W_OK | os.X_OK):
        raise OutputError(f"{name} may not be written", "Name another place with --case.")


def save_report(root: Path, command: str, text: str, now_s: float) -> Path:
    """Save a report as JSON next to the others of a case; a case that is not there is made.

    Args:
        root: The case.
        command: Whose verdict it is: lower case letters.
        text: The JSON.
        now_s: Wall clock.

    Raises:
        UsageError: `root` is something else than a case.
        OutputError: It cannot be written.
    """
    from datetime import datetime, timezone

    from unhang.casedir.manifest import FOLDERS
    from unhang.casedir.sharing import MOST_CASES, cannot_write

    check_place(root)
    stamp = datetime.fromtimestamp(now_s, tz=timezone.utc).strftime(_STAMP)
    try:
        with undone_if_empty(root):
            if not is_case(root):
                for folder in FOLDERS:
                    private_dir(root / folder)
            private_dir(root / FOLDER)
            for number in range(1, MOST_CASES):
                again = "" if number == 1 else f"-{number}"
                path = root / FOLDER / f"{command}-{stamp}{again}.json"
                if _written(path, text):
                    return path
    except OSError as error:
        raise cannot_write(root, error) from error
    raise OutputError(f"{MOST_CASES} reports of this second are there", "Try again.")


def _written(path: Path, text: str) -> bool:
    """Write a new file; False where there is one of that name."""
    try:
        write_new(path, text)
    except FileExistsError:
        return False
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return True


def name_told(name: str) -> tuple[str, int]:
    """What a file's name tells: the command, and when in ns; "" and 0 where it does not."""
    found = _NAME.fullmatch(name)
    if found is None:
        return "", 0
    from datetime import datetime, timezone

    try:
        when = datetime.strptime(found["time"], _STAMP).replace(tzinfo=timezone.utc)
    except ValueError:
        return "", 0
    return found["command"], int(when.timestamp()) * 10**9
