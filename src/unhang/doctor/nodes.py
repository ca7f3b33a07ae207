"""Run an agent on many nodes at once and bring back what each of them printed.

A node is a name and the command that starts a program on it; the agent's source goes in through
standard input, so nothing has to be installed there but Python. One silent node stops nobody.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from unhang.doctor.agents import source_of
from unhang.errors import UsageError

__all__ = ["Answer", "Node", "ask", "local_node", "parse_hosts"]

MAX_AT_ONCE = 64
MAX_OUTPUT = 64 << 20


@dataclass(frozen=True, slots=True)
class Node:
    """One node: `start` is put before "python3 - ARGUMENT"; `address` is where peers reach it."""

    name: str
    address: str
    start: tuple[str, ...] = ()
    python: str = "python3"
    through_shell: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node answered: `data`, or `error` where it did not."""

    node: Node
    data: Mapping[str, Any]
    error: str = ""


def local_node(name: str, address: str = "127.0.0.1") -> Node:
    """This machine, with our own interpreter."""
    return Node(name, address, python=sys.executable)


def parse_hosts(text: str, via: str | None = None) -> list[Node]:
    """Read "node01,node02=10.0.0.2"; start programs by ssh, or by a template with {host}.

    Raises:
        UsageError: For an empty or repeated name, or a template without {host}.
    """
    if via is not None and "{host}" not in via:
        raise UsageError("--via needs {host} in it", "For example: --via 'ssh {host}'.")
    nodes = []
    for item in (part.strip() for part in text.split(",")):
        name, _, address = item.partition("=")
        if not name or name.startswith("-"):
            raise UsageError(f"{item!r} is no host", "Give names as in: --hosts node01,node02")
        if via is None:
            start: tuple[str, ...] = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", name)
        else:
            start = tuple(word.replace("{host}", name) for word in shlex.split(via))
        shell = start[0] == "ssh"
        nodes.append(Node(name, address or name, start, through_shell=shell))
    if len({node.name for node in nodes}) < len(nodes):
        raise UsageError("a host is named twice", "Name each host once.")
    return nodes


def ask(
    nodes: Sequence[Node], agent: str, orders: Mapping[str, Any], timeout_s: float
) -> list[Answer]:
    """Run an agent on all nodes at once.

    Args:
        nodes: Where.
        agent: Name of the agent.
        orders: Per node name, what it gets as its JSON argument; {} where missing.
        timeout_s: After that a node counts as silent.
    """
    source = source_of(agent)

    def one(node: Node) -> Answer:
        return _run(node, source, json.dumps(orders.get(node.name, {})), timeout_s)

    with ThreadPoolExecutor(max(1, min(len(nodes), MAX_AT_ONCE))) as pool:
        return list(pool.map(one, nodes))


def _run(node: Node, source: str, order: str, timeout_s: float) -> Answer:
    words = [node.python, "-", order]
    command = [*node.start, shlex.join(words)] if node.through_shell else [*node.start, *words]
    try:
        done = subprocess.run(  # noqa: S603 - a list of words; ssh's shell gets quoted ones
            command, input=source.encode(), capture_output=True, timeout=timeout_s, check=False
        )
        if done.returncode:
            last = done.stderr.decode("utf-8", "replace").strip().splitlines()
            return Answer(node, {}, last[-1][:300] if last else f"exit code {done.returncode}")
        data = json.loads(done.stdout[:MAX_OUTPUT])
    except subprocess.TimeoutExpired:
        return Answer(node, {}, f"no answer in {timeout_s:.0f} s")
    except FileNotFoundError as error:
        return Answer(node, {}, f"{error.filename} is not installed here")
    except (OSError, ValueError) as error:
        return Answer(node, {}, f"unusable answer: {error}")
    return Answer(node, data if isinstance(data, dict) else {})
