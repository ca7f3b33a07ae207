"""Numbers that somebody else wrote: what is made of them is as large as the evidence."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from makedumps import dump, entry, write

from unhang.analysis import diagnose
from unhang.bounds import MAX_RANKS, UNPROVEN_RANKS, Budget, is_rank, largest_world
from unhang.case import Case
from unhang.errors import UsageError
from unhang.ingest import load
from unhang.ingest.discover.naming import read_name


def our_own(world_size: int, rank: int = 0) -> dict[str, Any]:
    """A dump of our recorder that says so many ranks."""
    return {**dump(), "unhang": {"rank": rank, "world_size": world_size, "host": "h", "pid": 1}}


def declared(ranks: str) -> dict[str, Any]:
    """A dump that declares the default group so."""
    return {**dump(), "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}}


def notes_of(case: Case) -> str:
    """All that was said while reading."""
    return "\n".join(note.text for note in case.notes)


@pytest.mark.parametrize("size", [2**31 - 1, 5_000_000, UNPROVEN_RANKS + 1])
def test_a_dump_alone_does_not_make_a_giant_job(tmp_path: Path, size: int) -> None:
    """Less than a kilobyte that claims billions of ranks costs a note, not gigabytes."""
    write(tmp_path, {"nccl_trace_rank_0": our_own(size)})
    tracemalloc.start()
    report = diagnose(load(tmp_path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 << 20
    assert report.job.world_size < 10
    assert any(f"{size:,} ranks, as a dump says" in note.text for note in report.notes)


def test_one_dump_of_a_large_job_is_believed(tmp_path: Path) -> None:
    """The largest jobs that there are have been dumped rank by rank."""
    write(tmp_path, {"nccl_trace_rank_0": our_own(131_072)})
    case = load(tmp_path)
    assert (case.world_size, case.world_size_inferred) == (131_072, False)


def test_more_evidence_vouches_for_more_ranks() -> None:
    """A job of a million ranks may be one; nothing is one of more than there can be."""
    assert largest_world(0) == UNPROVEN_RANKS
    assert largest_world(20_000) >= 1 << 20
    assert largest_world(10**9) == MAX_RANKS


@pytest.mark.parametrize("ranks", ["[0, 1, 2147483646]", f"[0, {MAX_RANKS}]", "[0, 99999999999]"])
def test_a_group_of_impossible_ranks_is_nobodys(tmp_path: Path, ranks: str) -> None:
    """Its calls are read; who its members are is then inferred."""
    write(tmp_path, {"nccl_trace_rank_0": declared(ranks)})
    case = load(tmp_path)
    assert case.world_size < 10
    assert all(group.inferred for group in case.groups)


def test_a_group_of_far_apart_ranks_does_not_make_the_job(tmp_path: Path) -> None:
    """Three members, of which one has a high number: the members are kept, the rest is not made."""
    write(tmp_path, {"nccl_trace_rank_0": declared(f"[0, 1, {MAX_RANKS - 1}]")})
    case = load(tmp_path)
    assert case.world_size == 0
    assert case.groups[0].members == (0, 1, MAX_RANKS - 1)
    assert "not plausible" in notes_of(case)
    assert diagnose(case).job.world_size == 3


@pytest.mark.parametrize(
    ("name", "rank"),
    [("trace_20261122", -1), ("nccl_trace_rank_999999999", -1), ("rank_131071", 131_071)],
)
def test_a_number_that_no_rank_has_is_none(name: str, rank: int) -> None:
    """A date at the end of a name is not rank twenty million."""
    assert read_name(name).rank == rank


def test_our_own_word_on_an_impossible_rank_does_not_count(tmp_path: Path) -> None:
    """Then the name tells."""
    write(tmp_path, {"nccl_trace_rank_1": our_own(2, rank=2**31 - 1)})
    assert [d.rank for d in load(tmp_path).dumps] == [1]


@pytest.mark.parametrize("option", ["world_size", "group_world_size"])
@pytest.mark.parametrize("value", [0, MAX_RANKS + 1, 999_999_999])
def test_the_user_is_told_what_can_be(tmp_path: Path, option: str, value: int) -> None:
    """A slip of the finger is wrong usage."""
    write(tmp_path, {"nccl_trace_rank_0": dump()})
    with pytest.raises(UsageError, match="is out of range"):
        load(tmp_path, **{option: value})  # type: ignore[arg-type]  # one of two options


@pytest.mark.parametrize("whole", [True, False], ids=["small", "large"])
def test_a_manifest_may_be_large_and_may_lie(tmp_path: Path, *, whole: bool) -> None:
    """Of a large one the beginning is read, which says the number of ranks."""
    write(tmp_path / "dumps" / "nccl", {"rank_0": dump()})
    rows = {str(rank): {"rank": rank, "came": {}} for rank in range(3 if whole else 200_000)}
    for size, believed in ((16, 16), (10**9, 4)):
        told = {"schema": "unhang.case/1", "world_size": size, "ranks": rows}
        (tmp_path / "manifest.json").write_text(json.dumps(told))
        case = load(tmp_path)
        assert case.world_size == believed
        assert ("not plausible" in notes_of(case)) == (size != believed)


def test_groups_that_share_a_list_do_not_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One list in the file, members of thousands of groups in memory: only so many are made."""
    monkeypatch.setattr("unhang.ingest.groups.building.members_budget", lambda _: Budget(1_000))
    ranks = str(list(range(300)))
    config = {str(i): {"name": str(i), "desc": "x", "ranks": ranks} for i in range(50)}
    entries = [entry(i, process_group=(str(i), "x")) for i in range(50)]
    for rank in (0, 7):
        write(
            tmp_path,
            {f"nccl_trace_rank_{rank}": {**dump(), "entries": entries, "pg_config": config}},
        )
    case = load(tmp_path)
    sizes = [group.size for group in case.groups]
    assert sizes == [300] * 3 + [2] * 47
    assert [group.inferred for group in case.groups] == [False] * 3 + [True] * 47
    assert "those of 47 groups" in notes_of(case)
    diagnose(case)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, -1, MAX_RANKS])
def test_only_numbers_that_a_rank_can_have_are_ranks(value: object) -> None:
    """Anything may stand where a rank should."""
    assert not is_rank(value)
