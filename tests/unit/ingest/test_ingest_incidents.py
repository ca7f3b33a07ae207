"""Several incidents, attempts, recorders and copies in one folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from makedumps import SECOND, T0, dump, entry, write

from lab.recorder.layout import group_config
from lab.recorder.torchfile import encode_pickle
from unhang.errors import UsageError
from unhang.ingest import load

HOUR = 3600 * SECOND


def at(time_ns: int, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON-like
    """A dump whose last call was made then."""
    return dump([entry(i, time_created_ns=time_ns + i) for i in range(2)], **changes)


def incident_notes(folder: Path) -> list[str]:
    """What the notes say about several incidents."""
    return [n.text for n in load(folder).notes if n.source == "incidents"]


def test_leftovers_of_an_earlier_run_are_left_out(tmp_path: Path) -> None:
    """A job that shrank from 8 to 4 ranks left the upper dumps of the day before."""
    write(tmp_path, {f"rank_{r}": at(T0) for r in range(4, 8)})
    write(tmp_path, {f"rank_{r}": at(T0 + 20 * HOUR) for r in range(4)})
    case = load(tmp_path)
    assert case.ranks_with_dump == (0, 1, 2, 3)
    assert case.incident == "2026-11-19T07:06:40Z"
    assert "2 incidents found" in incident_notes(tmp_path)[0]
    assert load(tmp_path, incident="2").ranks_with_dump == (4, 5, 6, 7)
    assert load(tmp_path, incident="2026-11-18").ranks_with_dump == (4, 5, 6, 7)
    with pytest.raises(UsageError, match="2 incidents here called '2026'"):
        load(tmp_path, incident="2026")


def test_a_late_rank_is_no_other_incident(tmp_path: Path) -> None:
    """A rank whose last call is older than its peers' by less than two time-outs stays."""
    write(tmp_path, {"rank_0": at(T0), "rank_1": at(T0 + 15 * 60 * SECOND)})
    assert load(tmp_path).ranks_with_dump == (0, 1)
    assert not incident_notes(tmp_path)


def test_one_leftover_newer_file_does_not_win(tmp_path: Path) -> None:
    """The newest set that is not a stray file is taken."""
    write(tmp_path, {f"rank_{r}": at(T0) for r in range(4)})
    write(tmp_path, {"rank_9": at(T0 + 20 * HOUR)})
    assert load(tmp_path).ranks_with_dump == (0, 1, 2, 3)


def test_our_own_word_tells_incidents_apart(tmp_path: Path) -> None:
    """Seconds apart, in one folder, but the recorder names them."""
    for name, time in (("hang-1", T0), ("hang-2", T0 + SECOND)):
        for rank in range(2):
            own = {"rank": rank, "incident": name, "time_ns": time}
            write(tmp_path, {f"{name}/rank_{rank}": at(time, unhang=own)})
    assert load(tmp_path).incident == "hang-2"
    assert load(tmp_path, incident="hang-1").incident == "hang-1"


def test_attempts_in_folders_with_the_same_names(tmp_path: Path) -> None:
    """Folders that repeat each other's ranks are attempts, not hosts."""
    for attempt in range(2):
        for rank in range(3):
            dumps = {f"attempt_{attempt}/rank_{rank}": at(T0 + attempt * 60 * SECOND)}
            write(tmp_path, dumps)
    case = load(tmp_path)
    assert {Path(d.source).parent.name for d in case.dumps} == {"attempt_1"}
    assert len(case.dumps) == 3


def test_nccl_and_gloo_dumps_of_a_rank_stand_side_by_side(tmp_path: Path) -> None:
    """Two recorders of one process have numbers of their own: both are kept."""
    gloo = [entry(i, profiling_name="gloo:all_reduce") for i in range(2)]
    for rank in range(2):
        write(tmp_path, {f"nccl/rank_{rank}": dump(), f"gloo/rank_{rank}": dump(gloo)})
    case = load(tmp_path)
    assert [(d.rank, d.backend) for d in case.dumps] == [
        (0, "gloo"), (0, "nccl"), (1, "gloo"), (1, "nccl"),
    ]  # fmt: skip
    assert {g.backend for g in case.groups} == {"gloo", "nccl"}
    assert not incident_notes(tmp_path)


def test_two_files_of_one_rank_are_reported(tmp_path: Path) -> None:
    """The one with stacks is read; the other is named."""
    write(tmp_path, {"rank_0.json": dump(ranks=2), "rank_0": dump(ranks=2), "rank_1": dump()})
    case = load(tmp_path)
    assert [Path(d.source).name for d in case.dumps] == ["rank_0", "rank_1"]
    [note] = [n for n in case.notes if "claim rank 0" in n.text]
    assert note.level == "warning"
    assert "rank_0.json" in note.text


def test_files_without_calls_follow_their_series(tmp_path: Path) -> None:
    """A dump of no active call has no time; it belongs to its neighbours."""
    write(tmp_path, {"old/rank_0": at(T0), "old/rank_1": dump([])})
    write(tmp_path, {"new/rank_0": at(T0 + 20 * HOUR), "new/rank_1": dump([])})
    assert {Path(d.source).parent.name for d in load(tmp_path).dumps} == {"new"}
    assert {Path(d.source).parent.name for d in load(tmp_path, incident="2").dumps} == {"old"}


def test_pipes_beside_dumps_are_not_opened(tmp_path: Path) -> None:
    """Torch leaves FIFOs there; opening one would wait for ever."""
    write(tmp_path, {"rank_0": dump()})
    os.mkfifo(tmp_path / "rank_1")
    assert load(tmp_path).ranks_with_dump == (0,)


def steps(first_ns: int, *, members: int = 4, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON-like
    """A dump of twenty calls, one a second."""
    calls = [entry(i, time_created_ns=first_ns + i * SECOND) for i in range(20)]
    return dump(calls, ranks=members, **changes)


def test_clocks_hours_apart_are_one_incident(tmp_path: Path) -> None:
    """The ranks of one host make the same calls, three hours before those of the other."""
    write(tmp_path, {f"rank_{r}": steps(T0 - (r % 2) * 3 * HOUR) for r in range(4)})
    case = load(tmp_path)
    assert case.ranks_with_dump == (0, 1, 2, 3)
    (text,) = [note.text for note in case.notes if note.source == "clocks"]
    assert text == "the clock of ranks 1,3 is 3.0 h behind: the numbers of its calls fit"


@pytest.mark.parametrize(
    "older",
    [
        {"members": 8},  # a job that shrank
        {"first_ns": T0 - 3 * HOUR, "slower": 2},  # the same calls, at another pace
        {"first_ns": T0 - 3 * HOUR, "number": 1000},  # another place in the program
    ],
)
def test_other_calls_are_another_incident(tmp_path: Path, older: dict[str, int]) -> None:
    """Members, pace and numbers must fit."""
    write(tmp_path, {f"rank_{r}": steps(T0) for r in range(2)})
    first, slower = older.get("first_ns", T0 - 3 * HOUR), older.get("slower", 1)
    calls = [
        entry(i + older.get("number", 0), time_created_ns=first + i * slower * SECOND)
        for i in range(20)
    ]
    left = {f"rank_{r}": dump(calls, ranks=older.get("members", 4)) for r in (2, 3)}
    write(tmp_path, left)
    assert load(tmp_path).ranks_with_dump == (0, 1)


def of_node(node: int, made_ns: int, **own: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401 - JSON-like
    """Dumps of the two ranks of a node whose supervisor names its incidents alone."""
    word = {"job_id": "train", "incident": f"alarm-{node}", "time_ns": made_ns, **own}
    ranks = (2 * node, 2 * node + 1)
    return {f"node{node}/rank_{rank}": steps(T0, unhang={"rank": rank, **word}) for rank in ranks}


def test_cases_of_nodes_that_did_not_know_of_each_other_are_one(tmp_path: Path) -> None:
    """Their supervisors saw the hang at different seconds, without a folder that both see."""
    for node in range(2):
        write(tmp_path, of_node(node, T0 + (30 + 2 * node) * SECOND))
    case = load(tmp_path)
    assert case.ranks_with_dump == (0, 1, 2, 3)
    assert case.incident == "alarm-1"
    (text,) = [note.text for note in case.notes if note.source == "incidents"]
    assert text == "alarm-0 and alarm-1 are one incident: the numbers of their calls fit"


@pytest.mark.parametrize(
    "own",
    [
        {"job_id": "another"},
        {"attempt": 1},
        {"made_ns": T0 + 10 * SECOND},  # its peers have made calls since
        {"job_id": ""},
    ],
)
def test_cases_that_need_not_be_of_one_moment_are_not_joined(
    tmp_path: Path, own: dict[str, Any]
) -> None:
    """Other jobs, other attempts, and a pause after which the job went on."""
    write(tmp_path, of_node(0, **{"made_ns": T0 + 30 * SECOND, **own}))
    write(tmp_path, of_node(1, T0 + 32 * SECOND))
    assert load(tmp_path).ranks_with_dump == (2, 3)
    assert "2 incidents found" in incident_notes(tmp_path)[0]


MANY = [entry(number) for number in range(20)]


def test_a_dump_under_two_names_counts_once(tmp_path: Path) -> None:
    """One file was handed over twice: nobody knows of the second rank that it is in the call."""
    twice = encode_pickle(dump(MANY, ranks=2))
    write(tmp_path, {"a/rank_0": twice, "b/rank_1": twice})
    case = load(tmp_path)
    assert [(d.rank, d.status.value) for d in case.dumps] == [(0, "ok"), (1, "unreadable")]
    assert any("is a copy of" in note.text and note.level == "error" for note in case.notes)
    assert [d.status.value for d in load([twice, twice]).dumps] == ["ok", "unreadable"]


def test_a_copy_is_of_the_rank_that_it_declares(tmp_path: Path) -> None:
    """Its own groups tell under which name it is right."""
    own = {"0": group_config("0", "default_pg", "[0, 1]"), "1": group_config("1", "mine", "[1]")}
    twice = encode_pickle(dump(MANY, pg_config=own))
    write(tmp_path, {"rank_0": twice, "rank_1": twice})
    assert [(d.rank, d.status.value) for d in load(tmp_path).dumps] == [
        (0, "unreadable"),
        (1, "ok"),
    ]


def test_a_few_calls_at_the_same_moments_are_no_copy(tmp_path: Path) -> None:
    """Ranks that one barrier lets go, by a clock that ticks slowly, look alike for a while."""
    alike = encode_pickle(dump(MANY[:8], ranks=2))
    write(tmp_path, {"rank_0": alike, "rank_1": alike})
    assert {d.status.value for d in load(tmp_path).dumps} == {"ok"}
