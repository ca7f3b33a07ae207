"""The simulated recorder writes what torch's recorder writes, with its quirks."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from lab.layouts.table import build
from lab.model.draft import LayoutRequest
from lab.recorder.recorder import Recorder
from lab.recorder.recording import VERSIONS, Recording
from lab.recorder.writer import write_dumps
from lab.simulate.engine import run


def dump(layout: str = "megatron", rank: int = 0, backend: str = "nccl", **how: Any) -> Any:  # noqa: ANN401 - a dump
    """One rank's dump of a healthy job of eight ranks."""
    request = LayoutRequest(8, seed=1, backend="gloo" if backend == "gloo" else "nccl")
    outcome = run(build(layout, request), 1)
    return Recorder(outcome, Recording(**how), 1).dump(rank, backend)


def test_members_of_a_batch_stay_scheduled() -> None:
    """Only the closing entry tells that a batch has finished."""
    entries = dump("cp")["entries"]
    states = {(e["state"], e["retired"]) for e in entries if e["is_p2p"]}
    assert states == {("scheduled", False)}
    closing = [e for e in entries if e["profiling_name"] == "nccl:coalesced"]
    assert {(e["state"], e["is_p2p"]) for e in closing} == {("completed", False)}


def test_peers_are_group_ranks() -> None:
    """Names of sends and receives count inside the group."""
    names = {e["profiling_name"] for e in dump("cp", rank=5)["entries"] if e["is_p2p"]}
    assert names == {"nccl:send 1->2", "nccl:recv 1<-0"}


def test_local_ids_differ_between_ranks() -> None:
    """A local id numbers the groups of one process."""
    first, last = dump(rank=0), dump(rank=7)
    ids = [{e["process_group"]: e["pg_id"] for e in d["entries"]} for d in (first, last)]
    assert set(ids[0].values()) == set(ids[1].values())
    assert set(ids[0]) != set(ids[1])


def test_gloo_quirks() -> None:
    """Always scheduled, retired when done, broken groups, counters of operations."""
    gloo = dump("tp", backend="gloo")
    assert {(e["state"], e["retired"]) for e in gloo["entries"]} == {("scheduled", True)}
    assert gloo["pg_config"] == {"": {"name": "", "desc": "", "ranks": "[]"}}
    assert gloo["pg_status"]["0"]["last_started_collective"] == -1


def test_gloo_records_no_send_or_receive() -> None:
    """They only advance the operation counter."""
    assert not any(e["is_p2p"] for e in dump("pp", backend="gloo")["entries"])


def test_the_ring_forgets() -> None:
    """Only the newest entries are left, with their own record ids; a ring may have no room."""
    entries = dump(buffer=10)["entries"]
    assert len(entries) == 10
    assert entries[0]["record_id"] > 0
    assert dump(buffer=0)["entries"] == []


def test_active_entries_only() -> None:
    """What was seen to finish is left out; members of finished batches are not."""
    names = {e["profiling_name"].split()[0] for e in dump("cp", active_only=True)["entries"]}
    assert names == {"nccl:send", "nccl:recv"}


def test_timing_tells_starts() -> None:
    """Without timing nobody knows when a call began."""
    timed, untimed = dump("ddp", timing=True), dump("ddp")
    assert timed["entries"][0]["time_discovered_started_ns"]
    assert timed["entries"][0]["duration_ms"] > 0
    assert untimed["entries"][0]["time_discovered_started_ns"] is None


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_have_their_keys(version: str) -> None:
    """Each version has what it had, and not what came later."""
    written = dump("ddp", version=version)
    entries = written if version == "list" else written["entries"]
    assert ("seq_id" in entries[0]) == (version in ("list", "1.4"))
    assert ("thread_id" in entries[0]) == (version in ("2.9", "2.10"))
    if version != "list":
        assert ("pg_status" in written) == (version not in ("1.4", "2.1", "2.2"))


def test_coalesced_collectives_before_27() -> None:
    """Up to 2.6 only the closing entry is recorded."""
    old, new = dump("uneven", version="2.6"), dump("uneven", version="2.7")
    assert not any("_broadcast_oop" in e["profiling_name"] for e in old["entries"])
    assert any("_broadcast_oop" in e["profiling_name"] for e in new["entries"])


def test_stuck_inside_enqueue_is_not_counted() -> None:
    """The entry exists, the counter stands before it."""
    from dataclasses import replace

    plan = build("ddp", LayoutRequest(4, seed=1))
    program = plan.programs[2]
    at = max(i for i, step in enumerate(program) if getattr(step, "op", "") == "all_reduce")
    program[at] = replace(program[at], inside=True)  # type: ignore[type-var]
    written = Recorder(run(plan, 1), Recording(), 1).dump(2, "nccl")
    last = written["entries"][-1]["collective_seq_id"]
    assert written["pg_status"]["0"]["last_enqueued_collective"] == last - 1


def test_files_round_trip(tmp_path: Path) -> None:
    """Pickle and JSON files hold the dump; lost, empty and cut ones are as they should be."""
    outcome = run(build("ddp", LayoutRequest(4, seed=1)), 1)
    how = Recording(missing=frozenset({1}), empty=frozenset({2}), truncated=frozenset({3}))
    write_dumps(outcome, how, 1, tmp_path / "pickle")
    write_dumps(outcome, Recording(json=True), 1, tmp_path / "json")
    whole = pickle.loads((tmp_path / "pickle" / "rank_0").read_bytes())  # noqa: S301 - our own bytes
    assert whole == Recorder(outcome, Recording(), 1).dump(0, "nccl")
    assert not (tmp_path / "pickle" / "rank_1").exists()
    assert (tmp_path / "pickle" / "rank_2").read_bytes() == b""
    with pytest.raises((pickle.UnpicklingError, EOFError)):
        pickle.loads((tmp_path / "pickle" / "rank_3").read_bytes())  # noqa: S301 - our own bytes
    texts = json.loads((tmp_path / "json" / "rank_0").read_bytes())
    assert "frames" not in texts["entries"][0]


def test_places_of_files(tmp_path: Path) -> None:
    """Several recorders and several replicas have folders of their own; hosts stand in names."""
    write_dumps(run(build("mixed", LayoutRequest(4)), 1), Recording(), 1, tmp_path / "a")
    write_dumps(run(build("torchft", LayoutRequest(4)), 1), Recording(), 1, tmp_path / "b")
    write_dumps(run(build("ddp", LayoutRequest(16)), 1), Recording(names="host"), 1, tmp_path / "c")
    found = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert {"a/nccl/rank_3", "a/gloo/rank_3", "b/replica_1/rank_1"} <= found
    assert "c/nccl_trace_rank_node02_15" in found
