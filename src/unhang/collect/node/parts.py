"""Dumps of a node made small before they travel, by the unhang that is installed on the node.

What travels with the collector needs the standard library alone, and reducing needs more: so where
unhang is not installed, dumps travel as they are, and a note says so.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from unhang.isolated import STANDARD_FIRST

SMALL = 1 << 20
"""Bytes of dumps of one node that travel as they are."""

_LONGEST_S = 60.0
_MIB = 1 << 20


def reduced(
    files: Mapping[str, bytes | Path], folder: Path, name: str
) -> tuple[dict[str, bytes | Path], str]:
    """The dumps of a node as one part, where they are large.

    Args:
        files: Dumps, or where they are, by path in the case.
        folder: Of ours, for what is made.
        name: Of the node.

    Returns:
        What travels, by path in the case, and a note: why it is large, or "".
    """
    size = sum(len(each) if isinstance(each, bytes) else _size(each) for each in files.values())
    if size < SMALL:
        return dict(files), ""
    whole, part = folder / "to-reduce", folder / "reduced.part"
    for path, source in files.items():
        place = whole / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, bytes):
            place.write_bytes(source)
        else:
            place.symlink_to(source.absolute())
    why = _run(whole, {path.partition("/")[0] for path in files}, part)
    if why:
        large = f"{size / _MIB:,.0f} MiB of dumps travel as they are, since {why}"
        return dict(files), f"{large}: install unhang on the nodes to have them reduced there"
    return {f"dumps/{name}.part": part}, ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _run(whole: Path, names: Iterable[str], part: Path) -> str:
    """Reduce a directory; returns why that did not work, or ""."""
    program = shutil.which("unhang")
    start = STANDARD_FIRST + "from unhang.__main__ import main; sys.exit(main())"
    commands = [[sys.executable, "-c", start], *([[program]] if program else [])]
    why = "unhang is not installed on this node"
    for command in commands:
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                [*command, "reduce", *sorted(names), "-o", str(part)],
                cwd=whole,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LONGEST_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            why = f"reducing them failed ({type(error).__name__})"
            continue
        if not done.returncode and part.is_file():
            return ""
        if b"No module named" not in done.stderr:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            why = f"reducing them failed ({said[-1][:200] if said else done.returncode})"
    return why
