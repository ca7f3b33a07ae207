from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from unhang.casedir.manifest import (
    Ending,
    NodePart,
    RankPart,
    create_case,
    not_found,
    save_file,
    write_ending,
    write_part,
)
from unhang.casedir.reports import keep_private
from unhang.casedir.sharing import (
    Announcement,
    announce,
    claim,
    heard_of,
    is_being_ended,
    release,
    tell_of_end,
    without_part,
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


def seen_by(run: str, time_s: float) -> Announcement:
    """A run's announcement of a hang."""
    return Announcement(run, "hang", "no call has finished", time_s)


def test_nodes_that_share_a_directory_share_their_incidents(tmp_path: Path) -> None:
    """The first incident of each node goes into the first directory, the second into the next."""
    path = tmp_path / "shared"
    for run in ("one", "two"):
        claim(path, "job", run)
    for number, (first, second) in (("", ("one", "two")), ("-2", ("two", "one"))):
        assert heard_of(path, "job", second) is None
        case = create_case(tmp_path, "job", 0.0, named=path, run=first)
        assert case.name == f"shared{number}"
        announce(case, news := seen_by(first, time.time()))
        announce(case, seen_by(second, 5.0))  # too late: the first one stays
        assert (heard_of(path, "job", first), heard_of(path, "job", second)) == (None, news)
        write_part(case, part(first, 0))
        assert without_part(path, case) == [second]
        assert create_case(tmp_path, "job", 0.0, named=path, run=second) == case
        write_part(case, part(second, 1))
        assert without_part(path, case) == []
    manifest = json.loads((path / "manifest.json").read_text())
    assert [node["run"] for node in manifest["nodes"]] == ["one", "two"]


def test_that_a_node_ends_the_job_is_known_to_the_others(tmp_path: Path) -> None:
    """Whoever says so first is believed; it is no part of the case."""
    path = tmp_path / "shared"
    claim(path, "job", "one")
    case = create_case(tmp_path, "job", 0.0, named=path, run="one")
    assert not is_being_ended(case)
    tell_of_end(case, "one")
    tell_of_end(case, "two")
    assert is_being_ended(case)
    assert without_part(path, case) == ["one"]


def test_only_an_incident_of_now_is_joined(tmp_path: Path) -> None:
    """Not one of an hour ago, nor one of a run that has ended, nor what is no announcement."""
    path = tmp_path / "shared"
    one, two = claim(path, "job", "one"), claim(path, "job", "two")
    case = create_case(tmp_path, "job", 0.0, named=path, run="one")
    write_part(case, part("one", 0))
    for text in ("[" * 100_000, '{"run": "one"}', '{"run": 1, "kind": 2, "detail": 3}', "\0"):
        (case / ".incident.json").write_text(text)
        assert heard_of(path, "job", "two") is None
    (case / ".incident.json").unlink()
    announce(case, seen_by("one", time.time() - 3600))
    assert heard_of(path, "job", "two") is None
    assert create_case(tmp_path, "job", 0.0, named=path, run="two").name == "shared-2"
    (case / ".incident.json").unlink()
    announce(case, seen_by("one", time.time()))
    assert heard_of(path, "job", "two") is not None
    release(one)
    assert heard_of(path, "job", "two") is None
    release(two)
    assert (case / "manifest.json").exists()


@pytest.mark.parametrize(("exit_code", "joined"), [(None, False), (1, True)])
def test_an_incident_after_which_the_job_went_on_is_not_joined(
    tmp_path: Path,
    exit_code: int | None,
    joined: bool,  # noqa: FBT001 - a table of expectations
) -> None:
    """A late node would add what it sees now; after the end of a command it tells of the same."""
    path = tmp_path / "shared"
    for run in ("one", "two"):
        claim(path, "job", run)
    case = create_case(tmp_path, "job", 0.0, named=path, run="one")
    announce(case, seen_by("one", time.time()))
    write_part(case, part("one", 0))
    write_ending(case, "one", Ending("how it went on", exit_code))
    assert (heard_of(path, "job", "two") is not None) is joined


def test_a_shared_directory_stays_until_the_last_has_gone(tmp_path: Path) -> None:
    """A node that ends early takes nothing from the others."""
    one, two = (claim(tmp_path / "shared", "job", run) for run in ("one", "two"))
    release(one)
    assert one.path.is_dir()
    release(two)
    assert not one.path.exists()


def test_a_rank_that_its_node_did_not_find_was_looked_at(tmp_path: Path) -> None:
    """Its launcher has started it there; a node that has a process of it knows better."""
    case = create_case(tmp_path, "job", 0.0)
    one = part("one", 0)
    write_part(case, replace(one, ranks=[*one.ranks, *not_found([1, 2])]))
    write_part(case, part("two", 2))
    manifest = json.loads((case / "manifest.json").read_text())
    assert manifest["looked_at"] == [[0, 2]]
    why = {"all": "no process of it was found on its node"}
    assert manifest["ranks"]["1"]["missing"] == why
    assert manifest["ranks"]["2"]["came"] == {"dump": "dumps/x"}
    assert manifest["ranks"]["3"]["missing"] == {"all": "no node reported this rank"}


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
    assert manifest["looked_at"] == [[0, 1], [3, 3]]
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


@pytest.mark.parametrize("umask", [0, 0o022, 0o277])
def test_a_case_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    """Whatever the umask; what lies beside the case is not touched."""
    before = os.umask(umask)
    try:
        case = create_case(tmp_path / "cases", "job", 0.0)
        save_file(case / "stacks" / "a.json", b"{}")
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in (case, *case.rglob("*"))}
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items())


def test_documents_in_a_case_are_private_and_others_are_not(tmp_path: Path) -> None:
    """What -o writes: by the place where it goes."""
    case = create_case(tmp_path / "cases", "job", 0.0)
    save_file(case / "manifest.json", b"{}")
    document = tmp_path / "part"
    document.write_text("")
    document.chmod(0o644)
    keep_private(document, tmp_path / "report.txt")
    assert document.stat().st_mode & 0o777 == 0o644
    keep_private(document, case / "report.md")
    assert document.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"run": "one", "ranks": 5}',
        '{"run": "one", "ranks": [{"rank": 0}, {"rank": true}, {"rank": -1}, 7]}',
        '{"run": "one", "ranks": [{"rank": 0, "came": [1]}]}',
        '{"run": "one", "world_size": 99999999}',
        '{"run": "one", "world_size": "4"}',
        '{"run": 1}',
        '{"run": "one", "notes": "a"}',
    ],
)
def test_what_cannot_be_believed_of_a_part_is_said(tmp_path: Path, text: str) -> None:
    """It is left out, the rest stays, and the manifest tells that the part is damaged."""
    case = create_case(tmp_path, "job", 0.0)
    (case / "parts" / "one.json").write_text(text)
    write_part(case, part("two", 3))
    manifest = json.loads((case / "manifest.json").read_text())
    notes = {node["run"]: node["notes"] for node in manifest["nodes"]}
    assert "this part of the case is damaged" in str(notes["one"])
    assert notes["two"] == []
    assert manifest["world_size"] == 4
    assert manifest["ranks"]["3"]["came"] == {"dump": "dumps/x"}


def test_a_part_may_hold_what_is_no_text_elsewhere(tmp_path: Path) -> None:
    """A command line that is no UTF-8, and a number that JSON does not know: Python writes both."""
    case = create_case(tmp_path, "job", 0.0)
    odd = replace(part("one", 0), command=("train", "\udcff"), timings_s={"dumps": float("inf")})
    write_part(case, odd)
    manifest = json.loads((case / "manifest.json").read_text())
    assert manifest["job"]["command"] == ["train", "\udcff"]
    assert manifest["nodes"][0]["notes"] == []
