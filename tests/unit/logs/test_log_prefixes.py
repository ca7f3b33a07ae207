"""Whose line it is and when it was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.logs.lines.prefixes import Line, clean, parse_line

TWO_PM = 1_758_549_600 * 10**9  # 2025-09-22T14:00:00Z


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("[rank3]: hello", Line("hello", rank=3)),
        ("[default5]:hello", Line("hello", local_rank=5)),
        ("[default5]:[rank13]: hello", Line("hello", rank=13, local_rank=5)),
        ("1: [default5]:hello", Line("hello", local_rank=5)),
        ("1: [default5]:[rank13]: hello", Line("hello", rank=13, local_rank=5)),
        (" 7: hello", Line("hello", rank=7)),
        ("[1,12]<stderr>:hello", Line("hello", rank=12)),
        ("[node02:9]: hello", Line("hello", rank=9, host="node02")),
        ("[node02:9] hello", Line("hello", rank=9, host="node02")),
        ("[9e379b1f2389:01615] hello", Line("hello", host="9e379b1f2389", pid=1615)),
        ("[pod/trainer-3/main] hello", Line("hello", host="trainer-3")),
        ("node01:811:942 [3] NCCL INFO x", Line("NCCL INFO x", host="node01", pid=811)),
        ("2025-09-22 14:00:00,250 hello", Line("hello", time_ns=TWO_PM + 250_000_000)),
        ("[2025-09-22T16:00:00+02:00] hello", Line("hello", time_ns=TWO_PM, zoned=True)),
        (
            "[rank1]:[W922 nothing",
            Line("[W922 nothing", rank=1),
        ),
        (
            "[rank1]:[E0922 14:00:00.5 a.cpp:12] x",
            Line("x", rank=1, time_ns=TWO_PM + 500_000_000, level="E"),
        ),
        ("[PG GUID 0(default_pg) Rank 6] x", Line("[PG GUID 0(default_pg) Rank 6] x", rank=6)),
        ("[PG ID 3 PG GUID 12(tp) Rank 1] x", Line("[PG ID 3 PG GUID 12(tp) Rank 1] x")),
        ("plain: 3: text", Line("plain: 3: text")),
        ("[5:0]: hello", Line("hello", local_rank=0, host="5")),
        ("[trainer_2]: hello", Line("hello", local_rank=2)),
        ("[my-role7]:hello", Line("hello", local_rank=7)),
        ("[3] hello", Line("hello", rank=3)),
        ("[1] finished collective #2", Line("[1] finished collective #2")),
        ("[3]<stderr>:hello", Line("hello", rank=3)),
        ("[rank: 3] hello", Line("hello", rank=3)),
        ("worker-0 | hello", Line("hello", host="worker-0")),
        ("trainer_1  | [rank9]: hello", Line("hello", rank=9, host="trainer_1")),
        ("gpu004: hello", Line("hello", host="gpu004")),
        ("job-worker-1:   File", Line("  File", host="job-worker-1")),
        ("step4: hello", Line("step4: hello")),
        ("node.cn-d004 [stderr] [rank14]: hello", Line("hello", rank=14, host="node.cn-d004")),
        ("(RayTrainWorker pid=81, ip=10.0.0.7) hello", Line("hello", host="10.0.0.7", pid=81)),
        ("(WorkerDict pid=81) [rank2]: hello", Line("hello", rank=2, pid=81)),
        ("(VllmWorker rank=5 pid=81) hello", Line("hello", rank=5, pid=81)),
        ("(Worker_TP1 pid=81) hello", Line("hello", rank=1, pid=81)),
        ("(raylet, ip=10.0.0.7) hello", Line("hello", host="10.0.0.7")),
        ("(see above) hello", Line("(see above) hello")),
        ("stderr: [rank1]: hello", Line("hello", rank=1)),
        ("> > (pid=81) hello", Line("hello", pid=81)),
        ("2025-09-22T14:00:00.250000000Z stderr F [rank1]: hello",
         Line("hello", rank=1, time_ns=TWO_PM + 250_000_000, zoned=True)),
        ("Mon Sep 22 14:00:00 2025[4]<stderr>:hello", Line("hello", rank=4, time_ns=TWO_PM)),
        ("[Mon Sep 22 14:00:00 2025] hello", Line("hello", time_ns=TWO_PM)),
        ("22-Sep-25 14:00:00 hello", Line("hello", time_ns=TWO_PM)),
        ("09/22/2025 14:00:00 - hello", Line("hello", time_ns=TWO_PM)),
        ("[1758549600.250000] hello", Line("hello", time_ns=TWO_PM + 250_000_000, zoned=True)),
        ("[84000.1] hello", Line("hello", zoned=True)),
        ("Sep 22 14:00:00 node01 kernel: hello",
         Line("hello", host="node01", time_ns=TWO_PM)),
        ("ERROR 09-22 14:00:00 [core.py:710] hello",
         Line("hello", time_ns=TWO_PM, level="E")),
        ("2025-09-22 14:00:00: E external/xla/a.cc:117] hello",
         Line("external/xla/a.cc:117] hello", time_ns=TWO_PM, level="E")),
        ("[2025-09-22 14:00:00 TP4] hello", Line("hello", rank=4, time_ns=TWO_PM)),
        ("[2025-09-22 14:00:00 DP1 TP9] hello", Line("hello", rank=9, time_ns=TWO_PM)),
        ("[2025-09-22 14:00:00 PP1 TP0] hello", Line("hello", time_ns=TWO_PM)),
        ("[0604/1024][2025-09-22 14:00:00,250] [misc/socket.cc:586] [n1:pid=81] NCCL WARN x",
         Line("NCCL WARN x", rank=604, host="n1", pid=81, time_ns=TWO_PM + 250_000_000)),
        ("[n1:19546:0:19546] ib.c:1 x", Line("ib.c:1 x", host="n1", pid=19546)),
        ("10.0.0.7: kern: warning: [2025-09-22T14:00:00Z]: NVRM: x",
         Line("NVRM: x", host="10.0.0.7", time_ns=TWO_PM, zoned=True)),
        ("[ERROR] (PID:81, Device:3, RankID:3) x", Line("[ERROR] (PID:81, Device:3, RankID:3) x",
         rank=3)),
    ],
)  # fmt: skip
def test_prefixes(raw: str, expected: Line) -> None:
    """Each launcher's prefix is peeled, alone and stacked."""
    assert parse_line(raw.encode(), year=2025) == expected


def test_escapes_go() -> None:
    """Colours, titles and control characters never reach the reader's terminal."""
    raw = b"\x1b[31mred\x1b[0m \x1b]0;title\x07x\x00y\x9b1mz\n"
    assert clean(raw) == "red xy\ufffd1mz"


def test_a_progress_bar_keeps_its_last_state() -> None:
    """Of a line that was redrawn only the last state counts."""
    assert clean(b"10%\r20%\r30% done\n") == "30% done"


@given(st.binary(max_size=300))
def test_any_bytes_are_a_line(raw: bytes) -> None:
    """Nothing in a log makes the parser fail or lets a control character through."""
    line = parse_line(raw)
    assert all(c.isprintable() or c in "\t\u2028\u2029" or ord(c) >= 160 for c in line.text)


def test_open_mpi_marks_every_write() -> None:
    """Lines as mpirun 4.1 prints them of a rank whose traceback is written in pieces."""
    tag = "[1,1]<stderr>:"
    line = parse_line(f"{tag}OSError{tag}: {tag}[Errno 28] No space left on device{tag}\n".encode())
    assert (line.rank, line.text) == (1, "OSError: [Errno 28] No space left on device")
    other = parse_line(f"{tag}half a line[1,2]<stderr>:and another rank's".encode())
    assert other.text == "half a line[1,2]<stderr>:and another rank's"
