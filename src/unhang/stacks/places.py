"""Comparing the files of frames: tools write the same file with and without its directories."""

from __future__ import annotations

__all__ = ["same_file"]


def same_file(path: str, end: str) -> bool:
    """Whether a frame's file is the one that ends so ("torch/utils/data/dataloader.py").

    Whole components count: "mythreading.py" is not "threading.py".
    """
    return path.replace("\\", "/").endswith(end) and path[: -len(end)][-1:] in ("", "/", "\\")
