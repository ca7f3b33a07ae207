"""`unhang top`: what a frame says, in how much room, and when it ends."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import termios
import time
from dataclasses import replace
from pathlib import Path

import pytest

from unhang.cli.main import main
from unhang.context.recalled import Past
from unhang.isolated import python_command
from unhang.run.watching import now
from unhang.run.watching.now import GroupNow, JobNow, RankNow
from unhang.serve.frame import Screen, Trends, frame_of

PAST = Past(
    path=Path("/cases/one"), time_s=5.0, job_id="train", status="problem", culprits=(3,),
    summary="Rank 3 never called all_reduce #41 of default_pg (0), in which ranks 0-2 wait.",
)  # fmt: skip
GROUPS = (GroupNow("0", "default_pg", "gloo", (0, 1, 2, 3), 41, 2.0, (3,)),)


def rank(number: int, finished: int = 41, *, late: int = 0, alive: bool = True) -> RankNow:
    """A rank that waits, or, where it is late, for which others wait."""
    where = "" if late else "all_reduce at /home/user/project/train.py:31"
    return RankNow(
        number, 100 + number, alive, "ready", finished, 2.5, 0, not late, where, 12.25, 40, late
    )


def job(*ranks: RankNow, name: str = "train") -> JobNow:
    """A job of these ranks."""
    return JobNow(name, "node01", len(ranks), ranks, GROUPS, began_ns=1)


def looked(*finished: int) -> Trends:
    """Looks at which rank 0 had finished so many calls."""
    trends = Trends()
    for each in finished:
        trends.add([job(rank(0, each))])
    return trends


def drawn(
    *jobs: JobNow, trends: Trends | None = None, chosen: int = 0, **room: object
) -> list[str]:
    """A frame as plain lines."""
    window = Screen(**room)  # type: ignore[arg-type]
    lines = frame_of(jobs, chosen, trends or Trends(), {"train": PAST}, window)
    return [line.plain.rstrip() for line in lines]


FRAME = """\
job train on node01: 4 of 4 ranks here
PROBLEM  Rank 3 never called all_reduce #41 of default_pg (0), in which ranks
0-2 wait.
unhang diagnose /cases/one

 rank state      finished   per s trend      quiet   step last call
    0 in a call        41     2.5       █▄    12 s     40 all_reduce train.py:31
    1 in a call        41     2.5             12 s     40 all_reduce train.py:31
    2 in a call        41     2.5             12 s     40 all_reduce train.py:31
    3 away             40     2.5             12 s     40

default_pg: ranks 0-2 wait for rank 3
q ends"""


def test_a_frame_fits_80_by_24_and_says_what_the_live_page_says() -> None:
    """Verdict, ranks, rates with their trend, and who waits for whom."""
    ranks = (rank(0), rank(1), rank(2), rank(3, 40, late=100))
    assert drawn(job(*ranks), trends=looked(30, 38, 42), live=True) == FRAME.splitlines()


def test_of_many_ranks_those_that_say_most_are_shown() -> None:
    """Which ended, and for which others wait; the rest is counted, and nothing spills."""
    ranks = [rank(n, late=60 * (n == 900), alive=n != 500) for n in range(1024)]
    lines = drawn(job(*ranks), live=True)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "  500 ended" in text
    assert "  900 away" in text
    assert "more ranks: 1,0" in text
    assert "ranks 0-2 wait for rank 3" in text


def test_a_narrow_terminal_without_unicode_gets_ascii() -> None:
    """Nothing that it cannot show, and no line is longer than it."""
    lines = drawn(job(rank(0)), trends=looked(1, 2, 4), width=40, ascii=True)
    assert all(line.isascii() and len(line) <= 40 for line in lines)


def test_who_looks_late_knows_a_lower_bound() -> None:
    """No look saw a call end, and nothing else tells since when."""
    quiet = replace(rank(0), quiet_s=None, still_s=31.0)
    assert " >31 s " in "\n".join(drawn(job(quiet)))
    assert " >" not in "\n".join(drawn(job(replace(quiet, still_s=0.0))))


def test_another_job_can_be_chosen() -> None:
    """They follow each other, in a round."""
    jobs = (job(rank(0)), job(rank(0), name="other"))
    heads = [drawn(*jobs, chosen=at)[0] for at in range(3)]
    assert heads[0] == heads[2] == "job train on node01: 1 of 1 ranks here  (job 1 of 2)"
    assert heads[1].startswith("job other")
    assert "no verdict" in drawn(*jobs, chosen=1)[1]


def test_names_from_outside_draw_nothing() -> None:
    """A job may be called whatever somebody likes."""
    text = "".join(drawn(job(rank(0), name="\x1b[2J"), live=True))
    assert "\x1b" not in text


@pytest.mark.parametrize(("is_known", "code"), [(True, 1), (False, 0)])
def test_once_says_by_its_code_whether_a_job_here_hangs(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    is_known: bool,  # noqa: FBT001 - a parameter
    code: int,
) -> None:
    """With the verdict of a case that came while the job ran; without colour in a pipe."""
    monkeypatch.setattr(now.Looker, "look", lambda _: [job(rank(0))])
    case = tmp_path / "case"
    case.mkdir()
    whose = "train" if is_known else "other"
    (case / "report.json").write_text(
        f'{{"status": "problem", "summary": "It hangs.", "incident": {{"newest_ns": 9, '
        f'"job_id": "{whose}"}}}}'
    )
    assert main(["top", "--once", "--every", "0.01", str(tmp_path)]) == code
    out = capsys.readouterr().out
    assert ("PROBLEM  It hangs." in out) == is_known
    assert "\x1b" not in out


def test_without_a_rank_it_says_what_helps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not enough evidence, and the way to some."""
    monkeypatch.setattr(now.Looker, "look", lambda _: [])
    assert main(["top", "--once", str(tmp_path)]) == 3
    assert "unhang run" in capsys.readouterr().err
    assert main(["top", "--once", "--job", "other", str(tmp_path)]) == 3
    assert "no armed rank of job 'other' runs here" in capsys.readouterr().err


def test_a_job_that_ended_before_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its marks may lie there for days; one that ends meanwhile, or is asked for, is shown."""
    gone = job(rank(0, alive=False), name="old")
    looks = iter([[gone, job(rank(0))], [gone, job(rank(0, alive=False))], [gone], [gone]])
    monkeypatch.setattr(now.Looker, "look", lambda _: next(looks))
    assert main(["top", "--once", "--every", "0.01", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert ("job train" in out, "job old" in out) == (True, False)
    assert main(["top", "--once", "--every", "0.01", "--job", "old", str(tmp_path)]) == 0
    assert "job old" in capsys.readouterr().out


def test_a_terminal_is_as_it_was_after_q(tmp_path: Path) -> None:
    """In a real one: the frame comes, q ends it, and the screen and its keys come back."""
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)

    with subprocess.Popen(
        python_command("unhang", "top", "--every", "0.2", str(tmp_path)),
        stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
        env={**os.environ, "UNHANG_RUNTIME_DIR": str(tmp_path / "run"), "TERM": "xterm"},
    ) as process:  # fmt: skip
        said, deadline = b"", time.monotonic() + 60
        while b"q ends" not in said and time.monotonic() < deadline:
            if select.select([ours], [], [], 1.0)[0]:
                said += os.read(ours, 4096)
        os.write(ours, b"q")
        assert process.wait(60) == 0
    while select.select([ours], [], [], 0)[0]:
        said += os.read(ours, 4096)
    assert b"No armed rank runs here" in said
    assert said.index(b"\x1b[?1049h") < said.index(b"\x1b[?1049l")
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
