"""The end state as a case: a dump of each rank, what became of its process, its output.

The dumps have torch's layout, so everything that reads one reads these: `diagnose`, `entries`,
`query`. A call about whose root or reduction its group disagrees says it in its name, for torch's
layout has no place for these.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from unhang._version import __version__
from unhang.casedir.manifest import NodePart, RankPart, save_file, write_part
from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.record.contact.latest import DTYPE_NAMES
from unhang.record.dumps.dumpfile import FORMAT_VERSION, SCHEMA, encode
from unhang.rehearse.matching.agreement import agree
from unhang.rehearse.matching.encounters import unpaired
from unhang.rehearse.matching.parties import Frames, LivingRank, MadeCall, RankGroup
from unhang.rehearse.matching.referee import Referee, RehearsalEnd
from unhang.stacks.formats.saved import dump_samples
from unhang.stacks.ownership import is_library

_RING: Final = 20_000
"""Calls of a rank that a dump holds; a run of more is longer than a person reads."""
_RUN: Final = "rehearsal"
_OF_NONE: Final = "gloo"
"""Where a rank that failed before its first group leaves its exception."""
_LATER_NS: Final = 600 * 10**9
"""Dumps are as of so much later, when a job would time out: by then nothing has moved, for it is
the end state. Without this a call that was made a moment ago would count as just begun."""


def write_case(outcome: RehearsalEnd, folder: Path, command: Sequence[str]) -> None:
    """Write the end state of a rehearsal into a case directory that is there.

    Raises:
        OSError: It cannot be written.
    """
    referee = outcome.referee
    names = _differences(referee)
    parts = []
    for rank, process in referee.ranks.items():
        came = {}
        for backend in _backends(process) or [_OF_NONE] * bool(process.code):
            path = folder / "dumps" / backend / f"rank_{rank}"
            path.parent.mkdir(parents=True, exist_ok=True)
            content = _dump(outcome, process, backend, names)
            save_file(path, encode(content), at_once=False)
            came["dumps"] = str(path.relative_to(folder))
        parts.append(RankPart(rank, came=came, exit_status=process.code))
    for path in (folder / "stacks").glob("rank_*.txt"):
        if not path.stat().st_size:  # asked for only where a rank waits in no call
            path.unlink()
    samples = [_sample(process) for process in referee.ranks.values() if _tells(process)]
    save_file(folder / "stacks" / f"{_RUN}.json", dump_samples(samples).encode())
    write_part(
        folder,
        NodePart(
            _RUN, "", _RUN, world_size=0 if referee.running else referee.world, command=command,
            incident={"id": _RUN, "reason": "rehearsal", "time_ns": time.time_ns()}, ranks=parts,
        ),
    )  # fmt: skip


def _backends(process: LivingRank) -> list[str]:
    return list(dict.fromkeys(circle.backend for circle in process.groups))


def _differences(referee: Referee) -> dict[int, str]:
    """Names of calls whose members disagree about what no dump has a place for, by identity."""
    names = {}
    for circle in referee.circles.values():
        ops = {call.issue.op for call in circle.apart}
        for what in ("root", "reduction"):
            if len(ops) == 1 and len({getattr(c.issue, what) for c in circle.apart}) > 1:
                for call in circle.apart:
                    names[id(call)] = f"{call.issue.op}({what} {getattr(call.issue, what)})"
        if ops == {"all_to_all"} and agree([call.issue for call in circle.apart]):
            names |= _names_of_pairs(circle.apart)  # unlike totals show in their sizes
    return names


def _names_of_pairs(calls: Sequence[MadeCall]) -> dict[int, str]:
    """Of an exchange whose totals may agree: the members that give or take what others do not."""
    names, ranks, pairs = {}, [call.process.rank for call in calls], unpaired(calls)
    odd = set.intersection(*map(set, pairs)) if len(pairs) > 1 else set()
    if len(odd) == 1:  # all others say the same of the one about whom they disagree
        pairs.sort(key=lambda pair: pair[1] in odd, reverse=True)
    for giver, taker in pairs[::-1]:
        gives, takes = calls[giver].told["gives"][taker], calls[taker].told["takes"][giver]
        names[id(calls[taker])] = f"all_to_all(takes {takes} of rank {ranks[giver]})"
        names[id(calls[giver])] = f"all_to_all(gives {gives} to rank {ranks[taker]})"
    return names


def _dump(
    outcome: RehearsalEnd, process: LivingRank, backend: str, names: dict[int, str]
) -> dict[str, Any]:
    circles = [circle for circle in process.groups if circle.backend == backend]
    calls = [call for call in process.calls.values() if call.circle.backend == backend]
    kept = calls[-_RING:]
    first = len(calls) - len(kept)
    return {
        "version": FORMAT_VERSION,
        "pg_config": {
            c.name: {"name": c.name, "desc": c.description, "ranks": str(list(c.running))}
            for c in circles
        },
        "comm_lib_version": "",
        "pg_status": {
            str(c.number): _status([call for call in calls if call.circle is c]) for c in circles
        },
        "entries": [_entry(first + n, call, backend, names) for n, call in enumerate(kept)],
        "unhang": _extra(outcome, process, backend, circles, calls),
    }


def _status(calls: list[MadeCall]) -> dict[str, int]:
    numbers = [call.seq for call in calls if call.told["peer"] < 0]
    done = [call.seq for call in calls if call.told["peer"] < 0 and call.met_ns]
    last, ended = max(numbers, default=-1), max(done, default=-1)
    return {
        "last_enqueued_collective": last,
        "last_started_collective": last,
        "last_completed_collective": ended,
    }


def _entry(number: int, call: MadeCall, backend: str, names: dict[int, str]) -> dict[str, Any]:
    told, done = call.told, bool(call.met_ns)
    inputs, dtypes = told["inputs"], told["dtypes"]
    outputs, output_dtypes = told["outputs"], told["output_dtypes"]
    if told["peer"] >= 0:
        inputs = outputs = inputs or outputs
        dtypes = output_dtypes = dtypes or output_dtypes
    row: dict[str, Any] = {
        "frames": _rows(call.frames),
        "record_id": number,
        "pg_id": call.circle.number,
        "process_group": (call.circle.name, call.circle.description),
        "thread_name": "python",
        "thread_id": str(call.process.pid),
        "collective_seq_id": call.seq,
        "p2p_seq_id": call.p2p_seq,
        "op_id": call.op_id,
        "profiling_name": f"{backend}:{names.get(id(call)) or _title(call)}",
        "time_created_ns": call.created_ns,
        "input_sizes": inputs,
        "input_dtypes": [DTYPE_NAMES.get(name, name) for name in dtypes],
        "output_sizes": outputs,
        "output_dtypes": [DTYPE_NAMES.get(name, name) for name in output_dtypes],
        "state": "completed" if done else "started",
        "time_discovered_started_ns": call.created_ns,
        "time_discovered_completed_ns": call.met_ns or None,
        "retired": done,
        "timeout_ms": call.circle.timeout_ms,
        "is_p2p": told["peer"] >= 0,
    }
    if told["tag"]:
        row["tag"] = told["tag"]
    return row


def _title(call: MadeCall) -> str:
    """The name as torch writes it; peers are ranks of the group."""
    peer, ranks = call.told["peer"], call.circle.ranks
    if peer < 0:
        return str(call.issue.op)
    if peer >= len(ranks):
        return "recv_anysource"
    arrow, running = "->" if call.issue.op == "send" else "<-", call.circle.running
    if ranks[peer] not in running:
        return str(call.issue.op)
    peer = running.index(ranks[peer])
    return f"{call.issue.op} {running.index(call.process.rank)}{arrow}{peer}"


def _rows(frames: Frames) -> list[dict[str, object]]:
    return [{"name": name, "filename": file, "line": line} for name, file, line in frames]


def _as_of(outcome: RehearsalEnd) -> int:
    return time.time_ns() + (0 if outcome.end == "late" else _LATER_NS)


def _extra(
    outcome: RehearsalEnd,
    process: LivingRank,
    backend: str,
    circles: list[RankGroup],
    calls: list[MadeCall],
) -> dict[str, Any]:
    exception: dict[str, object] | None = None
    if process.error:
        kind, _, text = process.error.partition(": ")
        exception = {"type": kind, "message": text, "frames": _rows(process.error_frames)}
    return {
        "schema": SCHEMA,
        "tool_version": __version__,
        "job_id": _RUN,
        "attempt": 0,
        "incident": _RUN,
        "rank": process.rank,
        "world_size": None if outcome.referee.running else outcome.referee.world,
        "backend": backend,
        "reason": "rehearsal",
        "time_ns": _as_of(outcome),
        "torch": outcome.torch,
        "dropped": max(0, len(calls) - _RING),
        "exception": exception,
        "groups": [
            {
                "name": c.name, "description": c.description, "ranks": list(c.running),
                "backend": c.backend, "timeout_ms": c.timeout_ms,
            }
            for c in circles
        ],
        "stacks": {
            "main": _rows(process.place) if _waits_elsewhere(process) else [],
            "threads": [],
        },
        "entries": [],
        "open_tags": [
            [n, call.told["tag"]]
            for n, call in enumerate(calls)
            if call.told["peer"] >= 0 and not call.met_ns
        ][-256:],
    }  # fmt: skip


def _waits_elsewhere(process: LivingRank) -> bool:
    """Whether a rank waits at another line than the one that made its call."""
    made = {call.frames for call in process.calls.values() if not call.met_ns}
    own = [frame for frame in process.place if not is_library(Frame(*frame))]
    return bool(process.waits and own) and not any(set(own) <= set(each) for each in made)


def _tells(process: LivingRank) -> bool:
    """Whether a rank's process tells more than its dump: it failed, or waits for a key.

    One that came to the end of its script is no event of a rehearsal: all should.
    """
    return bool(process.code) or process.waits.startswith("key ")


def _sample(process: LivingRank) -> ProcessSample:
    """What became of a rank's process, and where it stands."""
    frames = tuple(Frame(*frame) for frame in process.place)
    thread = ThreadStack("MainThread", 0, frames, is_main=True)
    ended = process.code is not None
    return ProcessSample(
        process.rank,
        "",
        -1,
        threads=() if ended or not frames else (thread,),
        state="X" if ended else "S",
        time_ns=time.time_ns(),
        tool="heartbeat",
        exit_status=process.code if process.code is not None and process.code >= 0 else None,
        gone=ended,
        ended_ns=process.ended_ns,
        awaits=process.waits.removeprefix("key ") if process.waits.startswith("key ") else "",
    )
