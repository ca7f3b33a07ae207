"""Programs that travel to the nodes: what each of them sees, as JSON. They never change anything.

`node` runs one of the others, by its `examine(order)`, and sends the answer home; all of them need
nothing but the standard library and what travels along (see `unhang.doctor.asking.nodes.SHIPMENT`).
`comm` is apart: it is one rank of the communication test, started from its source by `ranks`.
"""

from __future__ import annotations

from importlib.resources import files

__all__ = ["source_of"]


def source_of(name: str) -> str:
    """Source text of a program of this folder ("comm")."""
    return files(__package__).joinpath(f"{name}.py").read_text(encoding="utf-8")
