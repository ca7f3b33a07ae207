"""`load` end to end, on small folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from makedumps import SECOND, T0, dump, entry, write

from unhang.errors import InputError, NoEvidenceError, UsageError
from unhang.ingest import load
from unhang.model import DumpStatus, Frame, Group, Signature, State


def test_a_call_is_read_with_everything_that_it_says(tmp_path: Path) -> None:
    """Each key of an entry arrives in its column."""
    write(tmp_path, {"nccl_trace_rank_0": dump([entry(7, duration_ms=2.5)], ranks=1)})
    case = load(tmp_path)
    call = case.call(0)
    assert case.world_size == 1
    assert not case.world_size_inferred
    assert call.group == Group("0", "default_pg", (0,), inferred=False, backend="nccl")
    assert (call.name.backend, call.name.op) == ("nccl", "all_reduce")
    assert (call.record_id, call.seq, call.p2p_seq, call.op_id) == (7, 8, 0, 8)
    assert (call.state, call.retired, call.is_p2p) == (State.COMPLETED, True, False)
    assert call.signature == Signature(((4, 5),), ((4, 5),), ("Float",), ("Float",))
    assert (call.created_ns, call.started_ns) == (T0 + 7 * SECOND, 0)
    assert (call.completed_ns, call.duration_ms) == (T0 + 7 * SECOND + 1000, 2.5)
    assert (call.timeout_ms, call.thread) == (600_000, "python")
    assert call.frames[1] == Frame("step", "train.py", 11)


def test_pickle_and_json_of_one_dump_say_the_same(tmp_path: Path) -> None:
    """Only frames are missing from JSON."""
    write(tmp_path, {"a/rank_0": dump(), "b/rank_0.json": dump()})
    pickled, text = load(tmp_path / "a"), load(tmp_path / "b")
    assert pickled.calls.record_id.tolist() == text.calls.record_id.tolist()
    assert pickled.call(1).signature == text.call(1).signature
    assert pickled.group_status.last_enqueued.tolist() == text.group_status.last_enqueued.tolist()
    assert pickled.dumps[0].has_stacks
    assert not text.dumps[0].has_stacks


def test_one_bad_file_is_a_status_and_a_note(tmp_path: Path) -> None:
    """Ranks whose files cannot be read keep a place, and the rest is read."""
    whole = dump(20)
    write(tmp_path, {f"nccl_trace_rank_{r}": whole for r in (0, 4)})
    write(
        tmp_path,
        {
            "nccl_trace_rank_1": b"",
            "nccl_trace_rank_2": (tmp_path / "nccl_trace_rank_0").read_bytes()[:-100],
            "nccl_trace_rank_3": bytes(range(7, 200)) * 9,
            "README.md": b"# not a dump",
            "notes": b"nothing",
        },
    )
    case = load(tmp_path)
    assert {d.rank: d.status for d in case.dumps} == {
        0: DumpStatus.OK,
        1: DumpStatus.EMPTY,
        2: DumpStatus.TRUNCATED,
        3: DumpStatus.UNREADABLE,
        4: DumpStatus.OK,
    }
    cut = case.dumps[2]
    assert 0 < cut.stop - cut.start < 20
    assert {Path(n.source).name for n in case.notes if n.level != "info"} == {
        "nccl_trace_rank_1", "nccl_trace_rank_2", "nccl_trace_rank_3",
    }  # fmt: skip
    assert any("skipped 1 file" in note.text for note in case.notes)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"world_size": 0}, UsageError, "--world-size 0"),
        ({"group_world_size": -1}, UsageError, "--group-world-size -1"),
        ({"rank_pattern": "(["}, UsageError, "not a regular expression"),
        ({"rank_pattern": r"\d+"}, UsageError, "no group"),
        ({"incident": "yesterday"}, UsageError, "no incident"),
    ],
)
def test_wrong_options_are_named(
    tmp_path: Path, arguments: dict[str, object], error: type[Exception], words: str
) -> None:
    """One sentence says which option is wrong."""
    write(tmp_path, {"rank_0": dump()})
    with pytest.raises(error, match=words):
        load(tmp_path, **arguments)  # type: ignore[arg-type]  # wrong on purpose


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    """A missing path, an empty folder and a folder without any readable dump."""
    with pytest.raises(InputError, match="does not exist"):
        load(tmp_path / "nowhere")
    with pytest.raises(NoEvidenceError, match="no files"):
        load(tmp_path)
    write(tmp_path, {"rank_0": b"", "rank_1": b"\x00" * 100})
    with pytest.raises(NoEvidenceError, match=r"rank_0: it is empty \(and 1 more\)"):
        load(tmp_path)
