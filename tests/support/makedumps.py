"""Dumps of torch's layout for tests: small, valid, and easy to spoil."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lab.recorder.layout import ENTRY_KEYS, dump_of, entry_of, group_config, group_status
from lab.recorder.torchfile import encode_json, encode_pickle

T0 = 1_795_000_000_000_000_000
SECOND = 1_000_000_000

FRAME = {"name": "all_reduce", "filename": "torch/distributed/distributed_c10d.py", "line": 3245}


def entry(number: int, *, group: tuple[str, str] = ("0", "default_pg"), **changes: Any) -> Any:  # noqa: ANN401 - a JSON-like dict
    """One finished NCCL all_reduce; keyword arguments change it, None takes a key away."""
    plain: dict[str, Any] = {
        "frames": [FRAME, {"name": "step", "filename": "train.py", "line": 10 + number % 3}],
        "record_id": number,
        "pg_id": 0,
        "process_group": group,
        "thread_name": "python",
        "thread_id": "140000000000000",
        "collective_seq_id": number + 1,
        "p2p_seq_id": 0,
        "op_id": number + 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": T0 + number * SECOND,
        "input_sizes": [[4, 5]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 5]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": T0 + number * SECOND + 1000,
        "retired": True,
        "timeout_ms": 600000,
        "is_p2p": False,
    }
    plain.update(changes)
    kept = {key: value for key, value in plain.items() if value is not None or "time" in key}
    ours = {key: kept.pop(key) for key in [*kept] if key not in ENTRY_KEYS}  # a test's own oddities
    return {**entry_of(kept), **ours}


def dump(
    entries: int | list[Any] = 3, *, ranks: int | list[int] = 4, **changes: Any  # noqa: ANN401 - JSON-like
) -> dict[str, Any]:  # fmt: skip
    """One dump of torch 2.13 with a default group of so many ranks."""
    members = list(range(ranks)) if isinstance(ranks, int) else ranks
    rows = [entry(i) for i in range(entries)] if isinstance(entries, int) else entries
    plain = dump_of(
        rows,
        config={"0": group_config("0", "default_pg", str(members))},
        status={"0": group_status(len(rows), -1, len(rows))},
    )
    plain.update(changes)
    return {key: value for key, value in plain.items() if value is not None}


def of_rank(rank: int, content: dict[str, Any]) -> dict[str, Any]:
    """The dump with its calls as many ns later: no two ranks call at the very same moments."""
    if not isinstance(content.get("entries"), list):
        return content
    later = [
        {**each, "time_created_ns": each["time_created_ns"] + rank}
        if isinstance(each, dict) and isinstance(each.get("time_created_ns"), int)
        else each
        for each in content["entries"]
    ]
    return {**content, "entries": later}


def write(folder: Path, dumps: dict[str, Any]) -> Path:
    """Write dumps by file name: bytes as they are, dicts as JSON where the name ends so."""
    for name, given in dumps.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rank = int((re.findall(r"\d+", path.stem) or ["0"])[-1])
        content = of_rank(rank, given) if isinstance(given, dict) else given
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif name.endswith(".json"):
            path.write_bytes(encode_json(content))
        else:
            path.write_bytes(encode_pickle(content))
    return folder
