from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from case_samples import ALL_REDUCE, MS, START_NS, WORLD, stuck_case
from hypothesis import given
from hypothesis import strategies as st
from report_samples import SAMPLES, hostile

from unhang.case import Case, Dump
from unhang.casebuilder import CallRow, CaseBuilder
from unhang.model import Frame, Group, Note, OpName, Signature
from unhang.tables import TABLES, VIEWS, collectives, connect, open_parquet, write_parquet
from unhang.tables.collectives import _rank
from unhang.tables.schema import Column, Table, read_schema

CONNECTION = connect(stuck_case(), SAMPLES["never-joined"]())


def rows(sql: str) -> list[tuple[object, ...]]:
    """Ask the tables of the small case."""
    return CONNECTION.execute(sql).fetchall()


@pytest.mark.parametrize("table", [*TABLES, *VIEWS], ids=lambda t: t.name)
def test_columns_are_as_documented(table: Table) -> None:
    """Names, order and types of every table and view are what the schema says."""
    described = [(name, kind) for name, kind, *_ in rows(f"DESCRIBE {table.name}")]
    assert described == [(column.name, column.type) for column in table.columns]


def test_the_schema_is_read_line_by_line() -> None:
    """Names alone are those of the first part; a long line goes on below."""
    first = "rank INTEGER -1: Its\n    rank.\nop VARCHAR: Which."
    text = f"# x\n\n{first}\n\nview v: All.\nrank, op\nn BIGINT[][]: A: b."
    rank, op = Column("rank", "INTEGER", "Its rank.", -1), Column("op", "VARCHAR", "Which.")
    table = Table("v", "All.", (rank, op, Column("n", "BIGINT[][]", "A: b.")))
    assert list(read_schema(text)) == [("view", table)]


@pytest.mark.parametrize("last", ["view v All.", "view v: All.\nop", "view v: All.\nop text: no."])
def test_a_line_of_the_schema_that_is_none_is_refused(last: str) -> None:
    """A column that was meant and not read would be missed by nobody."""
    with pytest.raises(ValueError, match="no "):
        list(read_schema(f"# x\n\nrank INTEGER: Its rank.\n\n{last}"))


@pytest.mark.parametrize("table", [*TABLES, *VIEWS], ids=lambda t: t.name)
def test_the_sample_has_something_in_every_table(table: Table) -> None:
    """A table that nobody fills would never be missed."""
    assert CONNECTION.table(table.name).fetchall()


def test_a_call_keeps_what_was_recorded() -> None:
    """Every column of one call, with NULL for what is not known."""
    assert rows("SELECT * FROM calls WHERE call_id = 2") == [
        (2, 0, 0, 0, 2, "nccl:all_reduce", "all_reduce", "nccl", None, None, 3, 0, 3, 2, False,
         "scheduled", False, "torch", 0, 0, "python", START_NS + 3000 * MS, None, None, None,
         600_000),
    ]  # fmt: skip


def test_signatures_are_lists() -> None:
    """Shapes and dtypes can be asked as lists, and their sizes as numbers."""
    query = "SELECT input_sizes, input_dtypes, input_numel FROM signatures WHERE signature_id = 0"
    assert rows(query) == [([[4, 4], [2]], ["Float", "Half"], 18)]


def test_stacks_of_calls_samples_and_main_threads_are_shared() -> None:
    """One table of stacks; a stack's site is its innermost frame outside torch."""
    assert rows("SELECT * FROM stacks ORDER BY stack_id") == [(0, 3, 1), (1, 1, 2)]
    assert rows("SELECT depth, function FROM stack_frames JOIN frames USING (frame_id) "
                "WHERE stack_id = 0 ORDER BY depth") == [
        (0, "all_reduce"), (1, "train_step"), (2, "main"),
    ]  # fmt: skip
    assert rows("SELECT main_stack_id FROM dumps WHERE rank = 2") == [(1,)]
    assert rows("SELECT stack_id, holds_gil, active FROM threads") == [(1, True, None)]


def test_collectives_count_who_is_there() -> None:
    """Joined, absent, finished and the last to arrive, per sequence number."""
    query = "SELECT seq, op, ops, size, joined, absent, finished, last_rank FROM collectives"
    assert rows(query + " WHERE group_id = 0 ORDER BY seq") == [
        (1, "all_reduce", 1, 4, 3, 1, 3, 2),
        (2, "all_reduce", 1, 4, 3, 1, 3, 2),
        (3, "all_reduce", 1, 4, 2, 2, 0, 1),
    ]


def test_stuck_calls_name_the_absent() -> None:
    """The calls in flight, and nothing of a P2P batch whose end is complete."""
    query = "SELECT rank, seq, site, joined, absent_ranks FROM stuck_calls"
    site = "/home/user/train.py:88 train_step"
    assert rows(query) == [(0, 3, site, 2, [2, 3]), (1, 3, site, 2, [2, 3])]


def test_calls_flat_turns_peers_into_global_ranks() -> None:
    """Group rank 1 of the pair is rank 3; the batch's member counts as finished."""
    assert rows("SELECT rank, peer, finished FROM calls_flat WHERE op = 'send'") == [(1, 3, True)]


def test_calls_flat_has_each_call_once() -> None:
    """No join of the view multiplies or loses calls."""
    assert rows("SELECT count(*), count(DISTINCT call_id) FROM calls_flat") == [(10, 10)]


def test_arrivals_measure_lateness() -> None:
    """Rank 2 is 2 ms behind the first, third and last."""
    query = "SELECT late_ms, place, is_last FROM arrivals WHERE seq = 2 AND rank = 2"
    assert rows(query) == [(2.0, 3, True)]


def test_counters_that_belong_to_no_known_group_stay_without_one() -> None:
    """A local id that could not be joined has no group."""
    assert rows("SELECT DISTINCT pg_id, group_id, joined_by FROM group_status ORDER BY pg_id") == [
        (0, 0, "entries"),
        (7, None, ""),
    ]


def test_ranks_without_dump_are_there() -> None:
    """One row a rank, also for the one whose file says nothing."""
    tables = connect(stuck_case())
    query = "SELECT rank, dumps, host, pid FROM ranks ORDER BY rank"
    assert tables.execute(query).fetchall() == [
        (0, 1, "node01", 100),
        (1, 1, "node01", 101),
        (2, 1, "node02", 102),
        (3, 0, "", None),
    ]


def test_an_empty_case_has_empty_tables() -> None:
    """Nothing read is no error: only the facts about the tables are there."""
    tables = connect(Case())
    assert {t.name for t in TABLES if tables.table(t.name).fetchall()} == {"meta"}


def test_absurd_values_do_not_stop_the_tables() -> None:
    """Numbers beyond 64 bits become NULL or are clipped, halves of characters are escaped."""
    builder = CaseBuilder()
    frame = Frame("f\ud800", "x.py", 10**30)
    row = CallRow(WORLD, ALL_REDUCE, seq=2**62, signature=Signature(((10**30,),)), frames=(frame,))
    builder.add_dump(Dump(0, 0, "\udcff"), [row])
    builder.notes.append(Note("info", "\x00", "\x00"))
    tables = connect(builder.build(), hostile())
    assert tables.execute("SELECT function, line FROM frames").fetchall() == [
        ("f\\ud800", 2**63 - 1)
    ]
    assert tables.execute("SELECT seq FROM collectives").fetchall() == [(2**62,)]
    assert tables.execute("SELECT count(*) FROM calls_flat").fetchall() == [(1,)]


def test_large_cases_are_handed_over_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of any size give the same calls."""
    from unhang.tables import calls

    monkeypatch.setattr(calls, "CHUNK_ROWS", 3)
    whole = CONNECTION.execute("SELECT * FROM calls ORDER BY call_id").fetchall()
    assert connect(stuck_case()).execute("SELECT * FROM calls").fetchall() == whole


_THREADS = ("it's \x00; DROP TABLE calls", "", "main")


@pytest.mark.parametrize("seqs", [(1,), (1, 1, 1), (1, 2, 3)])
@pytest.mark.parametrize("threads", [_THREADS[:1], _THREADS])
def test_columns_in_which_calls_are_alike_are_told_of_each(
    seqs: tuple[int, ...], threads: tuple[str, ...]
) -> None:
    """Whatever is stored once for all of them, every call has it; strings are no code."""
    builder = CaseBuilder()
    calls = [
        CallRow(WORLD, ALL_REDUCE, seq=seq, created_ns=5, thread=threads[at % len(threads)])
        for at, seq in enumerate(seqs)
    ]
    builder.add_dump(Dump(0, 0, "f"), calls)
    found = connect(builder.build()).execute(
        "SELECT call_id, seq, op, thread, src_group_rank, created_ns, started_ns, duration_ms, "
        "is_p2p FROM calls ORDER BY call_id"
    )
    assert found.fetchall() == [
        (at, seq, "all_reduce", threads[at % len(threads)], None, 5, None, None, False)
        for at, seq in enumerate(seqs)
    ]


@pytest.mark.parametrize("other", [None, -1, 0])
def test_columns_that_equal_another_are_told_of_each(other: int | None, tmp_path: Path) -> None:
    """Whatever is stored once for two columns, both have it, also where one call differs."""
    builder = CaseBuilder()
    for dump, rank in enumerate((0, 1, 2, 2) if other == 0 else (0, 1, 2, 3)):
        calls = [CallRow(WORLD, ALL_REDUCE, seq=seq, op_id=seq) for seq in range(-1, 9)]
        builder.add_dump(Dump(dump, rank, "f"), calls)
    if other is not None:
        builder.add_dump(Dump(4, 4, "f"), [CallRow(WORLD, ALL_REDUCE, seq=9, op_id=other)])
    case = builder.build()
    asked = "SELECT dump_id, rank, seq, op_id FROM calls ORDER BY call_id"
    c = case.calls
    columns = [each.tolist() for each in (c.dump, c.rank, c.seq, c.op_id)]
    expected = [tuple(n if n >= 0 else None for n in row) for row in zip(*columns, strict=True)]
    assert connect(case).execute(asked).fetchall() == expected
    write_parquet(case, None, str(tmp_path / "pq"))
    with open_parquet(tmp_path / "pq") as tables:
        assert tables.execute(asked).fetchall() == expected


def test_two_groups_of_one_name_stay_apart() -> None:
    """Name and description do not make a group: its members do."""
    builder = CaseBuilder()
    groups = [Group("1", "tp", (0, 1)), Group("1", "tp", (2, 3))]
    for rank in range(4):
        builder.add_dump(Dump(0, rank, str(rank)), [CallRow(groups[rank // 2], ALL_REDUCE, seq=1)])
    tables = connect(builder.build(world_size=4))
    assert tables.execute("SELECT joined, absent FROM collectives").fetchall() == [(2, 0), (2, 0)]


@given(numbers=st.lists(st.just(-1) | st.integers(0, 300) | st.integers(0, 2**40), max_size=40))
def test_numbers_are_ranked_as_by_sorting(numbers: list[int]) -> None:
    """Dense and sparse ones, none among them; what is no number stays."""
    values, told = np.array(numbers, np.int64), sorted(set(numbers) - {-1})
    assert _rank(values) == len(told)
    assert values.tolist() == [told.index(n) if n >= 0 else -1 for n in numbers]


_IN_SQL = """
SELECT collective_id, any_value(c.group_id), any_value(c.seq), count(DISTINCT c.op),
    count(DISTINCT c.signature_id), any_value(g.size), count(DISTINCT c.rank),
    greatest(any_value(g.size) - count(DISTINCT c.rank), 0),
    count(DISTINCT c.rank) FILTER (WHERE c.retired OR c.state = 'completed'),
    min(c.created_ns), max(c.created_ns)
FROM calls c JOIN groups g USING (group_id)
WHERE collective_id IS NOT NULL GROUP BY collective_id ORDER BY collective_id
"""


@pytest.mark.parametrize("dense", [0, 4])
@pytest.mark.parametrize("piece", [7, 1 << 17])
@pytest.mark.parametrize("ranks", [(0, 1, 2, 2), (2, 0, 1, 2)])
def test_collectives_are_counted_as_sql_counts_them(
    ranks: tuple[int, ...], piece: int, dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that disagree, that recorded a call twice, and times that are not known."""
    monkeypatch.setattr(collectives, "_PIECE", piece)
    monkeypatch.setattr(collectives, "_DENSE", dense)
    draw = random.Random(7)  # noqa: S311 - calls of no meaning
    names = [ALL_REDUCE, OpName("nccl:broadcast", "nccl", "broadcast")]
    groups, shapes = [WORLD, Group("1", "tp", (0, 1))], [Signature(((1,),)), Signature(((2,),))]
    builder = CaseBuilder()
    for rank in ranks:
        calls = [
            CallRow(
                draw.choice(groups),
                draw.choice(names),
                seq=draw.randint(-1, 40),
                state=draw.randint(0, 2),
                retired=draw.random() < 0.2,
                created_ns=draw.randint(0, 2),
                signature=draw.choice(shapes),
            )
            for _ in range(60)
        ]
        builder.add_dump(Dump(0, rank, "f"), calls)
    tables = connect(builder.build(world_size=3))
    columns = ("collective_id, group_id, seq, ops, signatures, size, joined, absent, finished, "
               "first_created_ns, last_created_ns")  # fmt: skip
    found = tables.execute(f"SELECT {columns} FROM collectives").fetchall()  # noqa: S608 - ours
    assert found == tables.execute(_IN_SQL).fetchall()
    assert {row[3] for row in found} == {1, 2}
    assert None in {row[9] for row in found}
    told = "SELECT collective_id, op, last_created_ns, last_rank FROM collectives"
    for number, op, latest, last in tables.execute(told).fetchall():
        own = "SELECT op, created_ns, rank FROM calls WHERE collective_id = ?"
        calls_of = tables.execute(own, [number]).fetchall()
        ops = [each[0] for each in calls_of]
        assert ops.count(op) == max(map(ops.count, ops))
        assert last in [rank for _, created, rank in calls_of if created == latest] or (
            latest is None and last is None
        )
