"""The encoder writes what torch writes, byte for byte."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lab.recorder.torchfile import encode_json, encode_pickle

DATA = Path(__file__).parents[2] / "data"
GLOO = DATA / "gloo_2.13" / "comm_lib_trace_rank_0"


@pytest.mark.parametrize("path", [GLOO, DATA / "nvrx" / "_dump_14"], ids=lambda p: p.name)
def test_a_real_pickle_comes_out_as_it_was(path: Path) -> None:
    """Decoding a real dump and encoding it again changes no byte."""
    real = path.read_bytes()
    assert encode_pickle(pickle.loads(real)) == real  # noqa: S301 - our own fixture


def test_the_json_of_a_dump_is_torchs_own() -> None:
    """The JSON made from the pickle equals what torch wrote at the same moment."""
    dump = pickle.loads(GLOO.read_bytes())  # noqa: S301 - our own fixture
    assert encode_json(dump) == GLOO.with_suffix(".json").read_bytes()


def test_values_of_every_width_survive() -> None:
    """Each opcode that depends on a value's size decodes to the value."""
    integers = [-(2**63), -(2**31) - 1, -1, 0, 255, 256, 65535, 65536, 2**31, 2**63 - 1]
    dump = {
        "integers": integers,
        "strings": [f"s{i}" for i in range(300)] * 2,
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "other": [None, True, False, 1.5, "ü", [], {}],
    }
    assert pickle.loads(encode_pickle(dump)) == dump  # noqa: S301 - made one line above


def test_sharing_lists_changes_no_byte() -> None:
    """Entries may share lists to be faster; the file is the same."""
    frame = {"name": "f", "filename": "f.py", "line": 3}

    def dump(*, shared: bool) -> dict[str, object]:
        sizes, frames = [[4, 5]], [frame, frame]
        return {
            "entries": [
                {
                    "frames": frames if shared else list(frames),
                    "input_sizes": sizes if shared else [[4, 5]],
                }
                for _ in range(3)
            ]
        }

    assert encode_pickle(dump(shared=True)) == encode_pickle(dump(shared=False))


def test_foreign_types_are_refused() -> None:
    """What torch cannot write, the encoder does not invent."""
    with pytest.raises(TypeError, match="never writes a bytes"):
        encode_pickle({"entries": [{"state": b"scheduled"}]})


def test_json_has_no_entries_when_there_are_none() -> None:
    """Torch leaves the key out."""
    assert encode_json({"version": "2.10", "entries": []}) == (
        b'{"nccl_comm_state":{},"pg_status":{},"version":"2.10"}'
    )
