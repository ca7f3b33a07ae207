"""Random dumps: torch's layout, in any order and mixture that a reader may meet."""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import strategies as st
from makedumps import T0, dump, entry

from lab.recorder.torchfile import encode_pickle

GROUPS = (("0", "default_pg"), ("1", "tp"), ("17", ""), ("dp_3", "undefined"))
OPS = ("nccl:all_reduce", "nccl:send 0->1", "nccl:recv 1<-0", "gloo:barrier", "nccl:coalesced")

sizes = st.lists(st.lists(st.integers(0, 2**40), max_size=4), max_size=4)
dtypes = st.lists(st.sampled_from(["Float", "BFloat16", "Long", "ü"]), max_size=4)
frames = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["step", "forward", "<module>", ""]),
            "filename": st.sampled_from(["train.py", "/home/user/modèle.py"]),
            "line": st.integers(0, 100_000),
        }
    ),
    max_size=5,
)
times = st.one_of(st.none(), st.integers(T0, T0 + 10**12))
numbers = st.integers(-1, 2**62)


@st.composite
def entries(draw: st.DrawFn, most: int = 12) -> list[Any]:
    """Entries of one dump, with record ids that grow."""
    pool = draw(st.lists(frames, min_size=1, max_size=3))
    count = draw(st.integers(0, most))
    first = draw(st.integers(0, 100_000))
    step = draw(st.integers(1, 3))
    return [draw(one_entry(first + step * i, pool)) for i in range(count)]


@st.composite
def one_entry(draw: st.DrawFn, record_id: int, pool: list[Any]) -> Any:  # noqa: ANN401 - JSON-like
    """One entry; sometimes without a key that the format may lack."""
    group = draw(st.sampled_from(GROUPS))
    changes: dict[str, Any] = {
        "frames": draw(st.one_of(st.none(), st.sampled_from(pool))),
        "pg_id": GROUPS.index(group),
        "thread_name": draw(st.sampled_from(["python", "pt_autograd_0", ""])),
        "thread_id": draw(st.sampled_from(["140", "141"])),
        "collective_seq_id": draw(numbers),
        "p2p_seq_id": draw(numbers),
        "op_id": draw(numbers),
        "profiling_name": draw(st.sampled_from(OPS)),
        "time_created_ns": draw(st.integers(T0, T0 + 10**12)),
        "duration_ms": draw(st.one_of(st.none(), st.floats(0, 1e9))),
        "input_sizes": draw(sizes),
        "output_sizes": draw(sizes),
        "input_dtypes": draw(dtypes),
        "output_dtypes": draw(dtypes),
        "state": draw(st.sampled_from(["scheduled", "started", "completed"])),
        "time_discovered_started_ns": draw(times),
        "time_discovered_completed_ns": draw(times),
        "retired": draw(st.booleans()),
        "timeout_ms": draw(st.integers(0, 2**33)),
        "is_p2p": draw(st.booleans()),
    }
    plain = entry(record_id, group=group, **changes)
    for key in draw(st.sets(st.sampled_from(["thread_id", "timeout_ms", "op_id"]), max_size=1)):
        plain.pop(key, None)
    return plain


@st.composite
def dumps(draw: st.DrawFn, rank: int = 0, ranks: int = 4) -> dict[str, Any]:
    """One dump of torch 2.13's layout; `pg_config` is whole, partial, empty or broken."""
    config: dict[str, Any] = {}
    for name, description in draw(st.sets(st.sampled_from(GROUPS))):
        members = sorted(draw(st.sets(st.integers(0, ranks - 1))) | {rank})
        config[name] = {"name": name, "desc": description, "ranks": str(members)}
    if draw(st.booleans()):
        config = {"": {"name": "", "desc": "", "ranks": "[]"}}
    return dump(draw(entries()), pg_config=config)


encoders = st.sampled_from(
    [
        encode_pickle,
        *(lambda d, p=p: pickle.dumps(d, protocol=p) for p in (2, 3, 4, 5)),
    ]
)
"""torch's own pickler, and Python's for dumps that somebody has loaded and saved again."""
