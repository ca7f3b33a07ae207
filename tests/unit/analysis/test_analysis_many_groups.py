"""Work grows with what was recorded, not with the number of groups times that of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.recorder.torchfile import encode_pickle
from unhang import diagnose, load
from unhang.analysis.divergence.programs import RankPrograms

GROUPS, RANKS = 10_000, 3


def call(number: int, record: int) -> dict[str, Any]:
    """An unfinished call of one group."""
    return {
        "frames": [], "record_id": record, "pg_id": number,
        "process_group": (str(number), f"g{number}"),
        "collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1, "profiling_name": "nccl:all_reduce",
        "time_created_ns": 10**18 + record, "input_sizes": [[4]], "input_dtypes": ["Float"],
        "output_sizes": [[4]], "output_dtypes": ["Float"], "state": "scheduled",
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
        "retired": False, "timeout_ms": 600000, "is_p2p": False,
    }  # fmt: skip


def write_crossed(folder: Path) -> None:
    """Groups of everybody, each with a call in flight; one rank made them in the other order."""
    config = {
        str(number): {"name": str(number), "desc": f"g{number}", "ranks": str(list(range(RANKS)))}
        for number in range(GROUPS)
    }
    for rank in range(RANKS):
        order = range(GROUPS)[:: -1 if rank == 1 else 1]
        entries = [call(number, record) for record, number in enumerate(order)]
        dump = {"version": "2.10", "pg_config": config, "entries": entries}
        (folder / f"nccl_trace_rank_{rank}").write_bytes(encode_pickle(dump))


def test_ten_thousand_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crossed order is found, and each rank's calls are numbered once to be compared."""
    numbered = 0
    number = RankPrograms._numbers

    def counted(self: RankPrograms, *call: int) -> tuple[int, int]:
        nonlocal numbered
        numbered += 1
        return number(self, *call)

    monkeypatch.setattr(RankPrograms, "_numbers", counted)
    write_crossed(tmp_path)
    case = load(tmp_path)
    report = diagnose(case)
    assert len(case.groups) == GROUPS
    assert report.findings[0].code == "UH301"
    assert 0 < numbered <= len(case.calls)
