"""What is to be seen of `programs/eight_ranks.py`, wherever its ranks run."""

from __future__ import annotations

import json
from pathlib import Path

from unhang.collect.processes import read_processes
from unhang.collect.ranks import Target, find_ranks
from unhang.collect.sampling import sample_processes
from unhang.stacks.meaning import meaning_of

PROGRAM = Path(__file__).parents[1] / "integration" / "programs" / "eight_ranks.py"
RANKS, STOPPED, LOADING, HOLDING = 8, 2, 5, 6
_LINES = PROGRAM.read_text(encoding="utf-8").splitlines()


def line_of(text: str) -> int:
    """The number of the line of the program that holds a text."""
    return next(number for number, line in enumerate(_LINES, 1) if text in line)


def targets_of(job: str) -> list[Target]:
    """The processes of a job on this machine."""
    return [target for target in find_ranks(read_processes()) if target.job == job]


def all_stuck(job: str) -> bool:
    """Whether every rank stands where it will stay."""
    samples = sample_processes(targets_of(job)).samples
    kinds = {sample.rank: meaning_of(sample).kind for sample in samples if sample.rank >= 0}
    holding = kinds.pop(HOLDING, "")  # who has the GIL is not seen from another PID namespace
    wanted = dict.fromkeys(range(RANKS), "collective") | {LOADING: "data-loader"}
    del wanted[HOLDING]
    workers = [sample for sample in samples if sample.role == "data-loader"]
    at_work = any(meaning_of(sample).site for sample in workers)
    return kinds == wanted and holding in ("gil", "sleep") and at_work


def expected_tree() -> list[str]:
    """The lines of the tree once rank `STOPPED` is stopped: ranges, meanings, states and lines."""
    module, loader = line_of("train(dist.get_rank())"), line_of("next(iter(loader))")
    return [
        "ranks 0-7 (8)",
        f"  <module> (eight_ranks.py:{module})",
        f"  ├─ 5: train (eight_ranks.py:{loader})",
        "  │    = waiting for data (_try_get_data); unchanged",
        f"  ├─ 6: train (eight_ranks.py:{line_of('        hold_the_gil()')})",
        f"  │    hold_the_gil (eight_ranks.py:{line_of('ctypes.PyDLL(None)')})",
        "  │    = holding the GIL in native code in hold_the_gil; unchanged",
        f"  └─ 0-4,7: train (eight_ranks.py:{line_of('dist.all_reduce(')})",
        "       ├─ 2: = stopped by a signal (SIGSTOP, SIGTSTP); unchanged",
        "       └─ 0-1,3-4,7: = waiting in all_reduce; unchanged",
        "",
        "data-loader workers of ranks 5 (1)",
        f"  <module> (eight_ranks.py:{module})",
        f"  train (eight_ranks.py:{loader})",
        "  …",
        f"  Slow.__getitem__ (eight_ranks.py:{line_of('        time.sleep(1_000)')})",
        "  = waiting for data (fetch); unchanged",
    ]


EXPECTED_CAUSES = [("UH101", [5, 6], [0, 1, 3, 4, 7]), ("UH401", [2], [0, 1, 3, 4, 7])]


def causes(text: str) -> list[tuple[str, list[int], list[int]]]:
    """Code, culprits and victims of the causes of a report in JSON."""
    found = [f for f in json.loads(text)["findings"] if f["role"] == "cause"]
    return [(cause["code"], cause["culprits"], cause["victims"]) for cause in found]
