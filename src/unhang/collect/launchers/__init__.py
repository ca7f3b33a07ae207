"""Launchers: how a program gets onto the nodes of a job, each by the cluster's own tool.

A launcher knows its nodes and makes, for some of them, the command line that runs a program there
and brings its standard output home. It starts nothing itself: `unhang.collect.gather` does, with
time limits, and tries nodes one by one where a command for several of them failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from unhang.collect.ship import Program

__all__ = ["Launch", "Launcher"]


@dataclass(frozen=True, slots=True)
class Launch:
    """A command that runs a program on nodes.

    Attributes:
        nodes: Names of the nodes, as the launcher calls them.
        command: The command line.
        stdin: What goes in.
    """

    nodes: tuple[str, ...]
    command: tuple[str, ...]
    stdin: bytes = b""


class Launcher(Protocol):
    """One way to reach nodes."""

    @property
    def name(self) -> str:
        """What people call it ("ssh", "slurm")."""

    @property
    def at_once(self) -> int:
        """How many nodes one command may serve."""

    def nodes(self) -> Sequence[str]:
        """The nodes of the job; asked before anything is launched, for launchers look it up here.

        Raises:
            UsageError: What the user named makes no sense.
            ToolError: The cluster's tool is absent, or does not know the job.
        """

    def launch(self, nodes: Sequence[str], program: Program) -> Launch:
        """The command that runs a program on some of the nodes."""

    def orders(self, node: str) -> dict[str, object]:
        """What the program must be told on one node beyond what all are told: names, job ids."""
