"""The full recorder: what it sees of programs on backends that torch does not record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from armed_jobs import ArmedJob

GATHER, SCATTER = "_all_gather_base", "_reduce_scatter_base"
COALESCED = "all_gather_into_tensor_coalesced"
ALWAYS = {
    "all_reduce": ["all_reduce"],
    "async": ["all_reduce"],
    "broadcast": ["broadcast"],
    "barrier": ["barrier"],
    "objects": ["broadcast", "broadcast"],
    "exchange": ["send 0->1", "recv 0<-1"],
    "functional": ["all_reduce"],
}
REAL = {"there_and_back": ["send 0->1", "recv 0<-1"]}
CPLUSPLUS = {
    "reduce": ["reduce"],
    "all_gather": ["all_gather"],
    "all_gather_into_tensor": [GATHER],
    "reduce_scatter": ["reduce_scatter"],
    "reduce_scatter_tensor": [SCATTER],
    "gather": ["gather"],
    "scatter": ["scatter"],
    "all_to_all": ["all_to_all"],
    "all_to_all_single": ["all_to_all"],
    "coalesced": ["allreduce_coalesced"],
    "functional_gather": [COALESCED],
    "functional_all_to_all": ["all_to_all"],
    "fsdp2": [GATHER] * 4 + [SCATTER] * 2,
    "dtensor": ["scatter", COALESCED],
    "subgroup": ["all_reduce"],
}
WANTED = {
    "fake": ALWAYS | CPLUSPLUS | {"coalesced_by_the_backend": ["reduce", "reduce", "coalesced"]},
    "custom": ALWAYS
    | REAL
    | CPLUSPLUS
    | {
        "ddp": ["all_gather", "broadcast", "broadcast", "all_reduce"],
        "pipeline": ["send 0->1", "recv 0<-1"] + (["send 0->1"] * 2 + ["recv 0<-1"] * 2) * 2,
    },
    "python": ALWAYS | REAL | {"ddp": ["all_gather", "broadcast", "broadcast", "all_reduce"]},
}


@pytest.fixture(scope="module", params=["fake", "custom", "python"])
def job(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """What one kind of group made of the program: names by part, and the last dump."""
    kind = request.param
    world_size = 1 if kind == "fake" else 2
    place = tmp_path_factory.mktemp(kind)
    env = {"TORCH_FR_BUFFER_SIZE": "0"} if kind == "custom" else {}
    with ArmedJob("recorder_full.py", world_size, place, (kind,), env) as job:
        seen = json.loads(job.wait_for(0, "seen"))
        dump = json.loads(job.wait_for(0, "dump"))
        job.wait_for(0, "done")
        assert [job.wait_end(rank) for rank in range(world_size)] == [0] * world_size
        assert [mark.failures for mark in job.marks()] == [()] * world_size
    return kind, seen, dump


def test_a_python_group_does_not_lock_itself(tmp_path: Path) -> None:
    """Torch calls what such a group inherits with the GIL held, which a backend's thread wants."""
    with ArmedJob("recorder_python_group.py", 2, tmp_path) as job:
        assert job.wait_for(0, "exchanged") == "3", "by its own method, whatever torch calls it"
        job.wait_for(0, "turned")
        assert [job.wait_end(rank) for rank in range(2)] == [0, 0]
        assert [mark.failures for mark in job.marks()] == [()] * 2


def test_every_call_is_seen(job: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    """Python's and C++'s, in the order in which they were made."""
    kind, seen, _ = job
    assert seen == WANTED[kind]


def test_every_call_is_seen_to_end(job: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    """Whoever waits for them: Python, C++, a future, nobody."""
    _, _, dump = job
    states = {(entry["state"], entry["retired"]) for entry in dump["entries"]}
    assert states == {("completed", True)}
    assert (dump["unhang"]["failures"], dump["unhang"]["problems"]) == ([], [])


def test_calls_are_numbered_as_torch_numbers_them(
    job: tuple[str, dict[str, Any], dict[str, Any]],
) -> None:
    """One number a collective or coalesced group; sends and receives in a space of their own."""
    _, _, dump = job
    rows = [e for e in dump["entries"] if e["process_group"][1] == "default_pg"]
    collective = p2p = 0
    for row in rows:
        op = row["profiling_name"].partition(":")[2].split()[0]
        p2p += row["is_p2p"]
        collective += not row["is_p2p"] and not inside_a_group(rows, row)
        assert (row["collective_seq_id"], row["p2p_seq_id"]) == (collective, p2p), op
    assert [row["op_id"] for row in rows] == list(range(1, len(rows) + 1))


def inside_a_group(rows: list[dict[str, Any]], row: dict[str, Any]) -> bool:
    """Whether a row shares the number of the row before it: a later member of a coalesced group."""
    names = [other["profiling_name"].partition(":")[2] for other in rows]
    at = rows.index(row)
    closing = [n for n, name in enumerate(names) if name == "coalesced"]
    return any(at in range(close - 1, close + 1) for close in closing)


def test_stacks_name_the_line_of_the_program(
    job: tuple[str, dict[str, Any], dict[str, Any]],
) -> None:
    """Each entry holds a frame of the program, innermost first."""
    _, _, dump = job
    for entry in dump["entries"]:
        files = [Path(frame["filename"]).name for frame in entry["frames"]]
        assert "recorder_full.py" in files
    first = dump["entries"][0]["frames"]
    assert [frame["name"] for frame in first][-3:] == ["<lambda>", "part", "<module>"]
