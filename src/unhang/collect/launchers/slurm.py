"""The nodes of a SLURM job, by steps inside its allocation that take nothing from it.

`srun --overlap` shares the processors with the job's own step, and `--gres=none --mem=0` leaves its
GPUs and memory alone. One step serves many nodes; where a node is down, SLURM refuses such a step,
and the nodes are tried one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from unhang.collect.launchers import Launch
from unhang.collect.launchers.tools import ask_tool
from unhang.collect.ship import Program
from unhang.errors import ToolError, UsageError

__all__ = ["Slurm"]

_JOB = re.compile(r"\d{1,12}(?:[_+]\d{1,9})?")
_HINT = "Run it where SLURM's commands are, such as the login node; or name hosts with --hosts."
_ENDED = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
     "PREEMPTED", "TIMEOUT", "REVOKED")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slurm:
    """A job of SLURM.

    Attributes:
        job: Its id, "4711" or "4711_3".
        options: Further arguments of srun.
    """

    job: str
    options: tuple[str, ...] = ()
    name: str = "slurm"
    at_once: int = 64

    def nodes(self) -> Sequence[str]:
        """The nodes of its allocation."""
        if not _JOB.fullmatch(self.job):
            raise UsageError(
                f"{self.job[:50]!r} is no job id of SLURM", "For example: 4711 or 4711_3"
            )
        told = ask_tool(["scontrol", "show", "job", "-o", self.job], _HINT)
        state, nodes = _field(told, "JobState"), _field(told, "NodeList")
        if state in _ENDED:
            raise ToolError(
                f"job {self.job} has ended ({state})",
                "What it left can still be collected: unhang collect --hosts … --dumps GLOB, or "
                "unhang diagnose on its files.",
            )
        if state != "RUNNING" or nodes in ("", "(null)"):
            raise ToolError(f"job {self.job} does not run ({state or 'unknown state'})", _HINT)
        return ask_tool(["scontrol", "show", "hostnames", nodes], _HINT).split()

    def launch(self, nodes: Sequence[str], program: Program) -> Launch:
        """One step with one task on each of the nodes; labels keep lines whole."""
        number = str(len(nodes))
        command = (
            "srun", f"--jobid={self.job}", "--overlap", "--gres=none", "--mem=0", "--mpi=none",
            "--cpu-bind=none", "--input=all", "--label", "--quiet", "--kill-on-bad-exit=0",
            "--wait=0", "--nodes", number, "--ntasks", number, "--ntasks-per-node=1",
            f"--nodelist={','.join(nodes)}", *self.options, "sh", "-c", program.script,
        )  # fmt: skip
        return Launch(tuple(nodes), command, program.stdin)

    def orders(self, node: str) -> dict[str, object]:
        """Which job's processes are meant: a node may be shared."""
        del node
        return {"slurm_job": re.sub(r"[_+].*", "", self.job)}


def _field(text: str, name: str) -> str:
    found = re.search(rf"(?:^|\s){name}=(\S*)", text)
    return found[1] if found else ""
