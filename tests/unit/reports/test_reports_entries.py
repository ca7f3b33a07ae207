from __future__ import annotations

from dataclasses import replace

from case_samples import ALL_REDUCE, STACK, WORLD, stuck_case

from unhang.case import Case, Dump
from unhang.casebuilder import CallRow, CaseBuilder
from unhang.model import OpName, Signature
from unhang.reports.call_table import (
    Block,
    Pick,
    call_records,
    collect_blocks,
    pick_rows,
    stack_lines,
)
from unhang.testing import FakeJob, sample_of


def blocks(pick: Pick | None = None) -> list[Block]:
    """Blocks of the small case."""
    return list(collect_blocks(stuck_case(), pick or Pick()))


def test_ranks_with_the_same_calls_share_a_column() -> None:
    """Ranks 0 and 1 look the same; rank 2 lacks the last call, and rank 3 has no dump."""
    world = blocks()[0]
    assert world.columns == ((0, 1), (2,))
    assert [(row.seq, *row.cells) for row in world.rows] == [
        (1, "all_reduce", "all_reduce"),
        (2, "all_reduce", "all_reduce"),
        (3, "all_reduce *", "-"),
    ]


def test_sends_and_receives_have_a_block_of_their_own() -> None:
    """They are numbered apart; calls under one number share a cell."""
    pair = blocks()[1]
    assert (pair.p2p, pair.columns) == (True, ((1,),))
    assert pair.rows[0].cells == ("send 0->1 * + coalesced",)


def test_picking_by_rank_group_and_number() -> None:
    """Each choice narrows the rows, and what is left out is counted."""
    some = blocks(Pick(frozenset({2}), "default_pg", 1))
    assert [(b.columns, [r.seq for r in b.rows], b.left_out) for b in some] == [(((2,),), [2], 1)]
    case = stuck_case()
    assert len(pick_rows(case, Pick(frozenset({0}), "", 2))) == 2
    assert len(pick_rows(case, Pick(group="pp"))) == 2
    assert len(pick_rows(case, Pick(group="nobody", last=3))) == 0


def rooted(*roots: tuple[tuple[int, int], ...]) -> Case:
    """Ranks in a broadcast, their 6th call, whose heartbeats have these roots; rank 2 is out."""
    job = FakeJob(3)
    job.call(range(3), "broadcast", finished=[2])
    job.call([2], finished=False)
    samples = [
        sample_of(
            rank, "train.py:9 load", sample=n, last_call=6 + (rank == 2), roots=told,
            last_op="all_reduce" if rank == 2 else "broadcast", last_site="train.py:9",
        )
        for rank, told in enumerate(roots) for n in (0, 1)
    ]  # fmt: skip
    return job.case(samples=samples)


def test_roots_are_shown_where_they_differ() -> None:
    """Recorders keep none; of who has left the call, too, and only of that call."""
    apart = rooted(((6, 0),), ((6, 1),), ((6, 0),))
    cells = next(collect_blocks(apart, Pick())).rows[0].cells
    assert cells == ("broadcast root 0 *", "broadcast root 1 *", "broadcast root 0")
    for agreed in (
        rooted(((6, 0),), ((6, 0),), ((6, 0),)),
        rooted(((6, 0),), ((5, 1),), ((4, 2),)),  # of other calls
    ):
        assert "root" not in str(list(collect_blocks(agreed, Pick())))


def test_shapes_are_shown_where_they_differ() -> None:
    """Only under the number at which ranks disagree."""
    builder = CaseBuilder()
    for rank in range(2):
        rows = [
            CallRow(
                WORLD, ALL_REDUCE, seq=1, state=2, signature=Signature(((4,),), (), ("Float",))
            ),
            CallRow(
                WORLD,
                ALL_REDUCE,
                seq=2,
                state=2,
                signature=Signature(((4, rank),), (), ("Float",)),
            ),
        ]
        builder.add_dump(Dump(0, rank, str(rank)), rows)
    (block,) = collect_blocks(builder.build(), Pick())
    assert [row.cells for row in block.rows] == [
        ("all_reduce", "all_reduce"),
        ("all_reduce [4x0] Float", "all_reduce [4x1] Float"),
    ]


def test_before_a_window_is_not_absent() -> None:
    """A ring that has wrapped says nothing of earlier calls, an active-only dump of none."""
    builder = CaseBuilder()
    builder.add_dump(Dump(0, 0, "0"), [CallRow(WORLD, ALL_REDUCE, seq=s, state=2) for s in (1, 2)])
    builder.add_dump(Dump(0, 1, "1"), [CallRow(WORLD, ALL_REDUCE, seq=2, state=2)])
    builder.add_dump(Dump(0, 2, "2"), [CallRow(WORLD, ALL_REDUCE, seq=1, state=2)])
    builder.add_dump(
        Dump(0, 3, "3", active_only=True), [CallRow(WORLD, ALL_REDUCE, seq=1, state=2)]
    )
    (block,) = collect_blocks(builder.build(), Pick())
    by_rank = {
        ranks[0]: column
        for ranks, column in zip(
            block.columns, zip(*(r.cells for r in block.rows), strict=True), strict=True
        )
    }
    assert by_rank == {
        0: ("all_reduce", "all_reduce"),
        1: ("", "all_reduce"),
        2: ("all_reduce", "-"),
        3: ("all_reduce", ""),
    }


def test_stacks_are_numbered_and_listed() -> None:
    """Cells carry a number, the list below says what it is."""
    case = stuck_case()
    pick = Pick(group="default_pg", last=1, stacks=True)
    (block,) = collect_blocks(case, pick)
    assert block.rows[0].cells[0] == "all_reduce s0 *"
    assert list(stack_lines(case, pick_rows(case, pick))) == [
        "s0    all_reduce at torch/distributed/c10d.py:9",
        "      train_step at home/user/train.py:88",
        "      main at home/user/train.py:101",
    ]


def test_records_are_complete() -> None:
    """What programs get holds every column; unknown numbers are None, never -1."""
    case = stuck_case()
    (record,) = call_records(case, pick_rows(case, Pick(frozenset({0}), "0", 1)), stacks=True)
    assert record["seq"] == 3
    assert record["state"] == "scheduled"
    assert record["completed_ns"] is None
    assert [frame["line"] for frame in record["stack"]] == [f.line for f in STACK]


def test_cells_are_printable() -> None:
    """A name from a dump cannot command the terminal."""
    case = stuck_case()
    names = (replace(case.names[0], op="\x1b[2J"), *case.names[1:])
    (block, _) = collect_blocks(replace(case, names=names), Pick())
    assert block.rows[0].cells[0] == "\\x1b[2J"
    assert OpName("", "", "").src == -1
