"""This node alone: no network, no tool."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from unhang.collect.launchers import Launch, Program

__all__ = ["Local"]


@dataclass(frozen=True, slots=True)
class Local:
    """This machine, through its shell."""

    job: str = ""
    at_once: int = 1

    def nodes(self) -> Sequence[str]:
        """This host's name."""
        return (socket.gethostname(),)

    def launch(self, nodes: Sequence[str], program: Program) -> Launch:
        """A shell."""
        return Launch(tuple(nodes), ("sh", "-c", program.script), program.stdin)

    def orders(self, node: str) -> dict[str, object]:
        """Its name."""
        return {"node": node}
