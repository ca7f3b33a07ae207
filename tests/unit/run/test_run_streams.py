from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.run.child.streams import Keeper, Stream, tail_of


def test_a_keeper_keeps_the_last_of_a_long_stream(tmp_path: Path) -> None:
    """It writes at most two files of its limit and the tail runs over both."""
    folder = tmp_path / "logs"
    keeper = Keeper(str(folder / "stdout.log"), limit=100)
    for number in range(100):
        keeper.write(b"%09d\n" % number)
    assert sorted(path.name for path in folder.iterdir()) == ["stdout.log", "stdout.log.1"]
    tail = tail_of(Stream("stdout", (1,), "pipe"), str(folder), 150)
    assert tail.splitlines()[-1] == b"%09d" % 99
    assert len(tail) == 150


def test_a_full_disk_ends_the_keeping_only() -> None:
    """Writing goes on without an error, and the keeper says that it is broken."""
    keeper = Keeper("/proc/nowhere/stdout.log")
    keeper.write(b"x")
    assert keeper.broken


def test_a_stream_that_is_not_kept_has_no_tail(tmp_path: Path) -> None:
    """No file, no bytes, no error."""
    assert tail_of(Stream("stdout", (1,), "", why_not="never"), str(tmp_path), 10) == b""


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 60))
def test_the_tail_is_the_end_of_what_was_written(
    tmp_path_factory: object, pieces: list[bytes], limit: int
) -> None:
    """Whatever the pieces, the tail is the last `limit` bytes, as long as one file holds them."""
    folder = tmp_path_factory.mktemp("logs")  # type: ignore[attr-defined]
    keeper = Keeper(str(folder / "output.log"), limit=60)
    for piece in pieces:
        keeper.write(piece)
    stream = Stream("output", (1, 2), "pipe")
    assert tail_of(stream, str(folder), limit) == b"".join(pieces)[-limit:]
