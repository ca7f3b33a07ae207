"""NCCL Inspector's lines: one file a process, and a line for each call that ended.

The lines are made after the README of NVIDIA/nccl's plugin; no real hang was at hand.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unhang.cli.main import main
from unhang.ras import is_inspector, parse_inspector


def lines(rank: int, ended: int, *, size: int = 4, op: str = "AllReduce") -> str:
    """What the process of a rank wrote."""
    return "".join(
        json.dumps(
            {
                "header": {"id": "0x7f8c", "rank": rank, "n_ranks": size, "nnodes": 1},
                "metadata": {
                    "inspector_output_format_version": "v4.0",
                    "dump_timestamp_us": 1748030377748202 + number,
                    "hostname": "node1",
                    "pid": 1000 + rank,
                },
                "coll_perf": {"coll": op, "coll_sn": number, "coll_msg_size_bytes": 1024},
            }
        )
        + "\n"
        for number in range(ended)
    )


def test_calls_are_counted_by_rank() -> None:
    """A line that was cut, and any other, is passed over."""
    text = lines(0, 3) + lines(1, 2)[:-30] + '\n{"header": 1}\n[1]\n'
    assert is_inspector(text)
    status = parse_inspector(text)
    assert status.of_ended
    assert status.communicators[0].launched == {"AllReduce": {0: 3, 1: 1}}
    with pytest.raises(ValueError, match="no line"):
        parse_inspector('{"coll_perf": 1}')


def test_a_rank_that_is_behind_is_named_with_low_confidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of these files goes to any command that judges."""
    for rank in range(4):
        (tmp_path / f"node1-pid{rank}.log").write_text(lines(rank, 33 if rank == 2 else 40))
    for command in ("diagnose", "logs", "paste"):
        assert main([command, str(tmp_path), "--format", "text"]) == 1
        out = " ".join(capsys.readouterr().out.split())
        assert "Rank 2 has ended fewer AllReduce calls than its peers" in out
        assert "confidence low" in out


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ((40, 40, 40, 40), "4 ranks have ended the same calls"),
        ((40, 39, 40, 40), "no further behind"),
        ((40,), "3 of 4 ranks left no file"),
    ],
)
def test_level_counts_name_no_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ended: tuple[int, ...], said: str
) -> None:
    """Of a call that hangs there is no line: level counts do not show that all is well."""
    for rank, number in enumerate(ended):
        (tmp_path / f"node1-pid{rank}.log").write_text(lines(rank, number))
    assert main(["diagnose", str(tmp_path)]) == 3
    assert said in " ".join(capsys.readouterr().out.split())
