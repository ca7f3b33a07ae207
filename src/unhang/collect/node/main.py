"""One node's collection from beginning to end: orders in as JSON, a parcel out as lines.

Orders (every key may be missing):

    run, node, incident   names of the collecting run, of this node, and of the incident
    what                  of "dumps", "stacks", "logs", "env"; all by default
    job, slurm_jobs       which job: where several run on this node and none is named, they are
                          listed and nothing is collected; ids that SLURM gives it
    looks, interval_s, native, look_s    how to look at stacks
    asked_only            no dumps but those that recorders write when they are asked, now
    whole_dumps           send dumps as they are; else large ones are reduced, see `node.parts`
    frames                have recorders write the stacks of their calls too; true by default
    dumps, logs           globs
    log_bytes             how much of the end of each log
    slurm_outputs         files of the batch script's output, and the node that is to send them
"""

from __future__ import annotations

import glob
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unhang.collect.node.dumps import AskingTerms, ask_for_dumps, find_dumps, last_calls
from unhang.collect.node.logs import take_logs
from unhang.collect.node.parts import reduced
from unhang.collect.node.system import describe_ranks, take_ras, take_system
from unhang.collect.parcel import safe_node, write_parcel
from unhang.collect.processes import ProcessTable, read_processes
from unhang.collect.ranks import Target, find_ranks, marks_of
from unhang.collect.sampling import sample_processes
from unhang.rankenv import neighbours_of, node_of
from unhang.record.contact.marks import Mark
from unhang.stacks.excerpts import excerpts_of
from unhang.stacks.formats.saved import dump_samples
from unhang.telltale import harmless_log, without_secrets

EVERYTHING = ("dumps", "stacks", "logs", "env")


@dataclass(slots=True)
class _Node:
    """What is being put together."""

    orders: Mapping[str, Any]
    name: str
    folder: Path
    files: dict[str, bytes | Path] = field(default_factory=dict)
    came: dict[int, dict[str, str]] = field(default_factory=dict)
    missing: dict[int, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    timings_s: dict[str, float] = field(default_factory=dict)

    def wants(self, what: str) -> bool:
        """Whether the orders ask for it."""
        return what in self.orders.get("what", EVERYTHING)


def main(orders_text: str, folder: str = "") -> int:
    """Collect on this node; returns the exit code."""
    orders = json.loads(orders_text)
    name = safe_node(str(orders.get("node") or _own_name()))
    with tempfile.TemporaryDirectory(prefix="unhang-", dir=folder or None) as scratch:
        _unpack_tools(folder)
        node = _Node(orders, name, Path(scratch))
        part = _collect(node)
        node.files["part.json"] = json.dumps(part, default=str).encode()
        write_parcel(node.files, str(orders.get("run", "run")), name, sys.stdout)
    return 0


def _own_name() -> str:
    """The launcher's name for this node (several may be one machine), else the host's."""
    told = os.environ.get("UNHANG_NODE") or os.environ.get("SLURMD_NODENAME")
    return told or socket.gethostname()


def _unpack_tools(folder: str) -> None:
    """Make the programs that travelled with us findable."""
    if not folder:
        return
    import platform
    import zipfile

    wanted = f"bin/py-spy-{platform.machine()}"
    with zipfile.ZipFile(Path(folder, "collector.zip")) as archive:
        if wanted not in archive.namelist():
            return
        tools = Path(folder, "bin")
        tools.mkdir()
        (tools / "py-spy").write_bytes(archive.read(wanted))
        (tools / "py-spy").chmod(0o700)
    os.environ["PATH"] = f"{os.environ.get('PATH', '/usr/bin:/bin')}:{tools}"


def _collect(node: _Node) -> dict[str, Any]:
    table = read_processes()
    marks = marks_of(table)
    targets = _targets(node, table, marks)
    ranks = [target for target in targets if target.role == "rank"]
    if len({target.job for target in ranks}) > 1:
        return _part(node, ranks, chosen=())
    steps: tuple[tuple[str, Callable[[], None]], ...] = (
        ("dumps", lambda: _dumps(node, targets, marks)),
        ("stacks", lambda: _stacks(node, targets)),
        ("logs", lambda: _logs(node, ranks)),
        ("env", lambda: _env(node, ranks)),
    )
    for what, step in steps:
        if node.wants(what):
            with _timed(node, what):
                step()
    return _part(node, ranks, chosen=ranks)


@contextmanager
def _timed(node: _Node, what: str) -> Iterator[None]:
    """Note how long a step took; a step that fails is said and does not stop the others."""
    begun = time.monotonic()
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the other evidence matters more
        node.notes.append(f"{what}: {type(error).__name__}: {error}")
    node.timings_s[what] = round(time.monotonic() - begun, 3)


def _targets(node: _Node, table: ProcessTable, marks: Sequence[Mark]) -> list[Target]:
    skip = [os.getpid(), *(process.pid for process in table.above(os.getpid()))]
    found = [t for t in find_ranks(table, marks, skip) if _is_wanted(t, node.orders)]
    if not found:
        hidden = sum(p.python and p.environ is None for p in table.by_pid.values())
        node.notes.append(
            "no rank of the job runs here"
            + (f" ({hidden} Python processes of other users could not be read)" if hidden else "")
        )
    return found


def _is_wanted(target: Target, orders: Mapping[str, Any]) -> bool:
    environ = target.process.environ or {}
    if "job" in orders and target.job != orders["job"]:
        return False
    if not orders.get("slurm_jobs"):
        return True
    here = node_of(os.environ)
    elsewhere = here and (node_of(environ) or here) != here
    return environ.get("SLURM_JOB_ID") in orders["slurm_jobs"] and not elsewhere


def _dumps(node: _Node, targets: Sequence[Target], marks: Sequence[Mark]) -> None:
    orders = node.orders
    ranks = [target for target in targets if target.role == "rank"]
    asking = AskingTerms(
        node.folder,
        str(orders.get("incident", "")),
        frames=bool(orders.get("frames", True)),
        helpers=[target for target in targets if target.role != "rank"],
    )
    dumps = ask_for_dumps(ranks, marks, asking)
    if not orders.get("asked_only"):
        find_dumps(ranks, orders.get("dumps", ()), dumps)
    files, note = dumps.files, ""
    if not orders.get("whole_dumps"):
        files, note = reduced(files, node.folder, node.name)
    node.files.update(files)
    node.notes += [*dumps.notes, *([note] if note else [])]
    for rank, paths in dumps.came.items():
        came = paths if files.keys() >= {*paths} else files
        node.came.setdefault(rank, {})["dump"] = ", ".join(came)
    for rank, why in dumps.missing.items():
        node.missing.setdefault(rank, {})["dump"] = why
    for rank, page in last_calls(ranks, marks, dumps.came).items():
        node.files[f"dumps/calls/rank_{rank}"] = page
        node.came.setdefault(rank, {})["calls"] = f"dumps/calls/rank_{rank}"


def _stacks(node: _Node, targets: Sequence[Target]) -> None:
    orders = node.orders
    looks = sample_processes(
        targets,
        looks=int(orders.get("looks", 2)),
        interval_s=float(orders.get("interval_s", 1.0)),
        native=bool(orders.get("native", False)),
        timeout_s=float(orders.get("look_s", 10.0)),
    )
    node.notes += [f"{note.source}: {note.text}" for note in looks.notes]
    if not looks.samples:
        return
    path = f"stacks/{node.name}.json"
    node.files[path] = dump_samples(looks.samples).encode()
    if source := excerpts_of(looks.samples):
        node.files[f"env/{node.name}/source.json"] = source
    for sample in looks.samples:
        if sample.rank >= 0 and sample.threads:
            node.came.setdefault(sample.rank, {})["stacks"] = path
        elif sample.rank >= 0:
            node.missing.setdefault(sample.rank, {}).setdefault("stacks", sample.error)


def _logs(node: _Node, ranks: Sequence[Target]) -> None:
    orders = node.orders
    outputs = orders.get("slurm_outputs", {})
    ours = outputs.get("node") in (node.name, socket.gethostname())
    logs, notes = take_logs(
        ranks,
        [
            *orders.get("logs", ()),
            *(glob.escape(name) for name in outputs.get("files", ()) if ours),
        ],
        int(orders.get("log_bytes", 1 << 20)),
    )
    node.notes += notes
    for name, data in logs.items():
        node.files[f"logs/{node.name}/{name}"] = harmless_log(data)


def _env(node: _Node, ranks: Sequence[Target]) -> None:
    for name, data in take_system(ranks).items():
        node.files[f"env/{node.name}/{name}"] = harmless_log(data)
    for number, answer in enumerate(take_ras(ranks)):
        node.files[f"ras/answer-{node.name}-{number}.txt"] = harmless_log(answer)
    if ranks:
        path = f"env/{node.name}/ranks.json"
        node.files[path] = describe_ranks(ranks)
        for target in ranks:
            node.came.setdefault(target.rank, {})["env"] = path


def _part(node: _Node, ranks: Sequence[Target], chosen: Sequence[Target]) -> dict[str, Any]:
    """What this node says of itself; the receiver makes a part of the manifest of it."""
    return {
        "host": socket.gethostname(),
        "jobs": [_job(job, ranks) for job in sorted({target.job for target in ranks})],
        "job": next((target.job for target in chosen), ""),
        "world_size": max((target.world_size for target in chosen), default=0),
        "command": next((target.process.command for target in chosen), "")[:2_000],
        "time_ns": time.time_ns(),
        "timings_s": node.timings_s,
        "notes": [without_secrets(note) for note in node.notes],
        "ranks": [
            {
                "rank": target.rank,
                "pid": target.process.pid,
                "state": target.process.state,
                "came": node.came.get(target.rank, {}),
                "missing": node.missing.get(target.rank, {}),
            }
            for target in chosen
        ],
        "not_found": _not_found(chosen),
    }


def _job(job: str, ranks: Sequence[Target]) -> dict[str, Any]:
    """One job of this node, for those who must choose one."""
    own = [target for target in ranks if target.job == job]
    return {
        "job": job,
        "ranks": sorted({target.rank for target in own}),
        "world_size": max(target.world_size for target in own),
        "command": own[0].process.command[:200],
    }


def _not_found(ranks: Sequence[Target]) -> list[int]:
    """Ranks that the launcher has started here, and that have no process."""
    started = {rank for t in ranks for rank in neighbours_of(t.process.environ or {})}
    return sorted(started - {target.rank for target in ranks})
