"""Modules in a working directory that tell when they are imported."""

from __future__ import annotations

from pathlib import Path

__all__ = ["HOSTILE", "plant"]

HOSTILE = (
    "argparse", "html", "json", "rich/", "numpy/", "msgspec/", "typing", "subprocess", "unhang/",
)  # fmt: skip
"""Names of the standard library's, of what we depend on, and our own."""


def plant(folder: Path, *names: str) -> Path:
    """Write modules that leave a mark where they are imported, and fail; where that mark will be.

    Args:
        folder: Made where it is not there.
        names: Of modules; "name/" is a package.
    """
    folder.mkdir(exist_ok=True)
    mark = folder / "IMPORTED"
    code = f"open({str(mark)!r}, 'a').write(__name__)\nraise SystemExit(7)\n"
    for name in names:
        path = folder / (f"{name}__init__.py" if name.endswith("/") else f"{name}.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)
    return mark
