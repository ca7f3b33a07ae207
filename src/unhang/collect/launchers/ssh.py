"""Hosts by OpenSSH's client with the user's own configuration: keys, jump hosts, ports."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from unhang.collect.launchers import Launch
from unhang.collect.launchers.tools import require
from unhang.collect.ship import Program

__all__ = ["Pdsh", "Ssh"]


@dataclass(frozen=True, slots=True)
class Ssh:
    """One ssh a host.

    Attributes:
        hosts: Names as ssh takes them ("node01", "user@10.0.0.1").
        options: Further arguments of ssh, before the host.
    """

    hosts: tuple[str, ...]
    options: tuple[str, ...] = ()
    name: str = "ssh"
    at_once: int = 1

    def nodes(self) -> Sequence[str]:
        """The hosts that were named."""
        require("ssh", "Install OpenSSH's client (openssh-client).")
        return self.hosts

    def launch(self, nodes: Sequence[str], program: Program) -> Launch:
        """No question is ever asked: a host that wants a password fails at once."""
        (host,) = nodes
        # the user's login shell may be any: it gets one word for sh
        remote = f"exec sh -c {shlex.quote(program.script)}"
        settled = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-T")
        command = ("ssh", *self.options, *settled, "--", host, remote)
        return Launch((host,), command, program.stdin)

    def orders(self, node: str) -> dict[str, object]:
        """The host's name as it was given, without the user."""
        return {"node": node.rpartition("@")[2]}


@dataclass(frozen=True, slots=True)
class Pdsh:
    """pdsh: many hosts by one command. It passes no input on, so the collector is an argument."""

    hosts: tuple[str, ...]
    name: str = "pdsh"
    at_once: int = 64

    def nodes(self) -> Sequence[str]:
        """The hosts that were named."""
        require("pdsh", "Install pdsh, or use ssh by leaving --via out.")
        return self.hosts

    def launch(self, nodes: Sequence[str], program: Program) -> Launch:
        """One pdsh for all of them."""
        remote = f"exec sh -c {shlex.quote(program.inline)}"
        return Launch(tuple(nodes), ("pdsh", "-R", "ssh", "-w", ",".join(nodes), remote))

    def orders(self, node: str) -> dict[str, object]:
        """Nothing: each node knows its name."""
        del node
        return {}
