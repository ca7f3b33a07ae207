"""torch's layout of a dump: which keys there are, in which order, and since which version.

The one place that knows it. The simulated recorder, the dumps of tests and the large ones of
benchmarks fill it with content; `torchfile` turns the result into bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from lab.recorder.recording import VERSIONS, at_least

NEWEST: Final = VERSIONS[-1]

_ALWAYS = "list"
_SINCE: Final[Mapping[str, str]] = {
    "frames": _ALWAYS,
    "record_id": "1.4",
    "pg_id": _ALWAYS,
    "process_group": "2.1",
    "thread_name": "2.9",
    "thread_id": "2.9",
    "collective_seq_id": "2.1",
    "p2p_seq_id": "2.1",
    "op_id": "1.4",
    "profiling_name": _ALWAYS,
    "time_created_ns": _ALWAYS,
    "duration_ms": _ALWAYS,
    "input_sizes": _ALWAYS,
    "input_dtypes": "2.1",
    "output_sizes": _ALWAYS,
    "output_dtypes": "2.1",
    "state": _ALWAYS,
    "time_discovered_started_ns": _ALWAYS,
    "time_discovered_completed_ns": _ALWAYS,
    "retired": _ALWAYS,
    "timeout_ms": "2.3",
    "is_p2p": "2.1",
}
"""The keys of an entry in torch's order, and the version that brought each."""

_OLD_ORDER: Final = (
    "record_id", "pg_id", "seq_id", "op_id", "profiling_name", "time_created_us",
    "time_created_ns", "duration_ms", "input_sizes", "output_sizes", "state",
    "time_discovered_started_ns", "time_discovered_completed_ns", "retired", "frames",
)  # fmt: skip
"""The keys of an entry up to 1.4, in their order."""
_NOT_IN_LISTS: Final = frozenset(
    {"record_id", "op_id", "time_created_ns", "time_discovered_started_ns",
     "time_discovered_completed_ns"}
)  # fmt: skip

ENTRY_KEYS: Final = frozenset(_SINCE)


def entry_of(values: Mapping[str, Any], version: str = NEWEST) -> dict[str, Any]:
    """One entry: the keys of its version, in torch's order; keys without a value are left out.

    Up to 1.4 the sequence number is called `seq_id` and the frames come last; lists count
    microseconds.

    Raises:
        KeyError: torch's recorder has no such key.
    """
    if unknown := values.keys() - ENTRY_KEYS:
        raise KeyError(f"torch's recorder writes no {', '.join(sorted(unknown))}")
    if at_least(version, "2.1"):
        return {key: values[key] for key in _keys(version) if key in values}
    old = {**values, "seq_id": values["collective_seq_id"]}
    if version == "list":
        old["time_created_us"] = values["time_created_ns"] // 1000
        old = {key: value for key, value in old.items() if key not in _NOT_IN_LISTS}
    return {key: old[key] for key in _OLD_ORDER if key in old}


@cache
def _keys(version: str) -> tuple[str, ...]:
    return tuple(key for key, since in _SINCE.items() if at_least(version, since))


def dump_of(
    entries: list[dict[str, Any]],
    version: str = NEWEST,
    *,
    config: Mapping[str, Any],
    status: Mapping[str, Any],
    library: str = "2.27.3",
) -> Any:  # noqa: ANN401 - a dict, or a list in the oldest format
    """The whole content of one file.

    Args:
        entries: As `entry_of` makes them.
        version: Of `VERSIONS`.
        config: Groups by name, see `group_config`; up to 1.4 lists of ranks by local id.
        status: Counters by local id, see `group_status`.
        library: Version of the communication library, "" on Gloo.
    """
    if version == "list":
        return entries
    if not at_least(version, "2.1"):
        return {"entries": entries, "version": version, "pg_config": dict(config)}
    dump: dict[str, Any] = {"version": version, "pg_config": dict(config)}
    if at_least(version, "2.10"):
        dump["comm_lib_version"] = library
    elif at_least(version, "2.6"):
        dump["nccl_version"] = library
    if at_least(version, "2.3"):
        dump["pg_status"] = dict(status)
    dump["entries"] = entries
    return dump


def group_config(name: str, description: str, ranks: str) -> dict[str, str]:
    """A group in `pg_config`; its ranks are a text like "[0, 1]"."""
    return {"name": name, "desc": description, "ranks": ranks}


def group_status(enqueued: int, started: int, completed: int) -> dict[str, int]:
    """A group in `pg_status`; -1 where there was none yet."""
    return {
        "last_enqueued_collective": enqueued,
        "last_started_collective": started,
        "last_completed_collective": completed,
    }
