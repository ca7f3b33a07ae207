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
