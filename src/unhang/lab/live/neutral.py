"""Take this machine's paths out of a capture that is to be published.

What stays is what the analysis reads: function names, base names, lines. The bytes are written
again in torch's own layout.
"""

from __future__ import annotations

import pickle
from pathlib import Path, PurePosixPath
from typing import Any

from unhang.lab.torchfile import encode_pickle

__all__ = ["neutral_dump", "neutral_path"]

_JOB = PurePosixPath("/home/user/job")
_LIBRARIES = PurePosixPath("/usr/lib/python3/site-packages")
_INTERPRETER = PurePosixPath("/usr/lib/python3")


def neutral_path(path: str, job: Path) -> str:
    """The same file as it would be called on anybody's machine.

    Args:
        path: As it stands in a frame.
        job: The directory of the job's scripts.
    """
    parts = PurePosixPath(path).parts
    if path.startswith(f"{job}/"):
        return str(_JOB / PurePosixPath(path).relative_to(job))
    if "site-packages" in parts:
        inside = len(parts) - parts[::-1].index("site-packages")
        return str(_LIBRARIES.joinpath(*parts[inside:]))
    return str(_INTERPRETER / parts[-1]) if len(parts) > 1 else path


def neutral_dump(data: bytes, job: Path) -> bytes:
    """The same dump with neutral paths in its frames."""
    dump: dict[str, Any] = pickle.loads(data)  # noqa: S301 - our own rank wrote it a moment ago
    frames = {id(frame): frame for entry in dump["entries"] for frame in entry["frames"]}
    for frame in frames.values():
        frame["filename"] = neutral_path(frame["filename"], job)
    return encode_pickle(dump)
