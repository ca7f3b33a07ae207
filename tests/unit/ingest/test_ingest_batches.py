"""Batches as torch writes them: the closing entry ends what stands before it, whatever it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decoders import load_with
from makedumps import dump, entry

from lab.recorder.torchfile import encode_pickle
from unhang.analysis.state.index import gather
from unhang.batches import find_batches
from unhang.case import Case
from unhang.ingest import load

DATA = Path(__file__).parents[2] / "data" / "nccl"
OPEN = {"state": "scheduled", "retired": False, "time_discovered_completed_ns": None}
NO_SIZES = {"input_sizes": [], "output_sizes": [], "input_dtypes": [], "output_dtypes": []}


def member(number: int, name: str, **changes: Any) -> Any:  # noqa: ANN401 - a JSON-like dict
    """A send or receive of a batch, which stays "scheduled"."""
    return entry(number, profiling_name=f"nccl:{name}", **{**OPEN, "is_p2p": True, **changes})


def closing(number: int, **changes: Any) -> Any:  # noqa: ANN401 - a JSON-like dict
    """The entry that closes a batch, as ProcessGroupNCCL writes it."""
    return entry(number, profiling_name="nccl:coalesced", **{**NO_SIZES, **changes})


def as_210(finished: dict[str, Any]) -> Any:  # noqa: ANN401 - a dump
    """2.5 and later: one P2P number a batch, the collective's stays."""
    at = {"collective_seq_id": 1, "p2p_seq_id": 1}
    rows = [
        entry(0),
        member(1, "send 0->1", op_id=2, **at),
        member(2, "recv 0<-1", op_id=3, **at),
        closing(3, op_id=3, **at, **finished),
        entry(4, collective_seq_id=2, p2p_seq_id=1, op_id=4),
    ]
    return dump(rows, ranks=2)


def as_21(finished: dict[str, Any]) -> Any:  # noqa: ANN401 - a dump
    """2.1 (torch 2.4): a batch takes a collective number, and P2P numbers stay at 0."""
    at = {"collective_seq_id": 2, "p2p_seq_id": 0}
    rows = [
        entry(0),
        member(1, "send 0->1", op_id=2, **at),
        member(2, "recv 0<-1", op_id=3, **at),
        closing(3, op_id=3, **at, **finished),
        entry(4, collective_seq_id=3, op_id=4),
    ]
    return dump([without_threads(row) for row in rows], ranks=2, version="2.1")


def as_list(finished: dict[str, Any]) -> Any:  # noqa: ANN401 - a dump
    """Torch 2.2 and 2.3: `seq_id` for everything, and nothing says what is P2P."""
    rows = [
        entry(0),
        member(1, "send 0->1", collective_seq_id=2),
        member(2, "recv 0<-1", collective_seq_id=2),
        closing(3, collective_seq_id=2, **finished),
        entry(4, collective_seq_id=3),
    ]
    return [oldest(row) for row in rows]


def without_threads(row: dict[str, Any]) -> dict[str, Any]:
    """Formats before 2.9."""
    return {key: value for key, value in row.items() if not key.startswith("thread_")}


def oldest(row: dict[str, Any]) -> dict[str, Any]:
    """Formats before 2.1."""
    gone = ("collective_seq_id", "p2p_seq_id", "is_p2p", "op_id", "process_group")
    kept = {key: value for key, value in without_threads(row).items() if key not in gone}
    return {**kept, "seq_id": row["collective_seq_id"]}


def read(folder: Path, content: Any) -> Case:  # noqa: ANN401 - a dump
    """The case of one rank's dump."""
    (folder / "nccl_trace_rank_0").write_bytes(encode_pickle(content))
    return load(folder)


@pytest.mark.parametrize("written", [as_210, as_21, as_list])
@pytest.mark.parametrize("finished", [True, False])
def test_a_closing_entry_ends_the_members_before_it(
    tmp_path: Path, written: Callable[[dict[str, Any]], Any], *, finished: bool
) -> None:
    """Members follow it, and it counts as P2P, though it says (or omits) otherwise."""
    evidence = gather(read(tmp_path, written({} if finished else OPEN)))
    assert evidence.collective.tolist() == [True, False, False, False, True]
    assert evidence.finished.tolist() == [True, finished, finished, finished, True]
    assert evidence.batches.last.tolist() == [0, 3, 3, 3, 4]
    assert evidence.case.calls.is_p2p[3]


def test_other_groups_and_threads_may_stand_between(tmp_path: Path) -> None:
    """What another thread or group calls meanwhile is no part of the batch."""
    at = {"collective_seq_id": 1, "p2p_seq_id": 1}
    rows = [
        member(0, "send 0->1", **at),
        entry(1, group=("1", "dp"), pg_id=1, **OPEN),
        entry(2, thread_name="pt_autograd_0", thread_id="2", collective_seq_id=2, **OPEN),
        closing(3, **at),
    ]
    evidence = gather(read(tmp_path, dump(rows, ranks=2)))
    assert evidence.finished.tolist() == [True, False, False, True]
    assert evidence.collective.tolist() == [False, True, True, False]


def test_batches_of_collectives_stay_collective(tmp_path: Path) -> None:
    """With members (2.7 and later) as without, also behind sends."""
    rows = [
        member(0, "send 0->1", collective_seq_id=0, p2p_seq_id=1, state="completed", retired=True),
        entry(1, profiling_name="nccl:allreduce_coalesced", collective_seq_id=1, p2p_seq_id=1),
        closing(2, collective_seq_id=1, p2p_seq_id=1),
        closing(3, collective_seq_id=2, p2p_seq_id=1),
    ]
    evidence = gather(read(tmp_path, dump(rows, ranks=2)))
    assert evidence.collective.tolist() == [False, True, True, True]


def test_members_that_nothing_closes_prove_nothing(tmp_path: Path) -> None:
    """A CUDA graph captures members without their closing entry: they never get another state."""
    at = {"collective_seq_id": 1, "p2p_seq_id": 1}
    rows = [
        entry(0),
        member(1, "send 0->1", **at),
        member(2, "recv 0<-1", **at),
        entry(3, collective_seq_id=2, p2p_seq_id=1),
    ]
    evidence = gather(read(tmp_path, dump(rows, ranks=2)))
    assert not len(evidence.open_rows)
    assert any("CUDA graph" in note.text for note in evidence.notes)


def test_a_send_alone_that_has_not_finished_is_open(tmp_path: Path) -> None:
    """Outside of batches the entry itself has the state."""
    rows = [member(0, "send 0->1", collective_seq_id=0, p2p_seq_id=1), entry(1)]
    assert gather(read(tmp_path, dump(rows, ranks=2))).open_rows.tolist() == [0]


def test_both_decoders_agree_about_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled one and the Python reader, on real dumps of a pipeline."""
    archive = DATA / "2.9.1" / "healthy_pipe-pipe.tar.gz"
    read = (load_with(archive, monkeypatch, native=native) for native in (False, True))
    cases = [case for case in read if case is not None]
    assert len(cases) == 2
    found = [find_batches(case.calls, case.names) for case in cases]
    assert np.array_equal(found[0].last, found[1].last)
    assert np.array_equal(found[0].p2p, found[1].p2p)
    assert np.array_equal(cases[0].calls.is_p2p, cases[1].calls.is_p2p)
    assert found[0].closed.any()
