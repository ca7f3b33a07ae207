"""Take this machine's paths out of a capture that is to be published.

What stays is what the analysis reads: function names, base names, lines. The bytes are written
again in torch's own layout.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import unhang
from lab.recorder.torchfile import encode_pickle

_JOB = PurePosixPath("/home/user/job")
_LIBRARIES = PurePosixPath("/usr/lib/python3/site-packages")
_INTERPRETER = PurePosixPath("/usr/lib/python3")
_HOST = "node01"
_OURS = Path(unhang.__file__).parent


def neutral_path(path: str, job: Path) -> str:
    """The same file as it would be called on anybody's machine.

    Args:
        path: As it stands in a frame.
        job: The directory of the job's scripts.
    """
    parts = PurePosixPath(path).parts
    if path.startswith(f"{job}/"):
        return str(_JOB / PurePosixPath(path).relative_to(job))
    if path.startswith(f"{_OURS}/"):
        return str(_LIBRARIES / PurePosixPath(path).relative_to(_OURS.parent))
    if "site-packages" in parts:
        inside = len(parts) - parts[::-1].index("site-packages")
        return str(_LIBRARIES.joinpath(*parts[inside:]))
    return str(_INTERPRETER / parts[-1]) if len(parts) > 1 else path


def neutral_dump(data: bytes, job: Path) -> bytes:
    """The same dump with neutral paths in its frames, and without the host's name."""
    dump: dict[str, Any] = pickle.loads(data)  # noqa: S301 - our own rank wrote it a moment ago
    for holder in {id(found): found for found in _holders(dump)}.values():
        if "filename" in holder:
            holder["filename"] = neutral_path(holder["filename"], job)
        if "host" in holder:
            holder["host"] = _HOST
    return encode_pickle(dump)


def _holders(value: object) -> Iterator[dict[str, Any]]:
    """All dicts in a dump, frames as often as they occur."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _holders(item)
    elif isinstance(value, list):
        for item in value:
            yield from _holders(item)
