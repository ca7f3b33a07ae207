"""Checks of what a node has, and how short of it it is: pure functions over what it said.

The figures are shown where all is well, too: the search for a slow node's reason needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang.checks import HUGE_PAGES_IDLE, NODE_SHORT, PROCESSES_LOW, THREADS_MANY
from unhang.doctor.agents.machine import Machine
from unhang.doctor.checks.results import CheckResult, judged
from unhang.incoming import overlaid

Facts = Mapping[str, Any]

MIN_PROCESSES = 4_096
MIN_TASKS_LEFT = 512
IDLE_SHARE = 0.1
CPU_STALLED = 0.6
MEMORY_STALLED = 0.1
SWAP_BYTES_PER_S = 1 << 20


def _machine(facts: Facts) -> Machine:
    return overlaid(Machine(), facts.get("node", {}))[0]


def check_machine(host: str, facts: Facts) -> Iterator[CheckResult]:
    """Limits of processes, huge pages, cores and memory of one node."""
    node = _machine(facts)
    if not node.cores:
        return
    yield _processes(host, node, facts)
    yield _huge_pages(host, node)
    yield _short(host, node)
    if (found := _threads(host, node, facts)) is not None:
        yield found


def unset_clocks(nodes: Mapping[str, Facts]) -> list[str]:
    """Nodes whose kernel says that nothing sets its clock."""
    return [host for host, facts in nodes.items() if _machine(facts).synchronised is False]


def _processes(host: str, node: Machine, facts: Facts) -> CheckResult:
    limit = int(facts.get("limits", {}).get("processes", -1))
    if 0 <= limit < MIN_PROCESSES:
        seen = f"a user may have {limit:,} processes and threads there (ulimit -u)"
        return judged(PROCESSES_LOW, host, seen, bad=True)
    if node.tasks_limit and node.tasks_limit - node.tasks < MIN_TASKS_LEFT:
        seen = f"its cgroup has {node.tasks:,} of {node.tasks_limit:,} threads (pids.max)"
        return judged(PROCESSES_LOW, host, seen, bad=True)
    return judged(PROCESSES_LOW, host, "processes and threads are not limited tightly", bad=False)


def _huge_pages(host: str, node: Machine) -> CheckResult:
    idle = node.huge_free * node.huge_bytes
    used = node.huge_pages - node.huge_free
    seen = f"{node.huge_pages:,} huge pages are reserved, {node.huge_free:,} of them idle"
    bad = idle > IDLE_SHARE * node.memory_total > 0
    if bad:
        seen += f" ({idle >> 20:,} of {node.memory_total >> 20:,} MB of its memory)"
    return judged(
        HUGE_PAGES_IDLE, host, seen, bad=bad, action=f"On {host}: sysctl vm.nr_hugepages={used}."
    )


def _short(host: str, node: Machine) -> CheckResult:
    found = list(_shortages(node))
    left = f"{node.memory_available >> 20:,} of {node.memory_total >> 20:,} MB of memory are left"
    cache = f"{node.page_cache >> 20:,} MB hold files"
    seen = "; ".join(found) or f"{left}, {cache}, {node.swap_used >> 20:,} MB are swapped out"
    return judged(NODE_SHORT, host, seen, bad=bool(found))


def _shortages(node: Machine) -> Iterator[str]:
    if node.cpu_stalled > CPU_STALLED:
        cores = f"{node.cores:,} cores"
        yield f"processes waited for its {cores} in {node.cpu_stalled:.0%} of the last minute"
    if node.memory_stalled > MEMORY_STALLED:
        yield f"processes waited for memory in {node.memory_stalled:.0%} of the last minute"
    if node.swapped_in > SWAP_BYTES_PER_S:
        rate = f"{node.swapped_in / 1e6:,.0f} MB/s"
        yield f"{node.swap_used >> 20:,} MB are swapped out, and {rate} are read back"


def _threads(host: str, node: Machine, facts: Facts) -> CheckResult | None:
    """Threads of the ranks that its settings and GPUs call for; None where these do not tell."""
    settings = facts.get("settings", {})
    told = settings.get("LOCAL_WORLD_SIZE", "")
    ranks = int(told) if told.isdecimal() and len(told) < 6 else int(facts.get("gpus", 0))  # noqa: PLR2004 - five digits
    wanted = settings.get("OMP_NUM_THREADS", "")
    if not ranks or not (wanted.isdecimal() and len(wanted) < 6):  # noqa: PLR2004 - the same
        return None
    total, right = ranks * int(wanted), max(node.usable // ranks, 1)
    seen = (
        f"{ranks} ranks with OMP_NUM_THREADS={wanted} are {total:,} threads on {node.usable} cores"
    )
    bad = total > node.usable
    return judged(THREADS_MANY, host, seen, bad=bad, action=f"export OMP_NUM_THREADS={right}.")
