"""Logs of torchcomms' ClogHook as dumps: lines as its page and sources describe them."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang import diagnose, load
from unhang.case import AT_ISSUE, BY_TORCHCOMMS
from unhang.cli.main import main
from unhang.errors import NoEvidenceError

RANKS = 4
ALL = "C1|sig|all_reduce|in_count=64|out_count=64|dtype=f32|red_op=sum|async_op=f|comm=main"


def head(rank: int) -> list[str]:
    """The first lines of a rank: the job's communicator, and one of two ranks split off it."""
    pair = "0,1" if rank < 2 else "2,3"
    return [
        f"V|1|base_timestamp=179500000{rank}.125",
        f"new_comm|comm=main|rank={rank}|world_size={RANKS}",
        f"split|parent=main|child=tp{rank // 2}|ranks={pair}",
        ALL,
        f"C2|sig|all_gather_single|in_count=8|out_count=16|dtype=f16|async_op=t|comm=tp{rank // 2}",
    ]


def step(at: int, signature: str, *, ends: bool = True, over: bool = True) -> list[str]:
    """One call."""
    issued = [f"{signature}|Q|work_id={at}|+{at}.000"]
    started = [f"{signature}|S|+{at}.001"] if ends else []
    return [*issued, *started, *([f"{signature}|E|+{at}.002"] if ends and over else [])]


def write(folder: Path, *, ends: bool = True, stands: int = 2) -> Path:
    """Twelve steps of two calls; in the last one rank `stands` makes only the first."""
    for rank in range(RANKS):
        lines = head(rank)
        for at in range(1, 13):
            lines += step(2 * at, "C2", ends=ends)
            if at < 12 or rank != stands:
                lines += step(2 * at + 1, "C1", ends=ends, over=at < 12)
        (folder / f"clog_{rank}.log").write_text("\n".join([*lines, "C1|Q|work"]))
    return folder


@pytest.mark.parametrize("ends", [True, False])
def test_the_rank_that_did_not_call_is_named(tmp_path: Path, *, ends: bool) -> None:
    """With and without events of the device; low, for a log of a moving job looks the same."""
    case = load(write(tmp_path, ends=ends))
    assert [dump.rank for dump in case.dumps] == [0, 1, 2, 3]
    assert {dump.recorder for dump in case.dumps} == {BY_TORCHCOMMS if ends else AT_ISSUE}
    report = diagnose(case)
    (cause,) = report.causes
    assert (cause.code, cause.culprits, cause.seq, cause.confidence) == ("UH101", (2,), 12, "low")
    assert "how long all_reduce #12 has been open" in " ".join(cause.confidence_reasons)


def test_members_of_splits_are_ranks_of_the_job(tmp_path: Path) -> None:
    """`split` names them by the ranks of the communicator above."""
    groups = {group.name: group.members for group in load(write(tmp_path)).groups}
    assert groups == {"main": (0, 1, 2, 3), "tp0": (0, 1), "tp1": (2, 3)}


def test_all_calls_that_have_ended_are_healthy(tmp_path: Path) -> None:
    """A job that ended in order."""
    for rank in range(RANKS):
        lines = [*head(rank), *step(1, "C1"), *step(2, "C2"), "C1|W|+3.000"]
        (tmp_path / f"clog_{rank}.log").write_text("\n".join([*lines, ""]))
    assert diagnose(load(tmp_path)).status == "healthy"


def test_peers_of_sends_and_receives_are_read(tmp_path: Path) -> None:
    """Both receive first: a circle, whatever the age."""
    for rank in range(2):
        lines = [
            f"V|1|base_timestamp=1795000000.{rank}00",
            f"new_comm|comm=main|rank={rank}|world_size=2",
            f"C1|sig|recv|in_count=0|out_count=8|dtype=f32|peer={1 - rank}|async_op=f|comm=main",
            "C1|Q|work_id=1|+1.000",
            "C1|S|+1.001",
            "C9|E|+1.001",
        ]
        (tmp_path / f"{rank}.txt").write_text("\n".join([*lines, ""]))
    (cause,) = diagnose(load(tmp_path)).causes
    assert cause.code == "UH303"


def test_replays_of_graphs_leave_no_numbers(tmp_path: Path) -> None:
    """They come anywhere between the calls that are counted: the case says so."""
    write(tmp_path)
    with (tmp_path / "clog_0.log").open("a") as file:
        file.write("_id=99|+9.000\nG7|C1|Q|work_id=3|+9.000\nG7|R1|C1|E|+9.100\n")
    case = load(tmp_path)
    main = next(n for n, group in enumerate(case.groups) if group.name == "main")
    rows = (case.calls.rank == 0) & (case.calls.group == main)
    assert set(case.calls.seq[rows].tolist()) == {-1}
    assert any("replays of graphs" in note.text for note in case.notes)


def test_lines_of_no_known_form_cost_nothing_else(tmp_path: Path) -> None:
    """Numbers without end, splits of themselves, events of what was never issued."""
    write(tmp_path)
    more = [
        "new_comm|comm=big|rank=1|world_size=99999999999",
        "split|parent=main|child=main|ranks=0,1",
        "split|parent=tp0|child=x|ranks=0,7",
        "C77|Q|work_id=1|+1.0",
        "C1|E|+1.0",
        "C5|sig",
        "G",
        "later|form",
        "WARN|leaked work_id=4",
    ]
    text = (tmp_path / "clog_0.log").read_text().rpartition("\n")[0]
    (tmp_path / "clog_0.log").write_text("\n".join([text, *more, ""]))
    case = load(tmp_path)
    assert {group.name for group in case.groups} == {"main", "tp0", "tp1"}
    assert any("2 lines of no known form" in note.text for note in case.notes)


def test_a_log_without_a_call_is_no_dump(tmp_path: Path) -> None:
    """Its head alone proves no rank."""
    (tmp_path / "clog_0.log").write_text("\n".join([*head(0), ""]))
    with pytest.raises(NoEvidenceError):
        load(tmp_path)


def test_other_commands_know_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`unhang FILE` judges it, and `paste` names the command that does."""
    place = str(write(tmp_path) / "clog_0.log")
    assert main(["paste", place]) == 3
    assert f"hint: unhang diagnose {place}" in capsys.readouterr().err
    assert main([place]) == 3
    assert "rank 0 waits" in capsys.readouterr().out
