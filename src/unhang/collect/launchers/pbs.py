"""The nodes of a PBS job (OpenPBS, PBS Professional, Torque), by ssh.

PBS's own tools reach nodes only from inside the job (pbsdsh, pbs_tmrsh). From a login node ssh
does, where the site lets owners of a job onto its nodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from unhang.collect.launchers import Choice, Launcher, Option
from unhang.collect.launchers.hosts import Ssh
from unhang.collect.launchers.tools import ask_tool, check_host
from unhang.errors import ToolError, UsageError

_JOB = re.compile(r"\d{1,15}(?:\[\d{0,9}\])?(?:\.[\w.-]{1,200})?")
_RUNS = ("R", "E")
"""Running, and exiting after it has run (qstat(1B)): both have nodes."""
_HINT = "Run it where qstat is, such as the login node; or name hosts with --hosts."


@dataclass(frozen=True, slots=True)
class Pbs(Launcher):
    """A job of PBS.

    Attributes:
        job: Its id: "4711", "4711.server", "4711[3].server" for one of an array.
        options: Further arguments of ssh.
    """

    cluster = "pbs"
    job: str
    options: tuple[str, ...] = ()

    def nodes(self) -> Sequence[str]:
        """The hosts on which its tasks were started."""
        if not _JOB.fullmatch(self.job):
            raise UsageError(
                f"{self.job[:50]!r} is not a job id of PBS", "For example: 4711 or 4711[3].server"
            )
        told = ask_tool(["qstat", "-f", self.job], _HINT).replace("\n\t", "")  # long lines go on
        fields = dict(re.findall(r"^\s*(job_state|exec_host) = (\S*)", told, re.MULTILINE))
        state, hosts = fields.get("job_state", "unknown"), fields.get("exec_host", "")
        if state == "B":
            one = self.job.partition("[")[0] + "[1]"
            raise UsageError(f"job {self.job} is an array", f"Name one of its jobs: --pbs '{one}'")
        if state not in _RUNS or not hosts:
            raise ToolError(f"job {self.job} does not run (state {state})", _HINT)
        # "n1/0*8+n2/0*8"; of Torque "n1/0-7+n2/0-7", or a core each: "n1/0+n1/1".
        names = (check_host(part.partition("/")[0]) for part in hosts.split("+"))
        return list(dict.fromkeys(names))

    def command(self, nodes: Sequence[str], script: str) -> tuple[str, ...]:
        """One ssh a host."""
        return Ssh((), self.options).command(nodes, script)


CHOICE = Choice(
    by=(Option("--pbs", "JOBID", "by ssh, all nodes of a PBS job"),),
    passes_to="ssh",
    ways=(
        "`--pbs JOBID` | `ssh` to the hosts that `qstat -f` names (OpenPBS, Torque) | of the job",
    ),
    make=lambda args, words: Pbs(args.pbs, words),
)
