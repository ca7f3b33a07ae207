"""Who is in a group, how large the job is, and whose counters are whose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from makedumps import dump, entry, write

from unhang.ingest import load
from unhang.model import Group

BROKEN = {"": {"name": "", "desc": "", "ranks": "[]"}}


def gloo(*groups: tuple[str, str], **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON-like
    """A dump as Gloo of torch 2.13 makes it: no usable pg_config."""
    rows = [
        entry(i, group=group, profiling_name="gloo:all_reduce", pg_id=i)
        for i, group in enumerate(groups)
    ]
    return dump(rows, **{"pg_config": BROKEN, "comm_lib_version": "", **changes})


DEFAULT, TP1, TP2 = ("0", "default_pg"), ("1", "tp"), ("2", "tp")


def test_members_are_who_called_where_nobody_says(tmp_path: Path) -> None:
    """The default group is everybody; another is who called something on it."""
    for rank in range(4):
        write(tmp_path, {f"rank_{rank}": gloo(DEFAULT, TP1 if rank < 2 else TP2)})
    case = load(tmp_path, world_size=5)
    assert set(case.groups) == {
        Group("0", "default_pg", (0, 1, 2, 3, 4), inferred=True, backend="gloo"),
        Group("1", "tp", (0, 1), inferred=True, backend="gloo"),
        Group("2", "tp", (2, 3), inferred=True, backend="gloo"),
    }
    [note] = [n for n in case.notes if n.source == "groups"]
    assert "3 groups" in note.text


def test_peers_know_what_a_lazy_rank_does_not(tmp_path: Path) -> None:
    """A group appears in pg_config with its first call; a peer's word is as good."""
    tp = {"1": {"name": "1", "desc": "tp", "ranks": "[0, 1]"}}
    write(tmp_path, {"rank_0": dump([entry(0, group=TP1)], pg_config=tp)})
    write(tmp_path, {"rank_1": dump([entry(0, group=TP1)], pg_config={})})
    assert load(tmp_path).groups == (Group("1", "tp", (0, 1), inferred=False, backend="nccl"),)


def test_one_name_and_other_members_is_another_group(tmp_path: Path) -> None:
    """Two groups "1" with disjoint members are two groups; disagreement shows as two as well."""
    for rank, members in enumerate(("[0, 1]", "[0, 1]", "[2, 3]", "[2, 3, 4]")):
        config = {"1": {"name": "1", "desc": "tp", "ranks": members}}
        write(tmp_path, {f"rank_{rank}": dump([entry(0, group=TP1)], pg_config=config)})
    assert {g.members for g in load(tmp_path).groups} == {(0, 1), (2, 3), (2, 3, 4)}


def test_a_declaration_without_its_own_rank_is_not_believed(tmp_path: Path) -> None:
    """Nor is one that names a rank twice or is no list of ranks."""
    for rank, members in enumerate(("[5, 6]", "[1, 1]", "__import__('os')", "[-1, 3]")):
        config = {"1": {"name": "1", "desc": "tp", "ranks": members}}
        write(tmp_path, {f"rank_{rank}": dump([entry(0, group=TP1)], pg_config=config)})
    assert load(tmp_path).groups == (Group("1", "tp", (0, 1, 2, 3), inferred=True, backend="nccl"),)


@pytest.mark.parametrize(
    ("content", "told", "size", "inferred"),
    [
        (dump(ranks=8), None, 8, False),
        (dump(ranks=8), 16, 16, False),
        (dump(ranks=8, unhang={"world_size": 12}), None, 12, False),
        (gloo(DEFAULT), None, 3, True),
        (dump(pg_config={"1": {"name": "1", "desc": "tp", "ranks": "[2, 6]"}}), None, 7, True),
    ],
)
def test_world_size(
    content: dict[str, Any], told: int | None, size: int, *, inferred: bool, tmp_path: Path
) -> None:
    """As told, as our recorder says, as a group says, or the highest rank."""
    write(tmp_path, {"rank_2": content})
    case = load(tmp_path, world_size=told)
    assert (case.world_size, case.world_size_inferred) == (size, inferred)


def test_replicas_of_torchft_are_kept_apart(tmp_path: Path) -> None:
    """Files go on counting over replicas, groups start again at 0 in each."""
    for rank in range(6):
        write(tmp_path, {f"rank_{rank}": dump(ranks=2)})
    case = load(tmp_path)
    assert {g.members for g in case.groups} == {(0, 1), (2, 3), (4, 5)}
    assert [d.replica for d in case.dumps] == ["0", "0", "1", "1", "2", "2"]
    assert case.world_size == 6
    assert any("3 replicas of 2 ranks" in note.text for note in case.notes)


def test_members_without_a_name_are_those_of_the_only_group(tmp_path: Path) -> None:
    """Gloo of torch 2.13 lists the default group's members under no name; that is no group more."""
    nameless = {"": {"name": "", "desc": "", "ranks": "[0, 1, 2]"}}
    for rank in range(2):
        write(tmp_path, {f"rank_{rank}": gloo(DEFAULT, pg_config=nameless)})
    case = load(tmp_path)
    assert [(g.name, g.members, g.inferred) for g in case.groups] == [("0", (0, 1, 2), False)]
    assert any("without a name" in note.text for note in case.notes)


@pytest.mark.parametrize("groups", [[], [DEFAULT, TP1]])
def test_members_without_a_name_are_nobodys_else(
    groups: list[tuple[str, str]], tmp_path: Path
) -> None:
    """With no call at all, or with several groups, it cannot be told whose they are."""
    nameless = {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}
    for rank in range(2):
        write(tmp_path, {f"rank_{rank}": gloo(*groups, pg_config=nameless)})
    case = load(tmp_path)
    assert [g.name for g in case.groups] == [name for name, _ in groups]
    assert all(g.inferred for g in case.groups)


def test_replicas_whose_files_start_again_at_0(tmp_path: Path) -> None:
    """A folder a replica, files numbered from 0 in each, groups by global ranks: one incident."""
    for replica in (0, 1):
        members = [2 * replica, 2 * replica + 1]
        for rank in (0, 1):
            content = dump(pg_config=_config(("0", "default_pg", members)))
            write(tmp_path, {f"replica_{replica}/rank_{rank}": content})
    case = load(tmp_path)
    assert [d.rank for d in case.dumps] == [0, 1, 2, 3]
    assert {g.members for g in case.groups} == {(0, 1), (2, 3)}
    assert any("numbered within their default group" in note.text for note in case.notes)


def test_the_size_of_a_replica_can_be_told(tmp_path: Path) -> None:
    """With broken declarations nothing shows it; the second replica lacks a rank."""
    for rank in range(3):
        write(tmp_path, {f"rank_{rank}": gloo(DEFAULT)})
    case = load(tmp_path, group_world_size=2)
    assert {g.members for g in case.groups} == {(0, 1), (2, 3)}
    assert case.world_size == 4


def _status(*ids: int) -> dict[str, Any]:
    return {
        str(pg_id): {
            "last_enqueued_collective": 100 + pg_id,
            "last_started_collective": -1,
            "last_completed_collective": 90 + pg_id,
        }
        for pg_id in ids
    }


def _config(*groups: tuple[str, str, list[int]]) -> dict[str, Any]:
    return {name: {"name": name, "desc": desc, "ranks": str(r)} for name, desc, r in groups}


def _joined(folder: Path) -> list[tuple[int, int, str, int]]:
    """(rank, local id, group's name or "?", how it is known)."""
    case = load(folder)
    s = case.group_status
    return [
        (case.dumps[d].rank, pg_id, case.groups[g].name if g >= 0 else "?", joined)
        for d, pg_id, g, joined in zip(
            s.dump.tolist(), s.pg_id.tolist(), s.group.tolist(), s.joined_by.tolist(), strict=True
        )
    ]


def test_counters_are_joined_by_calls_then_by_order(tmp_path: Path) -> None:
    """Rank 1 has no call at all: its two ids stand in the order of its two groups' names."""
    config = _config(("0", "default_pg", [0, 1]), ("10", "tp", [0, 1]))
    calls = [entry(0, pg_id=0), entry(1, pg_id=3, group=("10", "tp"))]
    write(tmp_path, {"rank_0": dump(calls, pg_config=config, pg_status=_status(0, 3))})
    write(tmp_path, {"rank_1": dump([], pg_config=config, pg_status=_status(0, 2))})
    assert _joined(tmp_path) == [(0, 0, "0", 0), (0, 3, "10", 0), (1, 0, "0", 1), (1, 2, "10", 1)]


def test_order_is_not_believed_where_any_call_disproves_it(tmp_path: Path) -> None:
    """Rank 0's calls show ids and names in crossed order, so rank 1's ids say nothing."""
    config = _config(("1", "a", [0, 1]), ("2", "b", [0, 1]))
    crossed = [entry(0, pg_id=1, group=("1", "a")), entry(1, pg_id=0, group=("2", "b"))]
    write(tmp_path, {"rank_0": dump(crossed, pg_config=config, pg_status=_status(0, 1))})
    write(tmp_path, {"rank_1": dump([], pg_config=config, pg_status=_status(5, 6))})
    assert _joined(tmp_path)[2:] == [(1, 5, "?", -1), (1, 6, "?", -1)]


def test_peers_tell_an_id_by_its_description(tmp_path: Path) -> None:
    """Counts differ, so order says nothing; all peers have id 1 for their "tp"."""
    config = _config(("0", "default_pg", [0, 1, 2]), ("1", "tp", [0, 1]))
    calls = [entry(0, pg_id=0), entry(1, pg_id=1, group=TP1)]
    write(tmp_path, {"rank_0": dump(calls, pg_config=config, pg_status=_status(0, 1))})
    write(tmp_path, {"rank_1": dump([], pg_config=config, pg_status=_status(0, 1, 2))})
    assert _joined(tmp_path)[2:] == [(1, 0, "0", 1), (1, 1, "1", 1), (1, 2, "?", -1)]


@pytest.mark.parametrize("strided", [False, True])
def test_groups_of_torch_22_are_told_apart_by_their_callers(
    tmp_path: Path, *, strided: bool
) -> None:
    """Lists hold one local id for groups that are made alike; sends name the caller's rank."""
    for rank in range(4):
        own = rank // 2 if strided else rank % 2
        row = {"pg_id": 1, "seq_id": 1, "state": "completed", "time_created_us": 10**15 + rank}
        name = f"nccl:send {own}->{1 - own}" if own == 0 else f"nccl:recv {own}<-{1 - own}"
        write(tmp_path, {f"nccl_trace_rank_{rank}": [{**row, "profiling_name": name}]})
    found = {group.members for group in load(tmp_path).groups}
    assert found == ({(0, 2), (1, 3)} if strided else {(0, 1), (2, 3)})


@pytest.mark.parametrize(("left", "members"), [((1, 2, 3), 4), ((2, 3), 2), ((0, 3), 4)])
def test_the_first_group_of_torch_22_has_the_ranks_without_a_dump(
    tmp_path: Path, left: tuple[int, ...], members: int
) -> None:
    """Where most ranks or the first call on it: then it is the default group, not one of halves."""
    for rank in left:
        row = {"pg_id": 0, "seq_id": 1, "profiling_name": "nccl:all_reduce", "state": "started"}
        write(tmp_path, {f"nccl_trace_rank_{rank}": [{**row, "time_created_us": 10**15}]})
    (group,) = load(tmp_path).groups
    assert group.size == members
