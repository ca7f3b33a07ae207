"""Dumps of a node's ranks: triggered where a recorder listens, found where files lie.

Asked: see `collect.asking`; where no rank is armed, torch's debug server. Found: the default paths
of all torch versions, and globs. A file that is older than its process is of another job and left
out, which is said.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from unhang.collect.asking import (
    DumpRequest,
    RankDumps,
    ask_recorder,
    ask_torch,
    changed,
    default_paths,
)
from unhang.collect.node.debugserver import dumps_of_debug_server
from unhang.collect.ranks import Target
from unhang.record.contact.latest import read_page
from unhang.record.contact.marks import Mark, alive
from unhang.wording import fold_ranks

MAX_FOUND = 100_000
_ASK_S = 8.0
_STOPPED = ("T", "t")
"""Of a process that is stopped, the state says more than its calls."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Dumps:
    """What came of the dumps.

    Attributes:
        files: Where they are, by path in the case.
        came, missing: Path in the case, or why there is none, by rank.
    """

    files: dict[str, Path | bytes] = field(default_factory=dict)
    came: dict[int, list[str]] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, rank: int, backend: str, source: Path | bytes) -> None:
        """Take one dump in."""
        name = f"dumps/{backend}/rank_{rank}"
        if name in self.files:
            self.notes.append(f"a further dump of rank {rank} ({backend}) is left out")
            return
        self.files[name] = source
        self.came.setdefault(rank, []).append(name)


@dataclass(frozen=True, slots=True)
class AskingTerms:
    """How recorders are asked.

    Attributes:
        folder: An empty folder of ours, for what they write.
        incident: Name that the dumps of all nodes carry.
        frames: Have them write the stacks of their calls too.
        helpers: The other processes of the job here; one may be torch's debug server.
    """

    folder: Path
    incident: str
    frames: bool = True
    helpers: Sequence[Target] = ()


def ask_for_dumps(ranks: Sequence[Target], marks: Iterable[Mark], asking: AskingTerms) -> Dumps:
    """Have the ranks of this node write dumps now.

    Args:
        ranks: The ranks.
        marks: Of the recorders that may be asked.
        asking: How.
    """
    dumps = Dumps()
    by_pid = {mark.pid: mark for mark in marks}
    if ranks:
        with ThreadPoolExecutor(min(16, len(ranks))) as pool:
            answers = pool.map(
                lambda target: _asked(target, by_pid.get(target.process.pid), asking), ranks
            )
            for target, answer in zip(ranks, answers, strict=True):
                for backend, source in answer.found:
                    dumps.add(target.rank, backend, source)
                if not answer.found:
                    dumps.missing[target.rank] = answer.why
    if not dumps.came:
        _add_from_debug_server(ranks, dumps_of_debug_server(asking.helpers), dumps)
    return dumps


def _add_from_debug_server(
    ranks: Sequence[Target], found: Sequence[tuple[int, str, bytes]], dumps: Dumps
) -> None:
    here = {target.rank for target in ranks}
    for rank, backend, data in found:
        dumps.add(rank, backend, data)
        dumps.missing.pop(rank, None)
    if elsewhere := sorted({rank for rank, _, _ in found} - here):
        dumps.notes.append(
            f"torch's debug server on this node gave the dumps of ranks {fold_ranks(elsewhere)} too"
        )


def find_dumps(ranks: Sequence[Target], patterns: Sequence[str], dumps: Dumps) -> None:
    """Add what ranks wrote by themselves and did not write when asked, and what people named.

    Args:
        ranks: The ranks of this node.
        patterns: Globs of further files.
        dumps: What came so far.
    """
    for target in ranks:
        if target.rank not in dumps.came:
            _take_default(target, dumps)
    _take_patterns(patterns, dumps)


def last_calls(
    ranks: Sequence[Target], marks: Sequence[Mark], came: dict[int, list[str]]
) -> dict[int, bytes]:
    """The heartbeats, with their last calls, of ranks that left no dump, by rank.

    Those of ranks that have ended are there as long as the job has others.

    Args:
        ranks: The ranks of this node that live.
        marks: Of all recorders that have been here.
        came: Ranks with dumps.
    """
    pids = {target.process.pid for target in ranks}
    stopped = {target.process.pid for target in ranks if target.process.state in _STOPPED}
    own = [mark for mark in marks if mark.pid in pids and alive(mark)]
    lives = {(mark.job_id, mark.attempt) for mark in own}
    ended = [
        mark
        for mark in marks
        if mark.role == "rank" and (mark.job_id, mark.attempt) in lives and not alive(mark)
    ]
    known = {*came, *(mark.rank for mark in own)}
    wanted = [mark for mark in own if mark.rank not in came and mark.pid not in stopped]
    wanted += [mark for mark in ended if mark.rank not in known]
    pages = {mark.rank: read_page(mark.heartbeat) for mark in wanted if mark.heartbeat}
    return {rank: page for rank, page in pages.items() if rank is not None and page}


def _asked(target: Target, mark: Mark | None, asking: AskingTerms) -> RankDumps:
    """The dumps that a rank writes when it is asked, and why there are none."""
    if mark is None:
        process = target.process
        return ask_torch(process.pid, target.rank, process.environ or {}, _ASK_S)
    # A process each: several may say that they are the same rank.
    place = asking.folder / f"rank_{target.rank}-{target.process.pid}"
    place.mkdir()
    request = DumpRequest(
        "asked", asking.incident, place, stacks=asking.frames, recorder_s=_ASK_S, worker_s=_ASK_S
    )
    answer = ask_recorder(mark, request)
    # What lies in our folder, whatever the process says: it may name any file of ours.
    files = [path for path in sorted(place.rglob("rank_*")) if path.is_file()]
    if files:
        return RankDumps(tuple((path.parent.name, path) for path in files))
    sent = tuple((backend, data) for backend, data in answer.found if isinstance(data, bytes))
    return RankDumps(sent, answer.why or "its dump was written elsewhere")


def _take_default(target: Target, dumps: Dumps) -> None:
    """A dump that torch wrote by itself, if it is of this very process."""
    for path in default_paths(target.rank, target.process.environ or {}):
        written = changed(path)
        if not written:
            continue
        if written < _began(target):
            dumps.notes.append(f"{path} is older than rank {target.rank}: left out")
            continue
        dumps.add(target.rank, "nccl", path)
        dumps.missing.pop(target.rank, None)
        return


def _began(target: Target) -> float:
    """Wall clock at which a process began, to a second."""
    with Path("/proc/uptime").open(encoding="ascii") as file:
        up_s = float(file.read().split()[0])
    return time.time() - up_s + target.process.start_ticks / _TICKS - 1


def _take_patterns(patterns: Sequence[str], dumps: Dumps) -> None:
    """Files that people named; their own names are kept, which tell their ranks."""
    for pattern in patterns:
        paths = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))[:MAX_FOUND]]  # noqa: PTH207 - a pattern may be absolute
        taken = [path for path in paths if changed(path)]
        if not taken:
            dumps.notes.append(f"--dumps {pattern}: no file that can be read")
        for path in taken:
            name = "".join(c if c.isalnum() or c in "_.-" else "_" for c in path.name)[:150]
            key, number = f"dumps/found/{name}", 1
            while key in dumps.files:
                number += 1
                key = f"dumps/found/{number}/{name}"
            dumps.files[key] = path
