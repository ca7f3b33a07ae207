from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from unhang.casedir.contents import AskedPart, Contents, asked_nodes, contents_of
from unhang.casedir.manifest import (
    Ending,
    LateRun,
    NodePart,
    RankPart,
    create_case,
    not_found,
    save_file,
    write_ending,
    write_late,
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


# ------------------------------------------------------------------ what a manifest says


def asked_in(case: Path) -> dict[str, tuple[str, tuple[int, ...], str]]:
    """State, ranks and reason of each node that a case's manifest names."""
    told = contents_of(case)
    assert told is not None
    nodes = asked_nodes([told], told.world_size)
    return {node.node: (node.state, node.ranks, node.why) for node in nodes}


def missed(run: str, why: str = "timed out") -> NodePart:
    """A node that was asked in vain."""
    return NodePart(run=run, host=f"node-{run}", missed=why)


def test_ranks_of_the_one_node_that_did_not_answer_are_those_left(tmp_path: Path) -> None:
    """Where its share is that of the others; of two nodes nothing tells which ranks are whose."""
    case = create_case(tmp_path, "job", 0.0)
    write_part(case, part("a", 0, 1, world_size=4))
    write_part(case, missed("b"))
    answered = ("answered", (0, 1), "")
    assert asked_in(case) == {
        "node-a": answered,
        "node-b": ("not-reached", (2, 3), "timed out"),
    }
    write_part(case, missed("c"))
    assert {name: ranks for name, (_, ranks, _) in asked_in(case).items()} == {
        "node-a": (0, 1),
        "node-b": (),
        "node-c": (),
    }


def test_uneven_shares_tell_nothing(tmp_path: Path) -> None:
    """A third node may not have been asked at all."""
    case = create_case(tmp_path, "job", 0.0)
    write_part(case, part("a", 0, 1, world_size=6))
    write_part(case, missed("b"))
    assert asked_in(case)["node-b"] == ("not-reached", (), "timed out")


def test_a_late_node_is_named_until_it_gives_its_part(tmp_path: Path) -> None:
    """A node that was only busy is none of the missing ones afterwards."""
    case = create_case(tmp_path, "job", 0.0)
    write_part(case, part("a", 0, 1))
    write_late(case, "b", LateRun("node-b", 15.0))
    assert asked_in(case)["node-b"] == ("late", (2, 3), "waited 15 s")
    write_part(case, part("b", 2, 3))
    assert asked_in(case)["node-b"] == ("answered", (2, 3), "")


def test_a_rank_is_on_one_node_whatever_nodes_claim() -> None:
    """The first that has it; what is inferred comes last, and work is bounded."""
    claims = [AskedPart(f"n{i}", "answered", [(0, (1 << 21) - 1)]) for i in range(100)]
    guess = AskedPart("left", "not-reached", [(0, 3)], inferred=True)
    nodes = asked_nodes([Contents(asked=[guess, AskedPart("a", "answered", [(0, 1)])])], 4)
    assert {node.node: node.ranks for node in nodes} == {"left": (2, 3), "a": (0, 1)}
    owned = [node.ranks for node in asked_nodes([Contents(asked=claims)], 8)]
    assert owned[0] == tuple(range(8))
    assert not any(owned[1:])


def test_a_node_that_answered_in_another_folder_has_answered() -> None:
    """Folders of one job may be joined: one collection missed it, another did not."""
    one = Contents(asked=[AskedPart("a", "not-reached", why="down")])
    two = Contents(asked=[AskedPart("a", "answered", [(0, 0)])])
    for told in ([one, two], [two, one]):
        assert [(n.state, n.ranks) for n in asked_nodes(told, 1)] == [("answered", (0,))]


@pytest.mark.parametrize(
    "told",
    ["7", "[]", "", "{", '{"world_size": -1, "asked": [{"name": 1}], "job": 7, "nodes": "x"}'],
)
def test_what_is_no_manifest_says_nothing(tmp_path: Path, told: str) -> None:
    """Of a stranger's case, too."""
    (tmp_path / "manifest.json").write_text(told)
    assert contents_of(tmp_path) in (None, Contents())


def test_of_a_long_manifest_the_beginning_is_read(tmp_path: Path) -> None:
    """Ranks stand last: a hundred thousand of them take megabytes."""
    case = create_case(tmp_path, "job", 0.0)
    write_part(case, part("a", *range(20_000), world_size=20_000))
    assert (case / "manifest.json").stat().st_size > 2 << 20
    told = contents_of(case)
    assert told is not None
    assert (told.world_size, told.hosts, told.command) == (
        20_000, ("node-a",), ("torchrun", "train.py"),
    )  # fmt: skip


def test_a_command_that_held_a_secret_is_not_told(tmp_path: Path) -> None:
    """It would not run as printed."""
    manifest = tmp_path / "manifest.json"
    for words, told in (
        (["python", "train.py"], ("python", "train.py")),
        (["python", "--api-key", "<removed>"], ()),
    ):
        manifest.write_text(json.dumps({"job": {"command": words}}))
        found = contents_of(tmp_path)
        assert found is not None
        assert found.command == told
