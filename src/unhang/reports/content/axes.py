"""What groups are for, by the words that frameworks use in their descriptions."""

from __future__ import annotations

import re
from typing import Final

_LETTERS: Final = re.compile(r"[a-z]+")
_AXES: Final = {
    "tensor-parallel": {"tensor", "tp"},
    "pipeline": {"pipeline", "pp"},
    "data-parallel": {"data", "dp"},
    "expert-parallel": {"expert", "ep"},
    "context-parallel": {"context", "cp"},
    "sharding": {"shard"},
    "replication": {"replicate"},
}
"""Those of Megatron, DeepSpeed, device meshes."""


def axis_of(description: str) -> str:
    """The kind of a group: "tensor-parallel"; "" where its words tell none, or several."""
    words = set(_LETTERS.findall(description.lower()))
    kinds = [kind for kind, told in _AXES.items() if words & told]
    return kinds[0] if len(kinds) == 1 else ""
