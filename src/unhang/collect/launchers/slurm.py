"""The nodes of a SLURM job, by steps inside its allocation that take nothing from it.

`srun --overlap` shares the processors with the job's own step, and `--gres=none --mem=0` leaves its
GPUs and memory alone. One step serves many nodes; where a node is down, SLURM refuses such a step,
and the nodes are tried one by one.

srun knows no ids of arrays ("4711_3"): it gets the number that SLURM gave to the task. A step in a
part of a heterogeneous job is asked for by the first part's number and the part's own (seen on
22.05; scontrol shows both).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from unhang.collect.launchers import Choice, Launcher, Option
from unhang.collect.launchers.tools import ask_tool
from unhang.errors import ToolError, UsageError

_JOB = re.compile(r"\d{1,12}(?:[_+]\d{1,9})?")
_HINT = "Run it where SLURM's commands are, such as the login node; or name hosts with --hosts."
_ENDED = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
     "PREEMPTED", "TIMEOUT", "REVOKED")
)  # fmt: skip


@dataclass(slots=True)
class Slurm(Launcher):
    """A job of SLURM.

    Attributes:
        job: Its id: "4711", "4711_3" for a task of an array, "4711+1" for a part of a job of parts.
        options: Further arguments of srun.
        told: What all nodes receive of the job: see `unhang.collect.node.main`.
        steps: Options of srun for a step on each node.
    """

    cluster = "slurm"
    job: str
    options: tuple[str, ...] = ()
    told: dict[str, object] = field(default_factory=dict)
    steps: dict[str, tuple[str, ...]] = field(default_factory=dict)
    at_once: int = 64

    def nodes(self) -> Sequence[str]:
        """The nodes of its allocation."""
        if not _JOB.fullmatch(self.job):
            raise UsageError(
                f"{self.job[:50]!r} is not a job id of SLURM", "For example: 4711 or 4711_3"
            )
        records = self._running()
        logs = {_field(record, key): None for record in records for key in ("StdOut", "StdErr")}
        ids = {_field(record, key) for record in records for key in ("JobId", "HetJobId")}
        self.told = {
            "slurm_jobs": sorted(ids - {""}),
            "slurm_outputs": {
                "node": _field(records[0], "BatchHost"),
                "files": [name for name in logs if name.startswith("/") and name != os.devnull],
            },
        }
        for record in records:
            listed = ["scontrol", "show", "hostnames", _field(record, "NodeList")]
            for node in ask_tool(listed, _HINT).split():
                self.steps.setdefault(node, _step(record))
        return list(self.steps)

    def _running(self) -> list[str]:
        """What SLURM says of the job: a record, or those of its parts."""
        told = ask_tool(["scontrol", "show", "job", "-o", self.job], _HINT)
        records = [line for line in told.splitlines() if _field(line, "JobId")]
        running = [
            record
            for record in records
            if _field(record, "JobState") == "RUNNING"
            and _field(record, "NodeList") not in ("", "(null)")
        ]
        if not running:
            raise self._not_running({_field(record, "JobState") for record in records})
        tasks = [_field(record, "ArrayTaskId") for record in running]
        if len(running) > 1 and any(tasks):
            first = f"{self.job}_{tasks[0]}"
            raise UsageError(
                f"job {self.job} is an array with {len(running)} running tasks",
                f"Name one of them: --slurm {first}",
            )
        return running

    def _not_running(self, states: set[str]) -> ToolError:
        if states and states <= _ENDED:
            return ToolError(
                f"job {self.job} has ended ({', '.join(sorted(states))})",
                "What it left can still be collected: unhang collect --hosts … --dumps GLOB, or "
                "unhang diagnose on its files.",
            )
        shown = ", ".join(sorted(states)) or "unknown state"
        return ToolError(f"job {self.job} does not run ({shown})", _HINT)

    def command(self, nodes: Sequence[str], script: str) -> tuple[str, ...]:
        """One step with one task on each of the nodes; labels keep lines whole."""
        number = str(len(nodes))
        step = self.steps.get(nodes[0], (f"--jobid={self.job}",))
        return (
            "srun", *step, "--overlap", "--gres=none", "--mem=0", "--mpi=none",
            "--cpu-bind=none", "--input=all", "--label", "--quiet", "--kill-on-bad-exit=0",
            "--wait=0", "--nodes", number, "--ntasks", number, "--ntasks-per-node=1",
            f"--nodelist={','.join(nodes)}", *self.options, "sh", "-c", script,
        )  # fmt: skip

    def orders(self, node: str) -> dict[str, object]:
        """Which job's processes are meant (a node may be shared), and where its output is."""
        del node
        return self.told


def _step(record: str) -> tuple[str, ...]:
    """Options of srun for a step in the job, or in the part of one, that a record describes."""
    leader, part = _field(record, "HetJobId"), _field(record, "HetJobOffset")
    if leader and part:
        return f"--jobid={leader}", f"--het-group={part}"
    return (f"--jobid={_field(record, 'JobId')}",)


def _field(text: str, name: str) -> str:
    found = re.search(rf"(?:^|\s){name}=(\S*)", text)
    return found[1] if found else ""


CHOICE = Choice(
    by=(Option("--slurm", "JOBID", "all nodes of a SLURM job"),),
    passes_to="srun",
    ways=("`--slurm JOBID` | `srun --overlap --gres=none --mem=0` | of the job's allocation",),
    make=lambda args, words: Slurm(args.slurm, words),
)
