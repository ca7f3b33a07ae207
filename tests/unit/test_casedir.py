from __future__ import annotations

import json
from pathlib import Path

import pytest

from unhang.casedir import (
    Ending,
    NodePart,
    RankPart,
    claim,
    create_case,
    release,
    write_ending,
    write_part,
)
from unhang.errors import OutputError, UsageError


def part(run: str, *ranks: int, world_size: int = 4) -> NodePart:
    """What one node found out about some ranks."""
    return NodePart(
        run=run,
        host=f"node-{run}",
        job="job",
        attempt=0,
        world_size=world_size,
        command=("torchrun", "train.py"),
        incident={"id": "x", "time_ns": 5},
        ranks=tuple(RankPart(rank, "h", 100 + rank, came={"dump": "dumps/x"}) for rank in ranks),
    )


def test_cases_never_overwrite_each_other(tmp_path: Path) -> None:
    """Two incidents in one second, or with one name, get two directories."""
    first, second = (create_case(tmp_path, "a/b c", 0.0) for _ in range(2))
    assert first.name.endswith("-a_b_c")
    assert second.name == f"{first.name}-2"
    named = [create_case(tmp_path, "job", 0.0, named=tmp_path / "mine").name for _ in range(2)]
    assert named == ["mine", "mine-2"]


def test_nodes_that_share_a_directory_share_their_incidents(tmp_path: Path) -> None:
    """The first incident of each node goes into the first directory, the second into the next."""
    path = tmp_path / "shared"
    claim(path, "job")
    for number in ("", "-2"):
        for run in ("one", "two"):
            case = create_case(tmp_path, "job", 0.0, named=path, run=run)
            assert case.name == f"shared{number}"
            write_part(case, part(run, 0 if run == "one" else 1))
    manifest = json.loads((path / "manifest.json").read_text())
    assert [node["run"] for node in manifest["nodes"]] == ["one", "two"]


def test_the_manifest_holds_all_nodes_and_misses_ranks(tmp_path: Path) -> None:
    """Parts of two nodes become one manifest; a rank that nobody reported is in it as missing."""
    case = create_case(tmp_path, "job", 0.0)
    write_part(case, part("one", 0, 1))
    write_part(case, part("two", 3))
    write_ending(case, "one", Ending("the command ended", 1))
    manifest = json.loads((case / "manifest.json").read_text())
    assert manifest["schema"] == "unhang.case/1"
    assert manifest["world_size"] == 4
    assert list(manifest["ranks"]) == ["0", "1", "2", "3"]
    assert manifest["ranks"]["2"]["missing"] == {"all": "no node reported this rank"}
    assert manifest["ranks"]["3"]["came"] == {"dump": "dumps/x"}
    nodes = {node["run"]: node for node in manifest["nodes"]}
    assert nodes["one"]["ending"]["exit_code"] == 1
    assert nodes["two"]["ending"] is None
    assert nodes["one"]["ranks"] == [0, 1]


def test_a_broken_part_does_not_lose_the_others(tmp_path: Path) -> None:
    """A node that died while it wrote leaves a manifest of the rest."""
    case = create_case(tmp_path, "job", 0.0)
    (case / "parts" / "dead.json").write_text('{"run": ')
    write_part(case, part("one", 0))
    assert "0" in json.loads((case / "manifest.json").read_text())["ranks"]


def test_a_named_directory_belongs_to_one_job(tmp_path: Path) -> None:
    """The same job's other nodes may share it, another job may not, and unused it goes away."""
    path = tmp_path / "deep" / "case"
    taken = claim(path, "job1")
    assert claim(path, "job1") == taken
    with pytest.raises(UsageError, match="belongs to another run"):
        claim(path, "job2")
    assert create_case(tmp_path, "job1", 0.0, named=path) == path
    release(taken)
    assert path.is_dir()
    unused = claim(tmp_path / "unused", "job1")
    release(unused)
    assert not unused.path.exists()


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    """Nothing of the user's is ever mixed with a case."""
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        claim(tmp_path, "job")
    with pytest.raises(UsageError, match="not a directory"):
        claim(tmp_path / "notes.txt", "job")


def test_a_place_that_cannot_be_written_is_a_sentence() -> None:
    """The error names the directory and what to do."""
    with pytest.raises(OutputError, match="cannot write the case /proc/case") as caught:
        claim(Path("/proc/case"), "job")
    assert "--case" in caught.value.hint
    with pytest.raises(OutputError, match="cannot write the case"):
        create_case(Path("/proc"), "job", 0.0)
