"""From messages of ranks over dumps to the verdict: no process, no torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.rehearse.talk import Ranks
from unhang.analysis import diagnose
from unhang.errors import ToolError
from unhang.ingest import load
from unhang.rehearse.endstate import write_case
from unhang.rehearse.proof import judged
from unhang.rehearse.server import RehearsalEnd
from unhang.report import Report


def verdict(ranks: Ranks, folder: Path, end: str = "") -> Report:
    """The report of ranks as they stand."""
    (folder / "stacks").mkdir(parents=True)
    (folder / "parts").mkdir()
    state = "over" if ranks.referee.is_over else "stuck"
    outcome = RehearsalEnd(ranks.referee, end or state, "2.13.0", 4.0)
    write_case(outcome, folder, ["torchrun", "train.py"])
    return judged(diagnose(load([str(folder)], world_size=ranks.size)), outcome, 0, folder)


def test_calls_that_all_meet_are_proved(tmp_path: Path) -> None:
    """Healthy, with how much was looked at."""
    ranks = Ranks(4)
    for rank in range(4):
        ranks.call(rank, 5, wait=False)
    for rank in range(4):
        ranks.end(rank)
    report = verdict(ranks, tmp_path / "case")
    assert report.status == "healthy"
    assert report.summary == (
        "Every call met: 4 calls of 4 ranks in 1 group, and every rank came to the end of its "
        "script."
    )


def test_no_call_at_all_is_no_proof(tmp_path: Path) -> None:
    """Nothing was matched."""
    ranks = Ranks(2)
    for rank in range(2):
        ranks.end(rank)
    assert verdict(ranks, tmp_path / "case").status == "insufficient"


def test_a_skipped_call_is_its_ranks(tmp_path: Path) -> None:
    """Rank 2 ends where its peers call once more; the program is to be mended, nothing awaited."""
    ranks = Ranks(4)
    for rank in range(4):
        ranks.call(rank, 5, wait=False)
    for rank in (0, 1, 3):
        ranks.call(rank, 8)
    ranks.end(2)
    report = verdict(ranks, tmp_path / "case")
    assert (report.status, report.culprits) == ("problem", (2,))
    assert report.causes[0].evidence[0] == "Rank 2 came to the end of the script, with exit code 0."
    assert report.decision is not None
    assert report.decision.action == "fix-code"
    assert ("train.py", 8) in {(site.file, site.line) for site in report.causes[0].sites}


def test_a_call_of_one_rank_alone_is_that_ranks(tmp_path: Path) -> None:
    """All others came to their end: it calls too much."""
    ranks = Ranks(4)
    for rank in range(4):
        ranks.call(rank, 5, wait=False)
    ranks.call(0, 9)
    for rank in (1, 2, 3):
        ranks.end(rank)
    report = verdict(ranks, tmp_path / "case")
    assert (report.status, report.culprits) == ("problem", (0,))
    assert {finding.confidence for finding in report.causes} == {"medium"}


def test_roots_that_differ_are_said(tmp_path: Path) -> None:
    """Torch's layout has no place for a root: it stands in the call's name."""
    ranks = Ranks(4)
    for rank in range(4):
        root = 1 if rank == 2 else 0
        ranks.call(rank, 7, kind="broadcast", op="broadcast", root=root, reduction="")
        if rank not in ranks.waiting():
            ranks.call(rank, 8)
    report = verdict(ranks, tmp_path / "case")
    assert (report.causes[0].slug, report.culprits) == ("op-mismatch", (2,))
    assert "broadcast(root 1)" in report.summary


def test_an_exchange_whose_pairs_differ_is_its_ranks(tmp_path: Path) -> None:
    """All members together give what they take, and two of them disagree."""
    ranks = Ranks(4)
    for rank in range(4):
        gives = {1: [4, 4, 6, 2]}.get(rank, [4] * 4)
        takes = {3: [4, 4, 4, 4]}.get(rank, [4] * 4)
        how = {"kind": "exchange", "op": "all_to_all", "gives": gives, "takes": takes}
        ranks.call(rank, 7, inputs=[[16]], outputs=[[16]], reduction="", **how)
    report = verdict(ranks, tmp_path / "case")
    assert report.causes[0].slug == "op-mismatch"
    assert "rank 1: all_to_all(gives 6 to rank 2)" in report.summary


def test_an_exchange_whose_totals_differ_shows_in_its_sizes(tmp_path: Path) -> None:
    """The analysis knows that fault, and whose it is: calls keep their names."""
    ranks = Ranks(4)
    for rank in range(4):
        gives = [5, 4, 4, 4] if rank == 2 else [4] * 4
        how = {"kind": "exchange", "op": "all_to_all", "gives": gives, "takes": [4] * 4}
        ranks.call(rank, 7, inputs=[[sum(gives)]], outputs=[[16]], reduction="", **how)
    report = verdict(ranks, tmp_path / "case")
    assert (report.causes[0].slug, report.culprits) == ("split-mismatch", (2,))


def test_a_send_that_is_left_over_is_found(tmp_path: Path) -> None:
    """Though every rank came to its end."""
    ranks = Ranks(2, "gloo")
    ranks.call(0, 4, wait=False, kind="send", op="send", reduction="", peer=1, outputs=[])
    for rank in range(2):
        ranks.call(rank, 6, wait=False)
        ranks.end(rank)
    report = verdict(ranks, tmp_path / "case")
    assert (report.status, report.causes[0].slug) == ("problem", "p2p-unmatched")


def test_the_time_limit_proves_nothing(tmp_path: Path) -> None:
    """Neither health nor a fault, where ranks still move."""
    ranks = Ranks(2)
    ranks.call(0, 5)
    report = verdict(ranks, tmp_path / "case", "late")
    assert report.status == "insufficient"
    assert "rank 1 still ran" in report.summary


def test_a_failure_of_our_own_part_blames_no_script(tmp_path: Path) -> None:
    """It is said as an error of the tool."""
    ranks = Ranks(2)
    import unhang.rehearse as package

    ours = str(Path(package.__file__).parent / "inside" / "group.py")
    frames = [["allreduce", ours, 3], ["main", "train.py", 4]]
    ranks.say(0, "end", code=1, error="NotImplementedError: x", frames=frames)
    ranks.end(1)
    with pytest.raises(ToolError, match="rank 0 asked for something"):
        verdict(ranks, tmp_path / "case")
