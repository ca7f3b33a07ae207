"""Launchers: how a program gets onto the nodes of a job, each by the cluster's own tool.

A launcher knows its nodes and makes, for some of them, the command line that runs a program there
and brings its standard output home. It starts nothing itself: `unhang.collect.gather` does, with
time limits, and tries nodes one by one where a command for several of them failed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Choice", "Launch", "Launcher", "Option", "Program"]


@dataclass(frozen=True, slots=True)
class Program:
    """What a launcher starts on each node.

    Attributes:
        script: A script for `sh -c`.
        stdin: What the script reads, or b"".
        inline: The same with its input inside, for launchers that pass none on.
    """

    script: str
    stdin: bytes
    inline: str


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


class Launcher:
    """One way to reach nodes; a launcher says what differs from this.

    Attributes:
        job: The scheduler's id of the job; "" where the launcher knows nodes alone.
        cluster: Whose nodes they are: "slurm", "kubernetes", "pbs", "flux"; "" of any other.
        namespace: In which they are called so, where the cluster has such.
        at_once: How many nodes one command may serve.
        passes_input: Whether the program gets what goes into the command.
    """

    __slots__ = ()
    job: str = ""
    cluster: str = ""
    namespace: str = ""
    at_once: int = 1
    passes_input: bool = True

    def nodes(self) -> Sequence[str]:
        """The nodes of the job; asked before anything is launched, for launchers look it up here.

        Raises:
            UsageError: What the user named makes no sense.
            ToolError: The cluster's tool is absent, or does not know the job.
        """
        raise NotImplementedError

    def command(self, nodes: Sequence[str], script: str) -> tuple[str, ...]:
        """The command line that runs a script for `sh -c` on some of the nodes."""
        raise NotImplementedError

    def launch(self, nodes: Sequence[str], program: Program) -> Launch:
        """The command that runs a program on some of the nodes."""
        if self.passes_input:
            return Launch(tuple(nodes), self.command(nodes, program.script), program.stdin)
        return Launch(tuple(nodes), self.command(nodes, program.inline))

    def orders(self, node: str) -> dict[str, object]:
        """What the program must receive on one node beyond what all receive: names, job ids.

        Of several that one command serves, each knows its own name.
        """
        return {"node": node} if self.at_once == 1 else {}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the command line that takes a value.

    Attributes:
        name: With its dashes ("--slurm").
        metavar: What stands for the value in help.
        help: Its line in help.
        default: None for an option that chooses a launcher.
        short: The same in one letter ("-n"), or "".
    """

    name: str
    metavar: str
    help: str
    default: str | None = None
    short: str = ""

    def value(self, args: argparse.Namespace) -> str | None:
        """What was given, or the default."""
        given: str | None = getattr(args, self.name.removeprefix("--").replace("-", "_"))
        return given


@dataclass(frozen=True, slots=True)
class Choice:
    """How people choose a launcher, and what makes it then.

    Attributes:
        by: Options, one of them given.
        make: Makes it from the arguments and the words of --launcher-options; raises `UsageError`.
        further: What else it may receive; an error without one of `by`.
        passes_to: The program that gets the words of --launcher-options, or "": there are none.
        ways: Rows of docs/collect.md: what is written, by which tool, which nodes that are.
    """

    by: tuple[Option, ...]
    make: Callable[[argparse.Namespace, tuple[str, ...]], Launcher]
    further: tuple[Option, ...] = ()
    passes_to: str = ""
    ways: tuple[str, ...] = ()

    def is_named(self, args: argparse.Namespace) -> bool:
        """Whether the arguments choose it."""
        return any(option.value(args) is not None for option in self.by)
