"""Ranks of a rehearsal as messages: what each says to the referee, without processes or torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unhang.analysis import diagnose
from unhang.ingest import load
from unhang.rehearse.endstate import write_case
from unhang.rehearse.matching.referee import Referee, RehearsalEnd
from unhang.rehearse.verdict.proof import judged
from unhang.report import Report

__all__ = ["Ranks", "verdict"]

CALL: dict[str, Any] = {
    "t": "call", "kind": "all_reduce", "op": "all_reduce", "root": -1, "peer": -1, "tag": 0,
    "reduction": "SUM", "sync": True, "gives": [], "takes": [], "carried": True, "kept": 1,
    "inputs": [[4]], "dtypes": ["float32"], "outputs": [[4]], "output_dtypes": ["float32"],
    "batch": -1,
}  # fmt: skip


class Ranks:
    """Some ranks and their referee; each call is waited for, as a script does."""

    def __init__(
        self, size: int, backend: str = "nccl", running: Sequence[int] = (), *,
        pairs_apart: bool = False,
    ) -> None:  # fmt: skip
        self.referee = Referee(size, running)
        self.size, self.backend, self.pairs_apart = size, backend, pairs_apart
        self.numbers = [0] * size
        for rank in running or range(size):
            self.referee.hear(rank, {"t": "hello", "pid": 100 + rank, "rank": rank, "main": True})
            self.say(rank, "init", rank=rank, world=size, parent=1)
            self.group(rank, "0", range(size))

    def say(self, rank: int, kind: str, /, **fields: object) -> None:
        """One message."""
        self.referee.hear(rank, {"t": kind, **fields})

    def group(self, rank: int, name: str, ranks: Any) -> None:  # noqa: ANN401 - any ranks
        """A rank makes a group."""
        self.say(
            rank, "group", key=f"{name}/{list(ranks)}", name=name, description=name,
            ranks=list(ranks), backend=self.backend, timeout_ms=1000, pairs_apart=self.pairs_apart,
        )  # fmt: skip

    def call(
        self, rank: int, line: int, /, *, wait: bool = True, by: Sequence[int] = (), **how: object
    ) -> int:
        """A call at a line of train.py, come to by others, outermost last; returns its number."""
        number = self.numbers[rank]
        self.numbers[rank] += 1
        group = how.pop("group", f"0/{list(range(self.size))}")
        place = {"stack": number, "frames": [["main", "train.py", each] for each in (line, *by)]}
        self.referee.hear(rank, CALL | {"group": group, "number": number} | place | how)
        if wait:
            self.wait(rank, number, line, *by)
        return number

    def wait(self, rank: int, number: int, *lines: int) -> None:
        """Wait for a call."""
        frames = [["main", "train.py", line] for line in lines]
        self.say(rank, "wait", number=number, stack=1000 + lines[0], frames=frames)

    def end(self, rank: int, code: int = 0, error: str = "", line: int = 0) -> None:
        """The script's end; with a line, that which raised the error."""
        frames = [["load", "train.py", line]] if line else []
        self.say(rank, "end", code=code, error=error, frames=frames)

    def waiting(self) -> list[int]:
        """Ranks that wait."""
        return [rank for rank, process in self.referee.ranks.items() if process.waits]


def verdict(ranks: Ranks, folder: Path, end: str = "") -> Report:
    """The report of ranks as they stand."""
    (folder / "stacks").mkdir(parents=True)
    (folder / "parts").mkdir()
    state = "over" if ranks.referee.is_over else "stuck"
    outcome = RehearsalEnd(ranks.referee, end or state, "2.13.0", 4.0)
    write_case(outcome, folder, ["torchrun", "train.py"])
    return judged(
        diagnose(load([str(folder)], world_size=None if ranks.referee.running else ranks.size)),
        outcome,
        0,
        folder,
    )
