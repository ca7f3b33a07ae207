"""The nodes of a Flux job, by `flux exec`: next to the job's tasks, without the scheduler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from unhang.collect.launchers import Choice, Launcher, Option
from unhang.collect.launchers.tools import ask_tool, hosts_of
from unhang.errors import ToolError, UsageError

_JOB = re.compile(r"\w[\w.-]{0,99}")
_HINT = "Run it inside the Flux instance that has the job; or name hosts with --hosts."


@dataclass(slots=True)
class Flux(Launcher):
    """A job of Flux.

    Attributes:
        job: Its id in any of Flux's spellings ("ƒ3ETxsR9H", "f3ETxsR9H", "0x2b…", words).
        options: Further arguments of flux exec.
        places: Each node's number in the job, by which `flux exec --jobid` names it.
    """

    cluster = "flux"
    job: str
    options: tuple[str, ...] = ()
    places: dict[str, int] = field(default_factory=dict)
    at_once: int = 64

    def nodes(self) -> Sequence[str]:
        """The nodes that were given to it."""
        if not _JOB.fullmatch(self.job):
            raise UsageError(f"{self.job[:50]!r} is not a job id of Flux", "See: flux jobs")
        asked = ["flux", "jobs", "-n", "-o", "{status} {nnodes} {nodelist}", self.job]
        status, number, listed = [*ask_tool(asked, _HINT).split(), "", "", ""][:3]
        if status != "RUNNING" or not listed:
            state = status.lower() or "unknown state"
            raise ToolError(f"job {self.job} does not run ({state})", _HINT)
        hosts = hosts_of(listed)
        if str(len(hosts)) != number:
            raise ToolError(f"job {self.job} has nodes with several brokers of Flux", _HINT)
        self.places = {host: place for place, host in enumerate(hosts)}
        return hosts

    def command(self, nodes: Sequence[str], script: str) -> tuple[str, ...]:
        """One shell on each of the nodes; all get the input, and labels tell their lines apart."""
        nowhere = len(self.places)  # of a node that has left the job, Flux says so
        ranks = ",".join(str(self.places.get(node, nowhere)) for node in nodes)
        return ("flux", "exec", f"--jobid={self.job}", f"--rank={ranks}", "--label-io",
                *self.options, "sh", "-c", script)  # fmt: skip


CHOICE = Choice(
    by=(Option("--flux", "JOBID", "all nodes of a Flux job"),),
    passes_to="flux exec",
    ways=(
        (
            "`--flux JOBID` | `flux exec --jobid` (Flux 0.60 or newer; of a system instance 0.84) "
            "| of the job"
        ),
    ),
    make=lambda args, words: Flux(args.flux, words),
)
