"""Programs that travel to the nodes: the standard library only, each one file, JSON on stdout.

They are sent as source text to the Python of a node that has no unhang, so they import nothing
of it, and they look but never change anything.
"""

from __future__ import annotations

from importlib.resources import files

__all__ = ["source_of"]


def source_of(name: str) -> str:
    """Source text of an agent ("facts", "net")."""
    return files(__package__).joinpath(f"{name}.py").read_text(encoding="utf-8")
