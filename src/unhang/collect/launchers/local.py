"""This node alone: no network, no tool."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from unhang.collect.launchers import Launcher


@dataclass(frozen=True, slots=True)
class Local(Launcher):
    """This machine, through its shell."""

    def nodes(self) -> Sequence[str]:
        """This host's name."""
        return (socket.gethostname(),)

    def command(self, nodes: Sequence[str], script: str) -> tuple[str, ...]:
        """A shell."""
        del nodes
        return "sh", "-c", script
