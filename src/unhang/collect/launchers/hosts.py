"""Hosts that the user names: by ssh, by pdsh, or by a command of the user's own.

ssh is OpenSSH's client with the user's own configuration: keys, jump hosts, ports. A command of the
user's starts a shell on a host, with {host} in it: the script goes in through the shell's standard
input, so it is the same whether the command runs it at once (`ip netns exec {host}`) or through a
login shell (`sshpass … ssh {host}`).
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unhang.collect.launchers import Choice, Launch, Launcher, Option, Program
from unhang.collect.launchers.tools import hosts_of, read_host_file, require
from unhang.errors import UsageError


@dataclass(frozen=True, slots=True)
class Ssh(Launcher):
    """One ssh a host.

    Attributes:
        hosts: Names as ssh takes them ("node01", "user@10.0.0.1").
        options: Further arguments of ssh, before the host.
    """

    hosts: tuple[str, ...]
    options: tuple[str, ...] = ()

    def nodes(self) -> Sequence[str]:
        """The hosts that were named."""
        require("ssh", "Install OpenSSH's client (openssh-client).")
        return self.hosts

    def command(self, nodes: Sequence[str], script: str) -> tuple[str, ...]:
        """No question is ever asked: a host that wants a password fails at once."""
        (host,) = nodes
        # the user's login shell may be any: it gets one word for sh
        remote = f"exec sh -c {shlex.quote(script)}"
        settled = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-T")
        return "ssh", *self.options, *settled, "--", host, remote

    def orders(self, node: str) -> dict[str, object]:
        """The host's name as it was given, without the user."""
        return {"node": node.rpartition("@")[2]}


@dataclass(frozen=True, slots=True)
class Pdsh(Launcher):
    """pdsh: many hosts by one command. It passes no input on, so the collector is an argument."""

    hosts: tuple[str, ...]
    at_once: int = 64
    passes_input: bool = False

    def nodes(self) -> Sequence[str]:
        """The hosts that were named."""
        require("pdsh", "Install pdsh, or use ssh by leaving --via out.")
        return self.hosts

    def command(self, nodes: Sequence[str], script: str) -> tuple[str, ...]:
        """One pdsh for all of them."""
        return "pdsh", "-R", "ssh", "-w", ",".join(nodes), f"exec sh -c {shlex.quote(script)}"


@dataclass(frozen=True, slots=True)
class Template(Launcher):
    """A command line that ends in a shell on a host.

    Attributes:
        hosts: What stands for {host}.
        line: As the user wrote it.
    """

    hosts: tuple[str, ...]
    line: str

    def nodes(self) -> Sequence[str]:
        """The hosts that were named."""
        require(self._words("host")[0], "Correct --via, or leave it out to use ssh.")
        return self.hosts

    def command(self, nodes: Sequence[str], script: str) -> tuple[str, ...]:
        """The command with the host's name, and a shell that reads the script."""
        del script
        (host,) = nodes
        return *self._words(host), "sh"

    def launch(self, nodes: Sequence[str], program: Program) -> Launch:
        """The shell's input is the program, with its own inside."""
        return Launch(tuple(nodes), self.command(nodes, ""), program.inline.encode())

    def _words(self, host: str) -> list[str]:
        hint = "For example: --via 'ssh -J jump {host}', or --via pdsh"
        try:
            words = shlex.split(self.line)
        except ValueError as error:
            raise UsageError(f"--via {self.line!r}: {str(error).lower()}", hint) from error
        if not any("{host}" in word for word in words):
            raise UsageError(f"--via {self.line!r} has no {{host}} in it", hint)
        return [word.replace("{host}", host) for word in words]


def _from_arguments(args: argparse.Namespace, words: tuple[str, ...]) -> Launcher:
    named = args.hosts is not None
    hosts = tuple(hosts_of(args.hosts) if named else read_host_file(Path(args.hostfile)))
    if args.via == "ssh":
        return Ssh(hosts, words)
    if words:
        raise UsageError("--launcher-options is for ssh, not for --via", "Leave it out.")
    return Pdsh(hosts) if args.via == "pdsh" else Template(hosts, args.via)


CHOICE = Choice(
    by=(
        Option("--hosts", "LIST", "by ssh: node01,node[02-16],user@host"),
        Option("--hostfile", "FILE", "by ssh, from a host file (as MPI's)"),
    ),
    further=(
        Option(
            "--via",
            "HOW",
            "for --hosts and --hostfile: ssh, pdsh, or a command with {host} (default: ssh)",
            default="ssh",
        ),
    ),
    passes_to="ssh",
    ways=(
        (
            "`--hosts LIST`, `--hostfile FILE` | `ssh`, with your own configuration | "
            "as named: `node[01-16],user@login`"
        ),
        "the same with `--via pdsh` | `pdsh` | as named",
        (
            "the same with `--via 'COMMAND {host}'` | any command that starts a shell there "
            "(`ip netns exec {host}`); py-spy does not travel | as named"
        ),
    ),
    make=_from_arguments,
)
