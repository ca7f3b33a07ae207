"""Hosts of an MPI host file by `mpirun`, one process on each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unhang.collect.launchers import Choice, Launcher, Option
from unhang.collect.launchers.tools import read_host_file, require


@dataclass(frozen=True, slots=True)
class Mpi(Launcher):
    """Open MPI's mpirun.

    Attributes:
        host_file: As `mpirun --hostfile` takes it.
    """

    host_file: Path
    at_once: int = 1_024
    passes_input: bool = False

    def nodes(self) -> Sequence[str]:
        """The hosts of the file."""
        require("mpirun", "Install Open MPI (openmpi-bin), or use ssh: --hosts.")
        return read_host_file(self.host_file)

    def command(self, nodes: Sequence[str], script: str) -> tuple[str, ...]:
        """One mpirun for all of them; the program is an argument, for input reaches one rank."""
        root = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
        hosts = ",".join(f"{node}:1" for node in nodes)
        return ("mpirun", *root, "--host", hosts, "-n", str(len(nodes)), "--map-by",
                "ppr:1:node", "--bind-to", "none", "sh", "-c", script)  # fmt: skip


CHOICE = Choice(
    by=(Option("--mpi", "FILE", "by mpirun, from a host file"),),
    ways=("`--mpi HOSTFILE` | `mpirun` (Open MPI) | of the file",),
    make=lambda args, _: Mpi(Path(args.mpi)),
)
