"""Hosts by a command of the user's own: whatever starts a shell there, with {host} in it.

The script goes in through the shell's standard input, so it is the same whether the command runs it
at once (`ip netns exec {host}`) or through a login shell (`sshpass … ssh {host}`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from unhang.collect.launchers import Launch
from unhang.collect.launchers.tools import require
from unhang.collect.ship import Program
from unhang.errors import UsageError

__all__ = ["Template"]


@dataclass(frozen=True, slots=True)
class Template:
    """A command line that ends in a shell on a host.

    Attributes:
        hosts: What stands for {host}.
        command: As the user wrote it.
    """

    hosts: tuple[str, ...]
    command: str
    name: str = "command"
    at_once: int = 1

    def nodes(self) -> Sequence[str]:
        """The hosts that were named."""
        require(self._words("host")[0], "Correct --via, or leave it out to use ssh.")
        return self.hosts

    def launch(self, nodes: Sequence[str], program: Program) -> Launch:
        """The command with the host's name, and a shell that reads the program."""
        (host,) = nodes
        return Launch((host,), (*self._words(host), "sh"), program.inline.encode())

    def orders(self, node: str) -> dict[str, object]:
        """The host's name."""
        return {"node": node}

    def _words(self, host: str) -> list[str]:
        hint = "For example: --via 'ssh -J jump {host}', or --via pdsh"
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise UsageError(f"--via {self.command!r}: {str(error).lower()}", hint) from error
        if not any("{host}" in word for word in words):
            raise UsageError(f"--via {self.command!r} has no {{host}} in it", hint)
        return [word.replace("{host}", host) for word in words]
