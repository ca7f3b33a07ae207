"""Exchanges that one rank, or few, made unlike all others; and the line that left a script."""

from __future__ import annotations

from pathlib import Path

from tests.unit.rehearse.talk import Ranks, verdict


def test_an_exchange_that_one_rank_shortens_is_its_fault(tmp_path: Path) -> None:
    """Its totals do not agree, and every pair that does not fit has it."""
    ranks = Ranks(4)
    for rank in range(4):
        gives = [1, 1, 1, 1] if rank == 1 else [2, 2, 2, 2]
        how = {"kind": "exchange", "op": "all_to_all", "gives": gives, "takes": [2] * 4}
        ranks.call(rank, 6, reduction="", inputs=[[sum(gives)]], outputs=[[8]], **how)
    report = verdict(ranks, tmp_path / "case")
    assert (report.causes[0].slug, report.culprits) == ("split-mismatch", (1,))


def test_one_operation_at_different_lines_is_no_call_of_two_sizes(tmp_path: Path) -> None:
    """Rank 2 has left the loop: it adds up something else."""
    ranks = Ranks(4)
    for rank in range(4):
        ranks.call(rank, 9 if rank == 2 else 5, inputs=[[1 if rank == 2 else 8]])
    report = verdict(ranks, tmp_path / "case")
    assert (report.causes[0].slug, report.culprits) == ("op-mismatch", (2,))
    assert report.summary.endswith("ranks 0-1,3 at train.py:5; rank 2 at train.py:9.")


def test_one_line_with_other_sizes_is_a_mismatch_of_sizes(tmp_path: Path) -> None:
    """It is the same call."""
    ranks = Ranks(4)
    for rank in range(4):
        ranks.call(rank, 5, inputs=[[1 if rank == 2 else 8]])
    report = verdict(ranks, tmp_path / "case")
    assert (report.causes[0].slug, report.culprits) == ("shape-mismatch", (2,))


SEND = {"kind": "send", "op": "send", "reduction": "", "outputs": []}
RECV = {"kind": "recv", "op": "recv", "reduction": "", "inputs": []}


def pass_on(ranks: Ranks, times: int) -> None:
    """Every rank sends to the next one, which receives."""
    for _ in range(times):
        for rank in range(ranks.size):
            if rank:
                ranks.call(rank, 3, **RECV, peer=rank - 1)
            if rank < ranks.size - 1:
                ranks.call(rank, 4, wait=False, **SEND, peer=rank + 1)


def test_the_only_rank_that_sends_once_more_is_named(tmp_path: Path) -> None:
    """Its peer has received as often as all others; where it went on to is no fault."""
    ranks = Ranks(4)
    pass_on(ranks, 3)
    ranks.call(0, 4, **SEND, peer=1)
    ranks.call(1, 8, **SEND, peer=0)
    for rank in (2, 3):
        ranks.call(rank, 9)
    report = verdict(ranks, tmp_path / "case")
    assert (report.causes[0].slug, report.culprits) == ("p2p-unmatched", (0,))


def test_of_ranks_that_send_unlike_each_other_none_is_odd_by_its_count(tmp_path: Path) -> None:
    """As stages of a pipeline do while it fills."""
    ranks = Ranks(4)
    pass_on(ranks, 3)
    ranks.call(2, 4, wait=False, **SEND, peer=3)
    ranks.call(3, 3, **RECV, peer=2)
    ranks.call(0, 4, **SEND, peer=1)
    ranks.call(1, 8, **SEND, peer=0)
    report = verdict(ranks, tmp_path / "case")
    assert report.culprits != (0,)


def test_the_few_that_left_exchanges_are_named(tmp_path: Path) -> None:
    """The last of four, for which the other three wait, one for the next."""
    ranks = Ranks(4)
    pass_on(ranks, 1)
    for rank in range(3):
        ranks.call(rank, 4, **SEND, peer=rank + 1)
    ranks.call(3, 9)
    report = verdict(ranks, tmp_path / "case")
    assert (report.causes[0].slug, report.culprits) == ("p2p-unmatched", (3,))


def test_the_line_that_left_the_script_is_told(tmp_path: Path) -> None:
    """Of a rank that called `sys.exit`: it is where the way of the others was left."""
    ranks = Ranks(3)
    for rank in range(3):
        ranks.call(rank, 5, wait=False)
    for rank in (0, 2):
        ranks.call(rank, 5)
    ranks.end(1, line=7)
    report = verdict(ranks, tmp_path / "case")
    assert report.culprits == (1,)
    assert 7 in {site.line for site in report.causes[0].sites}
    assert report.causes[0].evidence[0].startswith("Rank 1 left the script by sys.exit at train.py")
