"""Ranks, hosts and series out of file names, and ranks where names are of no use."""

from __future__ import annotations

from pathlib import Path

import pytest
from makedumps import dump, entry, write

from unhang.ingest import load
from unhang.ingest.discover.naming import looks_like_dump, natural_key, read_name


@pytest.mark.parametrize(
    ("path", "rank", "host", "series"),
    [
        ("nccl_trace_rank_3", 3, "", "/nccl_trace_rank_"),
        ("comm_lib_trace_rank_12", 12, "", "/comm_lib_trace_rank_"),
        ("nccl_trace_rank_container-node02_5", 5, "container-node02", "/nccl_trace_rank_"),
        ("_dump_5", 5, "", "/_dump_"),
        ("rank_5.json", 5, "", "/rank_"),
        ("rank5.pkl", 5, "", "/rank"),
        ("trace-5.pickle", 5, "", "/trace-"),
        ("node01/rank_7.json.gz", 7, "", "node01/rank_"),
        ("rank_3_20261120_101010", 3, "", "/rank_"),
        ("dumps/gloo/rank_0", 0, "", "dumps/gloo/rank_"),
        ("case.tar/dumps/rank_08", 8, "", "case.tar/dumps/rank_"),
        ("dump", -1, "", "/dump"),
        ("rank_pid4711", -1, "", "/rank_pid4711"),
    ],
)
def test_usual_forms(path: str, rank: int, host: str, series: str) -> None:
    """Every form that torch, its users and their launchers give to dumps."""
    claim = read_name(path)
    assert (claim.rank, claim.host, claim.series) == (rank, host, series)


@pytest.mark.parametrize(
    ("name", "is_dump"),
    [
        ("nccl_trace_rank_3", True),
        ("_dump_0", True),
        ("rank_3.json.gz", True),
        ("rank_3.log", False),
        ("train.log.3", False),
        ("core.4711", False),
        (".rank_3", False),
        ("README", False),
    ],
)
def test_which_unreadable_files_are_lost_dumps(name: str, *, is_dump: bool) -> None:
    """A log of rank 3 is not the lost dump of rank 3."""
    assert looks_like_dump(name) is is_dump


def test_numbers_sort_as_numbers() -> None:
    """rank_2 comes before rank_10."""
    names = ["rank_10", "rank_2", "a", "rank_1.json"]
    assert sorted(names, key=natural_key) == ["a", "rank_1.json", "rank_2", "rank_10"]


def test_the_users_pattern_counts(tmp_path: Path) -> None:
    """A named group or the first group, anywhere in the path."""
    write(tmp_path, {"n1/part7.bin": dump(), "n2/part9.bin": dump()})
    assert load(tmp_path, rank_pattern=r"n(\d+)/").ranks_with_dump == (1, 2)
    assert load(tmp_path, rank_pattern=r"(part)(?P<rank>\d)").ranks_with_dump == (7, 9)


def _member_of(*groups: list[int]) -> dict[str, object]:
    config = {
        str(i): {"name": str(i), "desc": f"g{i}", "ranks": str(group)}
        for i, group in enumerate(groups)
    }
    return dump([entry(0, group=("0", "g0"))], pg_config=config)


def test_nameless_files_get_the_one_rank_that_fits(tmp_path: Path) -> None:
    """The only common member of all groups, then what is left over."""
    write(
        tmp_path,
        {
            "first": _member_of([0, 1], [0, 2]),
            "second": _member_of([0, 1], [1, 3]),
            "third": _member_of([2, 3], [2]),
            "fourth": _member_of([2, 3]),
        },
    )
    case = load(tmp_path)
    assert {Path(d.source).name: d.rank for d in case.dumps} == {
        "first": 0, "second": 1, "third": 2, "fourth": 3,
    }  # fmt: skip


def test_a_send_says_who_made_it(tmp_path: Path) -> None:
    """The caller's group rank stands first in a send's and receive's name."""
    config = {"0": {"name": "0", "desc": "pp", "ranks": "[4, 6]"}}
    send = entry(0, group=("0", "pp"), profiling_name="nccl:send 1->0", is_p2p=True)
    recv = entry(0, group=("0", "pp"), profiling_name="nccl:recv 0<-1", is_p2p=True)
    write(tmp_path, {"a": dump([send], pg_config=config), "b": dump([recv], pg_config=config)})
    assert {Path(d.source).name: d.rank for d in load(tmp_path).dumps} == {"a": 6, "b": 4}


def test_what_nobody_can_place_is_left_out(tmp_path: Path) -> None:
    """Guessing a rank would accuse somebody."""
    write(tmp_path, {"rank_0": dump(), "x": _member_of([1, 2]), "y": _member_of([1, 2])})
    case = load(tmp_path)
    assert case.ranks_with_dump == (0,)
    assert [Path(n.source).name for n in case.notes if n.level == "error"] == ["x", "y"]


def test_hosts_come_from_names_or_folders(tmp_path: Path) -> None:
    """Folders are hosts only where no rank is in two of them."""
    write(tmp_path / "a", {"node01/rank_0": dump(), "node02/rank_1": dump()})
    write(tmp_path / "b", {"nccl_trace_rank_box-7_0": dump(), "nccl_trace_rank_box-8_1": dump()})
    write(tmp_path / "c", {"dumps/nccl/rank_0": dump(), "dumps/nccl/rank_1": dump()})
    hosts = [[d.host for d in load(tmp_path / name).dumps] for name in "abc"]
    assert hosts == [["node01", "node02"], ["box-7", "box-8"], ["", ""]]
