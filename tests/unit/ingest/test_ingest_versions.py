"""Every version's layout, and whatever is random about it, arrives as it was written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decoders import load_with
from hypothesis import given, settings
from hypothesis import strategies as st
from makedumps import T0, dump, entry, write
from strategies import dumps, encoders

from lab.recorder.torchfile import encode_json
from unhang.case import Case
from unhang.ingest import assemble, load
from unhang.ingest.columns.dictionaries import parse_op
from unhang.model import Frame, OpName, State
from unhang.wording import fold_ranks

DATA = Path(__file__).parents[2] / "data"
NCCL = DATA / "nccl"

OLD_KEYS = ("op_id", "is_p2p", "input_dtypes", "output_dtypes", "timeout_ms", "process_group",
            "thread_name", "thread_id", "p2p_seq_id", "collective_seq_id")  # fmt: skip


def old(number: int, *without: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON-like
    """An entry as torch before 2.0's format wrote it: `seq_id` counts everything."""
    plain = entry(number, seq_id=number + 1, **changes)
    return {key: value for key, value in plain.items() if key not in OLD_KEYS + without}


def test_a_list_of_entries_is_a_dump(tmp_path: Path) -> None:
    """Torch 2.2 and older: no dict around the entries, `sizes` for the input's."""
    rows = []
    for i in range(2):
        row = old(i, "record_id", "input_sizes", "output_sizes", "retired", sizes=[[2, 3]])
        rows.append({**row, "profiling_name": "nccl:recv 0<-1"})
    write(tmp_path, {"rank_0": rows})
    case = load(tmp_path)
    call = case.call(1)
    assert (case.dumps[0].version, call.record_id, call.seq, call.p2p_seq) == ("", -1, 0, 2)
    assert (call.op_id, call.timeout_ms, call.thread) == (-1, -1, "")
    assert call.signature.input_sizes == ((2, 3),)
    assert call.is_p2p
    assert call.retired
    assert call.group.name == "0"


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.4"])
def test_versions_before_2(version: str, tmp_path: Path) -> None:
    """Groups have only their local id, which is the key of `pg_config` where there is one."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    content = {"version": version, "entries": [old(3, "retired", state="started")]}
    if version == "1.4":
        content |= {"pg_config": config, "nccl_comm_state": {}}
    write(tmp_path, {"nccl_trace_rank_1": content})
    case = load(tmp_path)
    call = case.call(0)
    assert (case.dumps[0].version, call.seq, call.state) == (version, 4, State.STARTED)
    assert not call.retired
    assert call.group.members == ((0, 1) if version == "1.4" else (1,))


@pytest.mark.parametrize(
    ("key", "reporter"),
    [("nccl_comm_state", "torch"), ("hccl_comm_state", "hccl"), ("bccl_comm_state", "bccl")],
)
def test_forks_are_named(key: str, reporter: str, tmp_path: Path) -> None:
    """Forks keep torch's layout and rename one key."""
    write(tmp_path, {"rank_0": dump(version="2.4", **{key: {}})})
    assert load(tmp_path).dumps[0].reported_by == reporter


def test_an_unknown_later_version_is_read_and_said(tmp_path: Path) -> None:
    """Version "2.10" is newer than "2.9", and "3.0" newer than both."""
    write(tmp_path, {f"rank_{i}": dump(version=v) for i, v in enumerate(("2.9", "2.10", "3.0"))})
    case = load(tmp_path)
    assert [d.version for d in case.dumps] == ["2.9", "2.10", "3.0"]
    assert [n.text for n in case.notes] == ["read format 3.0 like 2.10, the newest known format"]


def test_json_counters_are_text_and_zero_is_no_time(tmp_path: Path) -> None:
    """What JSON says in its own way means the same."""
    content = dump(1)
    content["entries"][0]["time_discovered_completed_ns"] = None
    write(tmp_path, {"rank_0.json": content})
    assert b'"last_enqueued_collective":"1"' in (tmp_path / "rank_0.json").read_bytes()
    case = load(tmp_path)
    assert case.group_status.last_enqueued.tolist() == [1]
    assert case.calls.completed_ns.tolist() == [0]


def test_entries_out_of_order_are_sorted(tmp_path: Path) -> None:
    """By record id, and said so."""
    write(tmp_path, {"rank_0": dump([entry(5), entry(3), entry(4)])})
    case = load(tmp_path)
    assert case.calls.record_id.tolist() == [3, 4, 5]
    assert any("sorted" in note.text for note in case.notes)


@pytest.mark.parametrize("few", [0, 16])
@pytest.mark.parametrize(
    ("rows", "status", "active_only"),
    [
        ([entry(i) for i in range(3)], 3, False),
        ([entry(i, state="scheduled", retired=False) for i in range(3)], 3, False),
        ([entry(i, state="scheduled", retired=False) for i in (0, 7)], 9, True),
        ([entry(7, state="scheduled", retired=False)], 9, True),
        ([entry(0, state="scheduled", retired=False), entry(7)], 9, False),
        ([], 9, True),
        ([], -1, False),
        ([entry(i + 500, state="scheduled", retired=False) for i in range(2000)], 9, False),
    ],
)
def test_active_only_dumps_are_recognised(
    rows: list[Any],
    status: int,
    few: int,
    *,
    active_only: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They hold unfinished calls only, although others were made; few or many, that is the same."""
    monkeypatch.setattr(assemble, "_FEW", few)
    counters = {"last_enqueued_collective": status}
    write(tmp_path, {"rank_0": dump(rows, pg_status={"0": counters})})
    assert load(tmp_path).dumps[0].active_only is active_only


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("nccl:all_reduce", OpName("nccl:all_reduce", "nccl", "all_reduce")),
        ("nccl:send 3->11", OpName("nccl:send 3->11", "nccl", "send", 3, 11)),
        ("nccl:recv 1<-0", OpName("nccl:recv 1<-0", "nccl", "recv", 0, 1)),
        ("nccl2:recv 2<-?", OpName("nccl2:recv 2<-?", "nccl2", "recv", -1, 2)),
        ("ncclx:send", OpName("ncclx:send", "ncclx", "send")),
        ("barrier", OpName("barrier", "", "barrier")),
        ("", OpName("", "", "")),
    ],
)
def test_names_of_ops(raw: str, expected: OpName) -> None:
    """Backend, operation and the two ends of a send or receive."""
    assert parse_op(raw) == expected


def test_a_real_dump_is_read() -> None:
    """Pickle and JSON of one moment of a real job agree; so does a copy saved by Python."""
    gloo = DATA / "gloo_2.13" / "comm_lib_trace_rank_0"
    case, text = load(gloo), load(gloo.with_suffix(".json"))
    calls, same = ([each.call(row).name.op for row in range(each.n_calls)] for each in (case, text))
    assert calls == same
    assert case.call(0).frames[2] == Frame("step", "/home/user/train.py", 5)
    assert case.dumps[0].backend == text.dumps[0].backend == "gloo"
    nvrx = load(DATA / "nvrx" / "_dump_14")
    assert nvrx.dumps[0].active_only
    assert nvrx.world_size == 16
    assert not any(s == -1 for s in nvrx.group_status.group.tolist())


def as_written(case: Case) -> list[dict[str, Any]]:
    """A case's calls in torch's keys again."""
    rows = []
    for i in range(len(case.calls)):
        call = case.call(i)
        rows.append(
            {
                "frames": [
                    {"name": f.function, "filename": f.file, "line": f.line} for f in call.frames
                ],
                "record_id": call.record_id,
                "pg_id": -1,
                "process_group": (call.group.name, call.group.description),
                "thread_name": call.thread.partition(" #")[0],
                "thread_id": None,
                "collective_seq_id": call.seq,
                "p2p_seq_id": call.p2p_seq,
                "op_id": call.op_id,
                "profiling_name": call.name.raw,
                "time_created_ns": call.created_ns,
                "duration_ms": call.duration_ms,
                "input_sizes": [list(s) for s in call.signature.input_sizes],
                "input_dtypes": list(call.signature.input_dtypes),
                "output_sizes": [list(s) for s in call.signature.output_sizes],
                "output_dtypes": list(call.signature.output_dtypes),
                "state": call.state.name.lower(),
                "time_discovered_started_ns": call.started_ns or None,
                "time_discovered_completed_ns": call.completed_ns or None,
                "retired": call.retired,
                "timeout_ms": call.timeout_ms,
                "is_p2p": call.is_p2p,
            }
        )
    return rows


def comparable(rows: list[dict[str, Any]], *, json_only: bool) -> list[dict[str, Any]]:
    """Entries with what a missing key means, and without what the case does not keep.

    What closes a batch counts as what its members are, whatever it says of itself.
    """
    missing = {"frames": [], "op_id": -1, "timeout_ms": -1, "duration_ms": None}
    dropped = {"pg_id", "thread_id"} | ({"frames"} if json_only else set())
    rows = [{k: v for k, v in {**missing, **row}.items() if k not in dropped} for row in rows]
    for row in rows:
        if row["profiling_name"] == "nccl:coalesced":
            del row["is_p2p"]
    return rows


@settings(deadline=None, max_examples=60)
@given(content=dumps(), encode=st.one_of(encoders, st.just(encode_json)))
def test_decoding_gives_back_what_was_encoded(
    content: dict[str, Any],
    encode: Callable[[Any], bytes],
    tmp_path_factory: Any,  # noqa: ANN401 - pytest's
) -> None:
    """Any call of any shape, through any pickler and through JSON."""
    folder = tmp_path_factory.mktemp("dumps")
    (folder / "rank_0").write_bytes(encode(content))
    got = comparable(as_written(load(folder)), json_only=encode is encode_json)
    assert got == comparable(content["entries"], json_only=encode is encode_json)


@pytest.mark.parametrize("native", [False, True])
def test_torch_23_knows_groups_by_their_ranks(
    monkeypatch: pytest.MonkeyPatch, *, native: bool
) -> None:
    """`pg_config` is a dict of local ids and lists of ranks; one group has other ids elsewhere."""
    case = load_with(NCCL / "2.3.1" / "crossed_blocking-pipe.tar.gz", monkeypatch, native=native)
    assert case is not None
    found = {(g.name, g.description, g.members) for g in case.groups}
    pairs = [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert found == {
        ("0", "default_pg", (0, 1, 2, 3)),
        *((f"ranks {fold_ranks(pair)}", "", pair) for pair in pairs),
    }


@pytest.mark.parametrize("native", [False, True])
def test_torch_22_counts_microseconds(monkeypatch: pytest.MonkeyPatch, *, native: bool) -> None:
    """And tells starts, whether that was asked for or not."""
    case = load_with(NCCL / "2.2.2" / "stall-asked.tar.gz", monkeypatch, native=native)
    assert case is not None
    assert {time // 10**18 for time in case.calls.created_ns.tolist()} == {1}
    states = [case.call(row).state for row in range(case.dumps[0].start, case.dumps[0].stop)]
    assert states[-2:] == [State.COMPLETED, State.STARTED]


def test_torch_24_let_exchanges_take_the_numbers_of_collectives() -> None:
    """Each stage of a pipeline had other numbers; counted apart, all are at the same all_reduce."""
    case = load(NCCL / "2.4.1" / "healthy_pipeline-pipe.tar.gz")
    calls = case.calls
    reduces = np.asarray([name.op == "all_reduce" for name in case.names])[calls.name]
    seqs = {rank: calls.seq[reduces & (calls.rank == rank)].tolist() for rank in range(4)}
    assert len({tuple(found) for found in seqs.values()}) == 1
    assert seqs[0] == [1, 2, 3, 4]


@pytest.mark.parametrize("version", ["2.4.1", "2.8.0", "2.13.0"])
def test_files_numbered_within_a_group_of_some_ranks(version: str) -> None:
    """Torch names a file by the rank in the first NCCL group; its groups know better."""
    case = load(NCCL / version / "upper_half-pipe.tar.gz")
    assert sorted(dump.rank for dump in case.dumps) == [2, 3]
    assert any("numbered within one group" in note.text for note in case.notes)


def test_no_time_is_no_number_of_a_time(tmp_path: Path) -> None:
    """A duration that is no number, and JSON's own spellings of infinity."""
    rows = [entry(0, duration_ms="fast"), entry(1, duration_ms=math.inf, timeout_ms="600000")]
    (tmp_path / "rank_0.json").write_text(json.dumps({"entries": rows, "version": 2.3}))
    case = load(tmp_path)
    assert case.call(0).duration_ms is None
    assert case.calls.timeout_ms.tolist() == [600_000, 600_000]
    assert case.calls.created_ns.tolist()[0] == T0
    assert case.dumps[0].version == "2.3"
