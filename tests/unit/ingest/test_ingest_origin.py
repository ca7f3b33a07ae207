"""What our own recorder writes under the key `unhang`, and look-alikes of torch's dumps."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from decoders import load_with
from makedumps import T0, dump, entry, write

from unhang.ingest import load
from unhang.model import Frame, State


def test_our_entries_are_merged_in_program_order(tmp_path: Path) -> None:
    """Each follows the record of torch's that it names; -1 is before all of them."""
    ours = [
        {**entry(0, profiling_name="gloo:send 0->1", is_p2p=True), "after_record_id": -1},
        {**entry(1, profiling_name="gloo:recv 0<-1", is_p2p=True), "after_record_id": 1},
        {**entry(2, profiling_name="gloo:send 0->1", state="started"), "after_record_id": 1,
         "error": "RuntimeError: timed out"},
        {**entry(3, profiling_name="gloo:recv 0<-1"), "after_record_id": 9},
    ]  # fmt: skip
    torchs = [entry(i, profiling_name="gloo:all_reduce") for i in (0, 1, 2)]
    write(tmp_path, {"rank_0": dump(torchs, ranks=2, unhang={"rank": 0, "entries": ours})})
    case = load(tmp_path)
    assert [(c.name.op, c.record_id) for c in map(case.call, range(case.n_calls))] == [
        ("send", 0), ("all_reduce", 0), ("all_reduce", 1), ("recv", 1), ("send", 2),
        ("all_reduce", 2), ("recv", 3),
    ]  # fmt: skip
    assert case.calls.origin.tolist() == [1, 0, 0, 1, 1, 0, 1]
    assert case.call(4).state == State.FAILED
    assert case.dumps[0].reported_by == "unhang"


def test_the_file_says_who_it_is(tmp_path: Path) -> None:
    """Identity and circumstances come from the file, whatever it is called."""
    extra = {
        "rank": 3, "local_rank": 1, "world_size": 8, "host": "node01", "pid": 4711,
        "job_id": "job", "attempt": 2, "incident": "hang-1", "backend": "gloo",
        "reason": "watch", "time_ns": T0, "step": 17, "dropped": 5, "replica": "r1",
        "failures": [{"op": "all_reduce", "description": "tp", "error": "RuntimeError: x"}],
        "problems": ["torch's nccl recorder: gone"],
        "exception": {"type": "ValueError", "message": "bad batch",
                      "frames": [{"name": "load", "filename": "data.py", "line": 7}]},
        "stacks": {"main": [{"name": "step", "filename": "train.py", "line": 5}]},
        "entries": [], "open_tags": [[28, 15], [29, 16]],
    }  # fmt: skip
    write(tmp_path, {"rank_0": pickle.dumps(dump(0, ranks=8, unhang=extra), protocol=2)})
    case = load(tmp_path)
    found = case.dumps[0]
    assert (found.rank, found.local_rank, found.host, found.pid) == (3, 1, "node01", 4711)
    assert (found.job_id, found.attempt, found.incident) == ("job", "2", "hang-1")
    assert (found.reason, found.time_ns, found.step, found.dropped) == ("watch", T0, 17, 5)
    assert (found.replica, found.backend) == ("r1", "gloo")
    assert found.failures == ("all_reduce (tp): RuntimeError: x",)
    assert found.exception == "ValueError: bad batch"
    assert found.exception_stack == (Frame("load", "data.py", 7),)
    assert found.main_stack == (Frame("step", "train.py", 5),)
    assert found.open_tags == ((28, 15), (29, 16))
    assert case.world_size == 8
    assert not case.world_size_inferred
    texts = [note.text for note in case.notes]
    assert "recorder: torch's nccl recorder: gone" in texts
    assert "is rank 3 as the file says, not 0 as its name says" in texts


def test_hostile_identity_is_ignored(tmp_path: Path) -> None:
    """Wrong types and absurd values under `unhang` become unknown."""
    extra = {
        "rank": "three", "world_size": -4, "host": ["x"], "pid": 2**70, "failures": "all",
        "stacks": [1], "exception": "boom", "entries": {"a": 1}, "time_ns": None,
    }  # fmt: skip
    write(tmp_path, {"rank_2": pickle.dumps(dump(unhang=extra), protocol=4)})
    found = load(tmp_path).dumps[0]
    assert (found.rank, found.host, found.pid, found.time_ns) == (2, "", -1, 0)
    assert (found.failures, found.exception, found.main_stack) == ((), "", ())


@pytest.mark.parametrize("name", ["rank_0", "rank_0.json"])
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("told", "found"),
    [
        (None, None),
        ("all", None),
        ({"28": 15}, None),
        (15, None),
        ([], ()),
        ([[28, 15], 7, None, "ab", [1], [1, 2, 3], [[], {}]], ((28, 15),)),
        ([[-1, 5], [1, -1], [2, 2**31], [2**70, 3], ["x", 4], [4, 2**31 - 1]], ((4, 2**31 - 1),)),
        ([[number, 0] for number in range(300)], tuple((number, 0) for number in range(44, 300))),
    ],
)
def test_tags_are_pairs_of_a_number_and_a_tag(
    told: object,
    found: tuple[tuple[int, int], ...] | None,
    name: str,
    native: bool,  # noqa: FBT001 - a parameter of the test
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever else is said there is left out, and of many the newest stay."""
    content = dump(unhang={"rank": 0, "open_tags": told})
    write(tmp_path, {name: content if "json" in name else pickle.dumps(content, protocol=2)})
    case = load_with(tmp_path, monkeypatch, native=native)
    assert case is not None
    assert case.dumps[0].open_tags == found


def test_a_process_without_a_rank_is_no_rank(tmp_path: Path) -> None:
    """`rank_pid4711` is not rank 4711."""
    write(tmp_path, {"rank_0": dump(ranks=1), "rank_pid4711": dump(0, pg_config={})})
    case = load(tmp_path)
    assert case.ranks_with_dump == (0,)
    assert any("rank_pid4711" in note.source for note in case.notes)


def _torchcomms(first: int) -> dict[str, object]:
    """As torchcomms writes: one counter over all groups, no peers, no counters."""
    calls = [("0", "all_reduce"), ("1", "all_reduce"), ("0", "send"), ("0", "all_reduce")]
    rows = [
        entry(
            first + i, group=(group, "ncclx"), profiling_name=f"ncclx:{op}",
            collective_seq_id=first + i + 1,
        )
        for i, (group, op) in enumerate(calls)
    ]  # fmt: skip
    return dump(rows, pg_status={})


def test_torchcomms_numbers_are_made_comparable(tmp_path: Path) -> None:
    """Calls are numbered per group where the first call is there, and unknown where it is not."""
    write(tmp_path, {"rank_0": _torchcomms(0), "rank_1": _torchcomms(500)})
    case = load(tmp_path)
    assert [d.reported_by for d in case.dumps] == ["torchcomms", "torchcomms"]
    assert case.calls.seq.tolist() == [1, 1, -1, 2, -1, -1, -1, -1]
    assert case.calls.is_p2p.tolist() == [False, False, True, False] * 2
