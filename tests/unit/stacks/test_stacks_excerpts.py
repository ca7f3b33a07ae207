"""The code at which ranks stand, taken while they are there: what, how much, and whose."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.stacks.excerpts import excerpts_of
from unhang.testing import sample_of

PROGRAM = "".join(f"line_{number} = {number}\n" for number in range(1, 30))


def looks(*places: tuple[Path, int], rank: int = 0) -> list[ProcessSample]:
    """A look at this very process at each place, with a library's frame innermost."""
    made = []
    for path, line in places:
        frames = (Frame("wait", "/usr/lib/python3.11/threading.py", 3), Frame("f", str(path), line))
        thread = ThreadStack("main", 1, frames, is_main=True)
        made.append(replace(sample_of(rank, "x.py:1 f"), pid=os.getpid(), threads=(thread,)))
    return made


def taken(*places: tuple[Path, int], rank: int = 0) -> list[dict[str, object]]:
    """The excerpts of looks at these places."""
    data = excerpts_of(looks(*places, rank=rank))
    return json.loads(data)["excerpts"] if data else []


def test_three_lines_around_the_users_own(tmp_path: Path) -> None:
    """Of the innermost frame that is the user's, each line once; fewer at the edges of a file."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    middle, first = taken((path, 20), (path, 20), (path, 1))
    assert middle["first"] == 17
    assert middle["lines"] == [f"line_{number} = {number}" for number in range(17, 24)]
    assert str(middle["digest"]).startswith("sha256:")
    assert (first["first"], len(first["lines"])) == (1, 4)  # type: ignore[arg-type]


def test_a_file_that_was_written_since_is_told(tmp_path: Path) -> None:
    """A process runs what it has read as it began."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    (new,) = taken((path, 5))
    os.utime(path, (1, 1))
    (old,) = taken((path, 5))
    assert (new["changed"], old["changed"]) == (True, False)


def test_secrets_and_long_lines_stay_behind(tmp_path: Path) -> None:
    """A case is made to be shown to others."""
    path = tmp_path / "train.py"
    path.write_text('api_key = "sk-' + "a1B2" * 10 + '"\n' + "x" * 5_000 + "\n")
    (found,) = taken((path, 1))
    text = json.dumps(found)
    assert "a1B2a1B2" not in text
    assert len(text) < 1_000


def test_nothing_but_the_code_of_ranks_is_read(tmp_path: Path) -> None:
    """No other kind of file, nothing that a reader would wait for, no line that is not there."""
    other, fifo, short = tmp_path / "secret.txt", tmp_path / "fifo.py", tmp_path / "short.py"
    other.write_text("secret\n")
    short.write_text("x = 1\n")
    os.mkfifo(fifo)
    assert taken((other, 1), (fifo, 1), (short, 9), (tmp_path / "gone.py", 1)) == []
    assert taken((short, 1), rank=-1) == []


def test_there_is_a_bound(tmp_path: Path) -> None:
    """However many lines ranks stand at."""
    path = tmp_path / "train.py"
    path.write_text("y = '" + "z" * 150 + "'\n" + PROGRAM * 40)
    data = excerpts_of(look for line in range(1, 900) for look in looks((path, line)))
    assert len(json.loads(data)["excerpts"]) <= 64
    assert len(data) < 128 << 10
