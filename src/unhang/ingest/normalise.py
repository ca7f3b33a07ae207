"""From the value that a file decodes to, in any version's layout, to `Decoded`.

Known layouts: a list of entries (torch 2.2 and older), torch's dict from 1.0 to 2.10, forks of it
(`hccl_comm_state` and the like), torchcomms' look-alike, and our own recorder's key `unhang` beside
torch's. What is missing is left unknown; nothing is guessed here that needs another rank's dump.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from unhang.ingest.decoded import BadDump, Declared, Decoded, Origin, PlainDict, Status
from unhang.ingest.dictionaries import MAX_FRAMES, Dictionaries, clean_frame, clean_text
from unhang.ingest.memberships import Memberships
from unhang.ingest.rows import columns_of
from unhang.ingest.torchcomms import is_torchcomms, repair
from unhang.ingest.values import as_int

__all__ = ["describe", "normalise"]

NEWEST_KNOWN = (2, 10)
_STATE_KEY = "_comm_state"
_MAX_FAILURES = 1000


def normalise(value: object, shared: Dictionaries, size: int) -> Decoded:
    """Make a `Decoded` of what a file holds.

    Args:
        value: Plain value from the pickle or JSON reader.
        shared: Receives names, stacks and so on.
        size: Bytes of the file, which bounds the work.

    Raises:
        BadDump: It is something else than a dump.
    """
    top: PlainDict = {"entries": value} if isinstance(value, list) else _dict(value)
    if not _is_dump(top):
        raise BadDump("it holds no recorder's dump")
    decoded = describe(top, shared.memberships)
    entries, late = _merged(
        _list(top.get("entries")), _list(_dict(top.get("unhang")).get("entries"))
    )
    rows = columns_of(entries, shared, size)
    decoded.columns = rows.columns
    decoded.remarks += rows.remarks
    if late:
        decoded.remarks.append("sorted its entries by record_id")
    if is_torchcomms(decoded, shared):
        repair(decoded, shared)
    return decoded


def describe(top: PlainDict, memberships: Memberships) -> Decoded:
    """Everything of a dump but its entries."""
    decoded = Decoded(
        version=_version(top.get("version")),
        comm_lib_version=clean_text(top.get("comm_lib_version") or top.get("nccl_version")),
        reported_by=_reporter(top),
        origin=_origin(top.get("unhang")),
        declared=_declared(top.get("pg_config"), memberships),
        statuses=_statuses(top.get("pg_status")),
    )
    newer = _is_newer(decoded.version)
    if newer:
        decoded.remarks.append(f"read format {newer} like 2.10, the newest that is known")
    problems = _list(_dict(top.get("unhang")).get("problems"))[:_MAX_FAILURES]
    decoded.remarks += [f"recorder: {text}" for text in map(_failure, problems) if text]
    return decoded


def _is_dump(top: PlainDict) -> bool:
    if isinstance(top.get("entries"), list):
        entries = top["entries"]
        return not entries or any(
            isinstance(entry, dict) and ("profiling_name" in entry or "record_id" in entry)
            for entry in entries
        )
    return "pg_config" in top or "pg_status" in top


def _merged(torchs: list[Any], ours: list[Any]) -> tuple[list[Any], bool]:
    """Both recorders' entries in program order, and whether torch's had to be sorted.

    Ours say after which of torch's they were made; -1 is before all of them.
    """
    keys = [as_int(_dict(entry).get("record_id"), -1) for entry in torchs]
    late = any(after < before for before, after in pairwise(keys))
    if late:
        order = sorted(range(len(keys)), key=keys.__getitem__)
        torchs, keys = [torchs[i] for i in order], [keys[i] for i in order]
    if not ours:
        return torchs, late
    places = [as_int(_dict(entry).get("after_record_id"), -1) for entry in ours]
    slots = np.searchsorted(np.asarray(keys, np.int64), np.asarray(places, np.int64), side="right")
    order = np.argsort(
        np.concatenate((2 * np.arange(len(torchs)) + 1, 2 * slots)), kind="stable"
    ).tolist()
    both = torchs + [{"after_record_id": -1, **entry} for entry in ours if isinstance(entry, dict)]
    return [both[i] for i in order if i < len(both)], late


def _version(value: object) -> str:
    if isinstance(value, (int, float)):
        return str(value)
    return clean_text(value)[:32]


def _is_newer(version: str) -> str:
    major, _, minor = version.partition(".")
    number = (as_int(major, 0), as_int(minor, 0))
    return version if number > NEWEST_KNOWN else ""


def _reporter(top: PlainDict) -> str:
    if isinstance(top.get("unhang"), dict):
        return "unhang"
    for key in top:
        if isinstance(key, str) and key.endswith(_STATE_KEY):
            library = key.removesuffix(_STATE_KEY)
            return "torch" if library == "nccl" else library
    return "torch"


def _declared(value: object, memberships: Memberships) -> tuple[Declared, ...]:
    groups = []
    for key, item in _dict(value).items():
        config = _dict(item)
        groups.append(
            Declared(
                clean_text(config.get("name", key)),
                clean_text(config.get("desc")),
                memberships.read(config.get("ranks")),
            )
        )
    return tuple(groups)


def _statuses(value: object) -> tuple[Status, ...]:
    rows = []
    for key, item in _dict(value).items():
        counters = _dict(item)
        rows.append(
            Status(
                _int32(key),
                as_int(counters.get("last_enqueued_collective")),
                as_int(counters.get("last_started_collective")),
                as_int(counters.get("last_completed_collective")),
            )
        )
    return tuple(rows)


def _origin(value: object) -> Origin | None:
    """The key `unhang`, each field checked."""
    if not isinstance(value, dict):
        return None
    return Origin(
        rank=_int32(value.get("rank")),
        local_rank=_int32(value.get("local_rank")),
        replica=_word(value.get("replica")),
        world_size=max(0, _int32(value.get("world_size"))),
        host=_word(value.get("host")),
        pid=_int32(value.get("pid")),
        job_id=_word(value.get("job_id")),
        attempt=_word(value.get("attempt")),
        incident=_word(value.get("incident")),
        backend=_word(value.get("backend")),
        reason=_word(value.get("reason")),
        time_ns=max(0, as_int(value.get("time_ns"), 0)),
        step=as_int(value.get("step")),
        dropped=max(0, as_int(value.get("dropped"), 0)),
        failures=tuple(_failure(item) for item in _list(value.get("failures"))[:_MAX_FAILURES]),
        main_stack=tuple(
            clean_frame(frame)
            for frame in _list(_dict(value.get("stacks")).get("main"))[:MAX_FRAMES]
        ),
    )


def _failure(value: object) -> str:
    """One failed call as a sentence: ours come as text or as a small dict."""
    if isinstance(value, dict):
        parts = (clean_text(value.get(key)) for key in ("op", "call", "error"))
        return ": ".join(part for part in parts if part)
    return clean_text(value)


def _word(value: object) -> str:
    """A short text; numbers are welcome."""
    return str(value) if isinstance(value, int) else clean_text(value)


def _int32(value: object) -> int:
    number = as_int(value)
    return number if -1 <= number < 2**31 else -1


def _dict(value: object) -> PlainDict:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
