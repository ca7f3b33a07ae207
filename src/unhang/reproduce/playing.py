"""Play programs under the rules of a rehearsal, and let the analysis judge how they end.

No process and no torch: the referee hears the calls of all ranks, one after the other. A rank that
comes to the end of its program stays there, outside of any call.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from unhang.analysis import diagnose
from unhang.ingest import load
from unhang.rehearse.endstate import write_case
from unhang.rehearse.matching.referee import Referee, RehearsalEnd
from unhang.report import Finding, Report
from unhang.reproduce.schedule import Move, Programs

_FAMILIES: Final = frozenset({"absent", "disagreement", "deadlock"})
"""What calls alone can show."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What has to stay the same: the first cause's kind, and its ranks in the job."""

    code: str
    slug: str
    culprits: tuple[int, ...]


def judgement_of(report: Report, names: tuple[int, ...] = ()) -> Judgement | None:
    """The first cause of a report, where it is one of the calls' own.

    Args:
        report: The verdict.
        names: Which rank of the job each of its ranks is; the same where empty.
    """
    cause = next(iter(report.causes), None)
    return _judgement(cause, names) if cause and cause.family in _FAMILIES else None


def judgements_of(report: Report, names: tuple[int, ...]) -> set[Judgement]:
    """All that a report says of calls, also where it takes a process's end for the cause."""
    return {_judgement(each, names) for each in report.findings if each.family in _FAMILIES}


def _judgement(finding: Finding, names: tuple[int, ...]) -> Judgement:
    ranks = tuple(sorted(names[r] if names else r for r in finding.culprits))
    return Judgement(finding.code, finding.slug, ranks)


def judgement_of_played(programs: Programs) -> Judgement | None:
    """How programs end."""
    with tempfile.TemporaryDirectory(prefix="unhang-reproduce-") as folder:
        case = Path(folder) / "case"
        for name in ("stacks", "parts"):
            (case / name).mkdir(parents=True)
        write_case(RehearsalEnd(_played(programs), "stuck"), case, ())
        report = diagnose(load([str(case)], world_size=len(programs.names)))
    return judgement_of(report, programs.names)


def _played(programs: Programs) -> Referee:
    """The referee when no rank can go on."""
    ranks = range(len(programs.names))
    referee = Referee(len(ranks))
    for rank in ranks:
        referee.hear(rank, {"t": "hello", "pid": 1 + rank, "rank": rank, "main": True})
        referee.hear(rank, {"t": "init", "rank": rank, "world": len(ranks), "parent": 0})
        for number, group in enumerate(programs.groups):
            if rank in group.members:
                referee.hear(rank, _group(programs, number))
    done = dict.fromkeys(ranks, 0)
    while any([_went_on(referee, programs, rank, done) for rank in ranks]):  # noqa: C419 - each goes on
        referee.answers.clear()
    return referee


def _went_on(referee: Referee, programs: Programs, rank: int, done: dict[int, int]) -> bool:
    """Let a rank make its next call; False where it waits, or has come to its end."""
    moves, number = programs.moves[rank], done[rank]
    if referee.ranks[rank].waits or number == len(moves):
        return False
    done[rank] += 1
    referee.hear(rank, _call(moves[number], number))
    if moves[number].waits:
        referee.hear(rank, {"t": "wait", "number": number, "stack": number})
    return True


def _group(programs: Programs, number: int) -> dict[str, object]:
    group = programs.groups[number]
    return {
        "t": "group", "key": str(number), "name": group.name, "description": group.description,
        "ranks": list(group.members), "backend": group.backend or "nccl", "timeout_ms": 600_000,
    }  # fmt: skip


def _call(move: Move, number: int) -> dict[str, object]:
    frame = move.frame
    return {
        "t": "call", "group": str(move.group), "kind": move.op, "op": move.op, "number": number,
        "root": move.root, "peer": move.peer, "tag": move.tag, "reduction": move.reduction,
        "sync": move.waits, "gives": [], "takes": [], "carried": False, "kept": 0, "batch": -1,
        "inputs": [list(shape) for shape in move.inputs], "dtypes": [move.dtype] * len(move.inputs),
        "outputs": [list(shape) for shape in move.outputs],
        "output_dtypes": [move.dtype] * len(move.outputs),
        "stack": number, "frames": [(frame.function, frame.file, frame.line)] if frame else [],
    }  # fmt: skip
