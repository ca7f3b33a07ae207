"""From a case's dumps to the calls and ranks that its verdict needs, without torch or processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unhang.errors import InputError, NoEvidenceError
from unhang.ingest import load
from unhang.model import Frame, Group
from unhang.reproduce.playing import judgement_of_played
from unhang.reproduce.reproducer import reproducer_of, text_of
from unhang.reproduce.schedule import (
    Move,
    Programs,
    held_up,
    of_few_elements,
    of_one_size,
    programs_of,
    with_ranks,
)
from unhang.reproduce.scripting import script_of
from unhang.reproduce.shrinking import shrunk
from unhang.testing import FakeJob

EXAMPLES = Path(__file__).parents[3] / "examples"


def move(seq: int, line: int = 7, **how: object) -> Move:
    """An all-reduce of the whole group."""
    plain = Move(0, "all_reduce", ((4,),), ((4,),), "Float", ended=True, unit=(0, seq))
    return replace(plain, frame=Frame("main", "/a/train.py", line), **how)


def programs(*moves: list[Move]) -> Programs:
    """One program a rank."""
    ranks = tuple(range(len(moves)))
    group = Group("0", "default_pg", ranks, backend="nccl")
    return Programs((group,), {n: tuple(each) for n, each in enumerate(moves)}, ranks)


def calls_of(text: str) -> list[str]:
    """The lines between the set-up and the end."""
    lines = text.splitlines()
    first = lines.index("rank = dist.get_rank()") + 1
    last = next(n for n, line in enumerate(lines) if line.startswith("print("))
    return [line for line in lines[first:last] if line]


@pytest.mark.parametrize(
    ("example", "slug", "culprits", "calls", "ranks"),
    [
        ("never-joined", "never-joined", (2,), 1, 2),
        ("wrapped-buffer", "never-joined", (3,), 1, 2),
        ("skipped-call", "skipped-call", (1,), 5, 3),
        ("crossed-order", "wait-cycle", (), 4, 4),
        ("wrong-op", "op-mismatch", (2,), 3, 3),
        ("wrong-dtype", "dtype-mismatch", (2,), 3, 3),
        ("wrong-shape-abort", "shape-mismatch", (1,), 3, 3),
    ],
)
def test_a_case_becomes_small(
    example: str, slug: str, culprits: tuple[int, ...], calls: int, ranks: int
) -> None:
    """With the verdict of the case: its kind, and its ranks of the job."""
    found = reproducer_of(load([str(EXAMPLES / example / "dumps")]))
    assert (found.wanted.slug, found.wanted.culprits) == (slug, culprits)
    assert (found.programs.size, len(found.programs.names)) == (calls, ranks)
    assert judgement_of_played(found.programs) == found.wanted


def test_a_script_says_what_it_is_and_calls_on_shared_lines() -> None:
    """The analysis compares lines: those that ranks share in the job are one line here too."""
    found = reproducer_of(load([str(EXAMPLES / "skipped-call" / "dumps")]))
    text = text_of(found, "gloo", "repro.py")
    compile(text, "repro.py", "exec")
    assert text.startswith("# UH102 skipped-call: Rank 1 did not make all_reduce #6 of default_pg")
    assert "# Ranks here are ranks of the job: 0 is 1, 1 is 2, 2 is 3." in text
    assert "# Hangs: torchrun --nproc-per-node 3 repro.py" in text
    assert calls_of(text) == [
        "if rank in (1, 2):",
        "    dist.all_reduce(torch.ones(8))  # skipped_call.py:18",
        "dist.all_reduce(torch.ones(8))  # skipped_call.py:21",
    ]


def test_sends_that_ended_are_waited_for_where_the_verdict_stays() -> None:
    """On Gloo, one that no line waits for would look open for ever."""
    found = reproducer_of(load([str(EXAMPLES / "p2p-cycle-armed" / "dumps")]))
    assert calls_of(text_of(found, "gloo", "repro.py")) == [
        "if rank == 0:",
        "    dist.send(torch.ones(8), group_dst=1)  # p2p_cycle.py:16",
        "if rank == 1:",
        "    dist.recv(torch.ones(8), group_src=0)  # p2p_cycle.py:17",
        "    dist.recv(torch.ones(8), group_src=0)  # p2p_cycle.py:17",
    ]


@pytest.mark.parametrize("example", ["skipped-call", "wrong-shape"])
def test_sizes_stay_only_where_the_verdict_is_about_them(example: str) -> None:
    """A script with the tensors of a large model would need its memory."""
    found = reproducer_of(load([str(EXAMPLES / example / "dumps")]))
    sizes = {m.inputs for made in found.programs.moves.values() for m in made}
    assert (len(sizes) == 1) == (example == "skipped-call")


def test_small_tensors_have_a_part_for_each_member() -> None:
    """Where the call wants one, in a list or in one tensor; what is empty stays empty."""
    gather = move(1, op="_all_gather_base", inputs=((4096,),), outputs=((8192,),))
    barrier = move(2, op="barrier", inputs=(), outputs=())
    small = of_one_size(programs([gather, barrier], [gather, barrier])).moves[0]
    assert [(each.inputs, each.outputs) for each in small] == [(((8,),), ((16,),)), ((), ())]


def test_sizes_that_differ_stay_so_and_become_small() -> None:
    """What is alike stays alike, in one call as in the tensors of one rank."""
    large, larger = ((5_000, 5_000),), ((5_001, 5_000),)
    sides = [[move(1, inputs=size, outputs=size)] for size in (large, larger, large)]
    small = of_few_elements(programs(*sides)).moves
    assert [small[rank][0].inputs for rank in range(3)] == [((8,),), ((16,),), ((8,),)]


def test_a_list_that_nccl_recorded_as_one_tensor_is_a_list_again() -> None:
    """Gloo refuses a list with too few tensors before it waits for any rank."""
    gather = move(1, op="all_gather", inputs=((8,),), outputs=((24,),))
    lines = calls_of(script_of(programs([gather], [gather], [gather]), []))
    assert lines[0].count("torch.ones(8)") == 4


@pytest.mark.parametrize("example", ["healthy", "late-rank", "dead-rank"])
def test_what_calls_do_not_show_has_no_reproducer(example: str) -> None:
    """A sentence says why."""
    with pytest.raises(NoEvidenceError):
        reproducer_of(load([str(EXAMPLES / example / "dumps")]))


# ------------------------------------------------------------------------------------- shrinking


def keeps(*units: int) -> Callable[[Programs], bool]:
    """It holds as long as some units are there, on rank 1."""
    return lambda some: set(units) <= {m.unit[1] for m in some.moves[some.names.index(1)]}


def test_only_the_units_that_matter_stay() -> None:
    """Of forty, two."""
    whole = programs(*[[move(seq) for seq in range(40)] for _ in range(3)])
    small = shrunk(whole, keeps(11, 30), spare=[])
    assert {m.unit[1] for moves in small.moves.values() for m in moves} == {11, 30}
    assert small.size == 6


def test_ranks_that_may_go_do() -> None:
    """The others keep their numbers in the job."""
    whole = programs(*[[move(1)] for _ in range(8)])
    small = shrunk(whole, lambda some: {1, 6} <= set(some.names), spare=[0, 2, 3, 4, 5, 7])
    assert small.names == (1, 6)
    assert small.groups[0].members == (0, 1)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "wanted"),
    [
        ("_all_gather_base", ((5, 2),), ((20, 2),), (((5, 2),), ((10, 2),))),
        (
            "reduce_scatter_tensor_coalesced",
            ((8,), (16,)),
            ((2,), (4,)),
            (((4,), (8,)), ((2,), (4,))),
        ),
        ("all_gather", ((3,),), ((3,),) * 4, (((3,),), ((3,),) * 2)),
        ("all_to_all", ((8, 3),), ((8, 3),), (((4, 3),), ((4, 3),))),
        ("all_reduce", ((8,),), ((8,),), (((8,),), ((8,),))),
    ],
)
def test_sizes_fit_the_ranks_that_are_left(
    op: str, inputs: tuple[Any, ...], outputs: tuple[Any, ...], wanted: tuple[Any, ...]
) -> None:
    """Torch refuses a whole that is not as many parts as the group has members."""
    one = replace(move(1, op=op), inputs=inputs, outputs=outputs)
    small = with_ranks(programs([one], [one], [one], [one]), [1, 3])
    assert (small.moves[0][0].inputs, small.moves[0][0].outputs) == wanted


def test_peers_of_a_rank_that_goes_lose_their_calls_to_it() -> None:
    """And peers are ranks of the smaller group."""
    sends = [move(1, op="send", peer=2, unit=(0, 0, 2, 1)), move(2, op="send", peer=1)]
    whole = programs(sends, [move(2, op="recv", peer=0)], [move(1, op="recv", peer=0)])
    small = shrunk(whole, lambda some: {0, 2} <= set(some.names), spare=[1])
    assert [m.peer for m in small.moves[0]] == [1]


def test_shrinking_ends_though_nothing_gets_smaller() -> None:
    """What is small so far stays."""
    tries = []
    whole = programs([move(seq) for seq in range(2000)], [move(1)])

    def holds(some: Programs) -> bool:
        tries.append(1)
        return some.size == whole.size

    assert shrunk(whole, holds, spare=[0, 1]).size == whole.size
    assert len(tries) <= 400


# --------------------------------------------------------------------------------------- writing


def test_what_repeats_is_a_loop() -> None:
    """With the conditions of its body inside."""
    both, one = move(1, 7), move(1, 9, dtype="Long")
    text = script_of(programs([both, one] * 5, [both] * 5), [])
    assert calls_of(text) == [
        "for _ in range(5):",
        "    dist.all_reduce(torch.ones(4))  # train.py:7",
        "    if rank == 0:",
        "        dist.all_reduce(torch.ones(4, dtype=torch.int64))  # train.py:9",
    ]


def test_calls_that_are_not_waited_for_are_kept() -> None:
    """As asynchronous ones."""
    text = script_of(
        programs([move(1, waits=False)], [move(1, op="send", peer=0, waits=False)]), []
    )
    assert "works.append(dist.all_reduce(torch.ones(4), async_op=True))" in text
    assert "works.append(dist.isend(torch.ones(4), group_dst=0))" in text


USUAL = (
    "broadcast", "reduce", "all_gather", "_all_gather_base", "_reduce_scatter_base", "gather",
    "reduce_scatter", "scatter", "all_to_all", "barrier", "all_reduce_barrier", "recv",
    "allreduce_coalesced", "all_gather_into_tensor_coalesced",
)  # fmt: skip


@pytest.mark.parametrize("op", USUAL)
def test_every_usual_call_is_python(op: str) -> None:
    """That compiles."""
    compile(script_of(programs([move(1, op=op, peer=0, root=0)], []), ["x"]), "repro.py", "exec")


def test_a_call_that_no_dump_describes_is_refused() -> None:
    """By its name."""
    with pytest.raises(InputError, match="cannot call permute"):
        script_of(programs([move(1, op="permute")], []), [])


def test_a_header_cannot_leave_its_comment() -> None:
    """A name from a dump may hold anything."""
    text = script_of(programs([move(1)], [move(1)]), ["evil\nimport os"])
    assert "\nimport os" not in text


def exchange(op: str, peer: int, number: int, rank: int, **how: object) -> Move:
    """One side of what passes between two ranks."""
    lane = (rank, peer) if op == "send" else (peer, rank)
    return move(0, 5, op=op, peer=peer, unit=(0, *lane, number), **{"waits": False, **how})


def test_exchanges_hold_up_the_collective_behind_them() -> None:
    """On a GPU's stream: rank 1 left its receive out, and all ranks came to the all-reduce."""
    behind = {"ended": False, "waits": True}
    sends = [exchange("send", 1, n, 0, ended=n == 1) for n in (1, 2)]
    whole = programs(
        [*sends, move(1, 8, **behind)],
        [exchange("recv", 0, 1, 1), move(1, 8, **behind)],
    )
    assert [move.waits for move in whole.moves[0]] == [False, False, True]
    behind_exchange, in_order = held_up(whole)
    assert [move.waits for move in behind_exchange.moves[0]] == [False, True, True]
    assert behind_exchange.moves[1] == in_order.moves[1] == whole.moves[1]
    assert judgement_of_played(whole) != judgement_of_played(behind_exchange) is not None


def test_a_gather_has_the_roots_that_have_lists() -> None:
    """NCCL records one empty tensor where there is no list; ranks 0 and 1 both have one."""
    job = FakeJob(3)
    job.call(range(3))
    job.call([0, 1], "gather", sizes=((8,),), out=((8,),) * 3, finished=False)
    job.call([2], "gather", sizes=((8,),), out=((0,),), finished=False)
    moves = programs_of(job.case()).moves
    assert [made[-1].root for made in moves.values()] == [0, 1, 0]
    assert [len(made[-1].outputs) for made in moves.values()] == [3, 3, 0]
