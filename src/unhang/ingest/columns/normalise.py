"""From the value that a file decodes to, in any version's layout, to `Decoded`.

Known layouts: a list of entries (torch 2.2 and older), torch's dict from 1.0 to 2.10 (up to 1.4
with groups that have a local id and no name), forks of it (`hccl_comm_state` and the like),
torchcomms' look-alike, and our own recorder's key `unhang` next to torch's. What is missing is left
unknown; nothing is guessed here that needs another rank's dump.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from unhang.bounds import MOST_OPEN_TAGS
from unhang.case import ORIGIN_UNHANG
from unhang.ingest.columns.counted import refuse_impossible
from unhang.ingest.columns.decoded import (
    BadDump,
    Column,
    Declared,
    Decoded,
    Origin,
    PlainDict,
    Status,
)
from unhang.ingest.columns.dictionaries import MAX_FRAMES, Dictionaries, clean_frame, clean_text
from unhang.ingest.columns.hooks import mark_of
from unhang.ingest.columns.localgroups import name_by_members
from unhang.ingest.columns.memberships import Memberships
from unhang.ingest.columns.rows import columns_of
from unhang.ingest.columns.torchcomms import is_torchcomms, repair
from unhang.ingest.columns.values import as_int, int_column
from unhang.model import Frame

NEWEST_KNOWN = (2, 10)
_STATE_KEY = "_comm_state"
_MAX_FAILURES = 1000
_PAIR = 2


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
    rows = columns_of(_list(top.get("entries")), shared, size)
    decoded.take_rows(_in_order(rows.columns, decoded.remarks))
    decoded.remarks += rows.remarks
    name_by_members(decoded, top.get("pg_config"), shared)
    finish(decoded, own_entries(top), shared, size)
    return decoded


def finish(decoded: Decoded, ours: list[Any], shared: Dictionaries, size: int) -> None:
    """What is left to do once torch's entries are rows: add ours, and repair look-alikes.

    Args:
        decoded: With the rows of torch's entries.
        ours: Our own recorder's entries, each with `after_record_id`.
        shared: Receives names, stacks and so on.
        size: Bytes of the file, which bounds the work.

    Raises:
        BadDump: Our entries are a bomb of references rather than calls.
    """
    if ours:
        rows = columns_of(ours, shared, size)
        decoded.remarks += rows.remarks
        after = int_column([as_int(_dict(e).get("after_record_id")) for e in rows.entries])
        rows.columns["origin"][:] = ORIGIN_UNHANG
        decoded.take_rows(_interleaved(decoded, rows.columns, after))
    if is_torchcomms(decoded, shared):
        repair(decoded, shared)
    else:
        decoded.recorder = mark_of(decoded, shared)
        refuse_impossible(decoded, shared)


def own_entries(top: PlainDict) -> list[Any]:
    """The entries that our recorder adds next to torch's."""
    return _list(_dict(top.get("unhang")).get("entries"))


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
    if newer := _is_newer(decoded.version):
        decoded.remarks.append(f"read format {newer} like 2.10, the newest known format")
    problems = _list(_dict(top.get("unhang")).get("problems"))[:_MAX_FAILURES]
    decoded.remarks += [f"recorder: {clean_text(problem)}" for problem in problems]
    return decoded


def _is_dump(top: PlainDict) -> bool:
    if isinstance(top.get("entries"), list):
        entries = top["entries"]
        return not entries or any(
            isinstance(entry, dict) and ("profiling_name" in entry or "record_id" in entry)
            for entry in entries
        )
    return "pg_config" in top or "pg_status" in top


def _in_order(columns: dict[str, Column], remarks: list[str]) -> dict[str, Column]:
    """Rows in the order of their record ids, which is program order."""
    if not (np.diff(columns["record_id"]) < 0).any():
        return columns
    remarks.append("sorted its entries by record_id")
    order = np.argsort(columns["record_id"], kind="stable")
    return {key: column[order] for key, column in columns.items()}


def _interleaved(
    decoded: Decoded, ours: dict[str, Column], after: npt.NDArray[np.int64]
) -> dict[str, Column]:
    """Both recorders' rows in program order: each of ours follows the record id that it names."""
    slots = np.searchsorted(decoded.column("record_id"), after, side="right")
    places = np.concatenate((2 * np.arange(decoded.count) + 1, 2 * slots))
    order = np.argsort(places, kind="stable")
    return {
        key: np.concatenate((decoded.column(key), column))[order] for key, column in ours.items()
    }


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
    """The groups of a dump; lists of ranks may be shared, and each is read once."""
    configs = {
        key: {"ranks": item} if isinstance(item, list) else _dict(item)
        for key, item in _dict(value).items()
    }
    lists = {id(ranks): ranks for ranks in (config.get("ranks") for config in configs.values())}
    members = {key: memberships.read(ranks) for key, ranks in lists.items()}
    return tuple(
        Declared(
            clean_text(config.get("name", key)),
            clean_text(config.get("desc")),
            members[id(config.get("ranks"))],
        )
        for key, config in configs.items()
    )


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
        failed_calls=tuple(map(_failed_call, _list(value.get("failures"))[:_MAX_FAILURES])),
        exception=_exception(_dict(value.get("exception"))),
        exception_stack=_frames(_dict(value.get("exception")).get("frames")),
        main_stack=_frames(_dict(value.get("stacks")).get("main")),
        open_tags=_tags(value.get("open_tags")),
    )


def _failed_call(value: object) -> str:
    """A failed call as a sentence: "all_reduce (tp): RuntimeError: timed out"."""
    call = _dict(value)
    group = clean_text(call.get("description")) or clean_text(call.get("group"))
    name = clean_text(call.get("op")) + (f" ({group})" if group else "")
    return f"{name}: {clean_text(call.get('error'))}"


def _exception(value: PlainDict) -> str:
    return ": ".join(filter(None, (clean_text(value.get(key)) for key in ("type", "message"))))


def _frames(value: object) -> tuple[Frame, ...]:
    return tuple(clean_frame(frame) for frame in _list(value)[:MAX_FRAMES])


def _tags(value: object) -> tuple[tuple[int, int], ...] | None:
    """Pairs of record id and tag; whatever is no such pair is left out. None without a list."""
    if not isinstance(value, list):
        return None
    pairs = (pair for pair in value[-MOST_OPEN_TAGS:] if isinstance(pair, (list, tuple)))
    found = [(as_int(pair[0]), _int32(pair[1])) for pair in pairs if len(pair) == _PAIR]
    return tuple((number, tag) for number, tag in found if number >= 0 and tag >= 0)


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
