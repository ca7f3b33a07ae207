"""The nodes of a Ray cluster, by tasks that are pinned to them and take none of its resources.

Ray's client is heavy and noisy, so this module also runs as a process of its own (`unhang.isolated`
starts it, with the address), which passes on what the tasks print.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from unhang.collect.launchers import Choice, Launch, Launcher, Option, Program
from unhang.collect.launchers.tools import ask_tool
from unhang.errors import MissingExtraError, ToolError
from unhang.incoming import fit, value_of
from unhang.isolated import python_command

_HINT = "Name the cluster: --ray ADDRESS (as in RAY_ADDRESS), or --ray auto on one of its nodes."


@dataclass(frozen=True, slots=True)
class Ray(Launcher):
    """A Ray cluster.

    Attributes:
        address: As `ray.init` takes it ("auto", "10.0.0.1:6379").
    """

    address: str
    at_once: int = 10_000

    def nodes(self) -> Sequence[str]:
        """The addresses of the nodes that are alive."""
        if find_spec("ray") is None:
            raise MissingExtraError("--ray", "ray")
        told = ask_tool(python_command(__name__, self.address), _HINT)
        try:
            nodes = fit(value_of(told.strip().splitlines()[-1]), list[str])
        except (ValueError, IndexError) as error:
            raise ToolError("Ray gave no readable list of nodes", _HINT) from error
        if not nodes:
            raise ToolError("the Ray cluster has no node that is alive", _HINT)
        return nodes

    def command(self, nodes: Sequence[str], script: str) -> tuple[str, ...]:
        """One process that starts a task on each of the nodes."""
        del script
        return tuple(python_command(__name__, self.address, *nodes))

    def launch(self, nodes: Sequence[str], program: Program) -> Launch:
        """That process gets the script with the input."""
        order = json.dumps({"script": program.script}).encode() + b"\n" + program.stdin
        return Launch(tuple(nodes), self.command(nodes, ""), order)


CHOICE = Choice(
    by=(Option("--ray", "ADDRESS", "all nodes of a Ray cluster"),),
    ways=("`--ray ADDRESS` | tasks pinned to nodes | of the cluster; needs `unhang[ray]` here",),
    make=lambda args, _: Ray(args.ray),
)


def _run_script(script: str, stdin: bytes, name: str) -> str:
    """What a task does: run the program of its node, give back what it printed."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("RAY_JOB")}
    done = subprocess.run(  # noqa: S603 - our own script
        ["sh", "-c", script],  # noqa: S607 - every node has one
        input=stdin,
        capture_output=True,
        env={**environ, "UNHANG_NODE": name},
        check=False,
    )
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def _main(address: str, wanted: Sequence[str]) -> None:
    """List the nodes, or run the program that comes in on those that are wanted."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    alive = {
        f"{node['NodeManagerAddress']}-{node['NodeID'][:8]}": node["NodeID"]
        for node in ray.nodes()
        if node["Alive"]
    }
    if not wanted:
        _say(json.dumps(sorted(alive)))
        return
    order, _, stdin = sys.stdin.buffer.read().partition(b"\n")
    script = json.loads(order)["script"]
    task = ray.remote(num_cpus=0, max_retries=0)(_run_script)
    pending = []
    for name in wanted:
        if name in alive:
            pinned = NodeAffinitySchedulingStrategy(alive[name], soft=False)
            pending.append(task.options(scheduling_strategy=pinned).remote(script, stdin, name))
    while pending:
        (done,), pending = ray.wait(pending, num_returns=1)
        _say(_result(ray, done))


def _result(ray: Any, task: Any) -> str:  # noqa: ANN401 - ray is imported late
    try:
        return str(ray.get(task))
    except ray.exceptions.RayError as error:
        sys.stderr.write(f"{str(error).strip().splitlines()[-1]}\n")
        return ""


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
