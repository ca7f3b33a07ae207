"""What is written in torch's layout is what our reader gets, for each version of the format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import entries

from lab.recorder.layout import ENTRY_KEYS, dump_of, entry_of, group_config, group_status
from lab.recorder.recording import VERSIONS
from lab.recorder.torchfile import encode_json, encode_pickle
from unhang.ingest.pickles.unpickle import unpickle

REAL = Path(__file__).parents[2] / "data" / "gloo_2.13" / "comm_lib_trace_rank_0"


def made(rows: list[dict[str, Any]], version: str) -> Any:  # noqa: ANN401 - a dict or a list
    """A dump of a version with such entries."""
    kept = [{key: row[key] for key in row if key in ENTRY_KEYS} for row in rows]
    return dump_of(
        [entry_of(row, version) for row in kept],
        version,
        config={"0": group_config("0", "default_pg", "[0, 1]")},
        status={"0": group_status(3, -1, 2)},
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=entries(), version=st.sampled_from(VERSIONS))
def test_the_reader_gets_what_was_written(rows: list[dict[str, Any]], version: str) -> None:
    """decode(encode(x)) == x: nothing is lost, changed or added on the way through bytes."""
    dump = made(rows, version)
    read = unpickle(encode_pickle(dump))
    assert read.value == dump


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=entries(), version=st.sampled_from([v for v in VERSIONS if v != "list"]))
def test_so_does_the_reader_of_json(rows: list[dict[str, Any]], version: str) -> None:
    """But for what torch's JSON leaves out or says in another way: frames, no time, counters."""
    dump = made(rows, version)
    read = json.loads(encode_json(dump))
    assert (read["version"], read["pg_config"]) == (version, dump["pg_config"])
    wanted = [{key: row[key] for key in row if key != "frames"} for row in dump["entries"]]
    for row in wanted:
        row |= {key: row[key] or 0 for key in row if key.startswith("time_discovered")}
    assert read.get("entries", []) == json.loads(json.dumps(wanted))


def test_keys_stand_in_torchs_order() -> None:
    """A real dump's entry, taken apart and laid out again, has its keys where they were."""
    real = unpickle(REAL.read_bytes()).value
    assert isinstance(real, dict)
    for row in real["entries"]:
        assert list(entry_of(dict(reversed(row.items())))) == list(row)


def test_what_torch_never_writes_is_refused() -> None:
    """A key of nobody's is a mistake of the caller."""
    with pytest.raises(KeyError, match="colour"):
        entry_of({"colour": "red"})
