"""Which processes of a node are ranks of a job, and what the other processes are.

The recorder's own marks come first: a marked process said itself that it is rank R. Without marks
the environment tells, but launchers, wrappers and data-loader workers carry RANK as well; of all
Python processes in one line of descent with the same rank, the topmost is the rank. Workers of a
serving engine have neither, and tell by their titles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from unhang.collect.processes import Process, ProcessTable
from unhang.model import UNKNOWN_RANK
from unhang.rankenv import LAUNCHERS, precedence_of, rank_env
from unhang.record.contact.marks import Mark, alive, read_marks, roots
from unhang.stacks.roles import is_core, is_engine, is_worker, ranks_of_titles


@dataclass(frozen=True, slots=True)
class Target:
    """A process that is worth a look.

    Attributes:
        rank: Global rank, or UNKNOWN_RANK where it is none or nothing tells.
        role: "rank", "launcher", "data-loader", "helper", "engine" or "unknown".
        parent_rank: The rank to which a helper belongs.
        world_size: What the job says, or 0.
        job: What tells one job of this node from another, or "".
        how: How it is known: "mark", "title", the variable's name, or "".
    """

    process: Process
    rank: int = UNKNOWN_RANK
    role: str = "unknown"
    parent_rank: int = UNKNOWN_RANK
    world_size: int = 0
    local_rank: int = -1
    job: str = ""
    how: str = ""


TITLE = "title"
"""How a rank is known that only the title of its process tells."""
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_TAKES_A_VALUE = frozenset({"-X", "-W", "--check-hash-based-pycs"})


def program_of(process: Process) -> str:
    """What a process runs: a module ("torch.distributed.run") or a file's name ("train.py")."""
    words = iter(process.command.split())
    first = next(words, "").rpartition("/")[2]
    if not process.python:
        return first
    for word in words:
        if word in ("-m", "-c"):
            return " ".join(words) if word == "-c" else next(words, "")
        if word in _TAKES_A_VALUE:
            next(words, "")
        elif not word.startswith("-"):
            return word.rpartition("/")[2]
    return first


def is_launcher(process: Process) -> bool:
    """Whether it starts ranks rather than being one."""
    program = program_of(process)
    return program in LAUNCHERS or program.startswith("unhang.")


def marks_of(table: ProcessTable) -> list[Mark]:
    """The recorder's marks: at the usual places, and where the processes' own settings say."""
    told = {
        (process.environ or {}).get("UNHANG_RUNTIME_DIR", "") for process in table.by_pid.values()
    }
    places = dict.fromkeys([*roots(), *(Path(name) for name in sorted(told) if name[:1] == "/")])
    return [mark for place in places for mark in read_marks(root=place)]


def find_ranks(
    table: ProcessTable, marks: Iterable[Mark] = (), skip: Iterable[int] = ()
) -> list[Target]:
    """Find the ranks of this node and the Python processes that belong to them.

    Args:
        table: The processes.
        marks: The recorder's marks; those of other hosts and of the dead are passed over.
        skip: Processes that are none, such as the asker: under srun it has a rank's variables.
    """
    ours = set(skip)
    marked = {mark.pid: mark for mark in marks if mark.pid in table.by_pid and alive(mark)}
    said = {
        pid: _from_mark(table.by_pid[pid], mark)
        for pid, mark in marked.items()
        if mark.role == "rank" and mark.rank is not None
    }
    claims = {
        process.pid: claim
        for process in table.by_pid.values()
        if process.pid not in ours
        and process.pid not in marked
        and (claim := _claim(process)) is not None
    }
    hinted = {
        pid: mark.env_rank
        for pid, mark in marked.items()
        if mark.env_rank is not None and mark.role != "launcher"
    }
    found = said | {
        pid: claim
        for pid, claim in claims.items()
        if _is_credible(claim, table, claims, said, hinted)
    }
    helpers = [helper for target in found.values() for helper in _helpers(target, table, found)]
    known = {target.process.pid for target in (*found.values(), *helpers)} | ours
    return sorted([*found.values(), *helpers, *_of_engines(table, known)], key=_order)


def _of_engines(table: ProcessTable, known: Collection[int]) -> Iterator[Target]:
    """Workers of serving engines, whose titles tell their ranks, and what gives them orders."""
    sides: defaultdict[int, dict[int, str]] = defaultdict(dict)
    for process in table.by_pid.values():
        if process.python and process.pid not in known and is_worker(process.command):
            sides[process.ppid][process.pid] = process.command
        elif process.python and process.pid not in known and is_core(process.command):
            sides.setdefault(process.pid, {})  # its workers may be dead
    for parent, titles in sides.items():
        ranks, job = ranks_of_titles(titles), f"engine-{parent}"
        for pid in titles:
            rank, size = ranks.get(pid, UNKNOWN_RANK), len(ranks)
            role = "rank" if rank != UNKNOWN_RANK else "unknown"
            yield Target(table.by_pid[pid], rank, role, world_size=size, job=job, how=TITLE)
        for process in _serving(table, parent):
            if process.pid not in known and process.pid not in titles:
                yield Target(process, role="engine", job=job, how=TITLE)


def of_one_job(targets: Sequence[Target]) -> list[Target]:
    """Targets among which a number is that of one rank.

    A trainer and the engine that serves it count their own ranks: where ranks of another job are
    seen, workers of an engine are none.
    """
    jobs = {target.job for target in targets if target.rank >= 0}
    return [
        replace(target, rank=UNKNOWN_RANK, role="engine")
        if len(jobs) > 1 and target.how == TITLE and target.rank >= 0
        else target
        for target in targets
    ]


def _serving(table: ProcessTable, parent: int) -> Iterator[Process]:
    """What starts workers, what starts that, and its other children that serve, or are dead."""
    if parent not in table.by_pid:
        return
    line = [table.by_pid[parent], *table.above(parent)]
    own = list(takewhile(lambda each: each.python and not is_launcher(each), line))
    yield from own
    for process in (each for one in own for each in table.below(one.pid)):
        dead = process.state == "Z" and process.ppid == parent
        if process not in own and (is_engine(process.command) or dead):
            yield process


def _order(target: Target) -> tuple[str, bool, int, int, int]:
    return target.job, target.rank < 0, target.rank, target.parent_rank, target.process.pid


def _is_credible(
    claim: Target,
    table: ProcessTable,
    claims: dict[int, Target],
    said: dict[int, Target],
    hinted: dict[int, int],
) -> bool:
    """Whether a process is the rank that its environment names.

    Not where a rank is above it (it is that rank's helper), nor where a Python process above it
    claims or may become the same. One below it that has marked itself, or claims by a better
    variable, makes it a launcher: under `srun torchrun`, SLURM_PROCID is the number of the node.
    """
    for ancestor in table.above(claim.process.pid):
        above = claims.get(ancestor.pid)
        if ancestor.pid in said or (above and _same(above, claim)):
            return False
        if hinted.get(ancestor.pid) == claim.rank:
            return False
    for process in list(table.below(claim.process.pid))[1:]:
        lower = claims.get(process.pid)
        if process.pid in said or (lower and precedence_of(lower.how) < precedence_of(claim.how)):
            return False
    return True


def _from_mark(process: Process, mark: Mark) -> Target:
    return Target(
        process,
        rank=mark.rank if mark.rank is not None else UNKNOWN_RANK,
        role="rank",
        world_size=mark.world_size or 0,
        local_rank=-1 if mark.local_rank is None else mark.local_rank,
        job=mark.job_id,
        how="mark",
    )


def _same(one: Target, other: Target) -> bool:
    return (one.rank, one.how, one.job) == (other.rank, other.how, other.job)


def _claim(process: Process) -> Target | None:
    """The rank that the environment of a Python process names, unless it is a launcher."""
    environ = process.environ or {}
    if not process.python or is_launcher(process):
        return None
    if program_of(process).startswith("from ") and any(h in process.command for h in _HELPERS):
        return None
    told = rank_env(environ)
    if told is None:
        return None
    return Target(
        process,
        rank=told.rank,
        role="rank",
        world_size=told.world_size,
        local_rank=told.local_rank,
        job=told.job,
        how=told.variable,
    )


def _helpers(target: Target, table: ProcessTable, found: dict[int, Target]) -> list[Target]:
    """The Python processes below a rank; a rank below a rank keeps its own."""
    below_it = list(table.below(target.process.pid))[1:]
    return [
        Target(
            process,
            role="helper",
            parent_rank=target.rank,
            world_size=target.world_size,
            job=target.job,
        )
        for process in below_it
        if process.python and process.pid not in found
    ]


def below(table: ProcessTable, pid: int, ranks: Sequence[Target]) -> list[Target]:
    """A process and all its descendants as targets, with the ranks among them as such."""
    known = {target.process.pid: target for target in ranks}
    return [known.get(process.pid, Target(process)) for process in table.below(pid)]


def python_processes(table: ProcessTable, ranks: Sequence[Target]) -> list[Target]:
    """All Python processes of this node as targets, with the ranks among them as such."""
    known = {target.process.pid: target for target in ranks}
    return [
        known.get(process.pid, _labelled(process))
        for process in table.by_pid.values()
        if process.python
    ]


def _labelled(process: Process) -> Target:
    target = Target(process)
    return replace(target, role="launcher") if is_launcher(process) else target
