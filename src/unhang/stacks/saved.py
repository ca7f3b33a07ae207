"""Our own file of stacks: what `unhang stacks` and `collect` save and `read_stacks` reads back.

Schema "unhang.stacks/1", JSON:

    schema   "unhang.stacks/1"
    frames   [[function, file, line], ...]                  each once
    stacks   [[frame number, ...], ...]                     each once, innermost first
    samples  [{rank, host, pid, role, state, ..., threads: [{name, tid, stack, is_main, ...}]}]

A stack that thousands of threads share is written once. Keys of a sample are the fields of
`unhang.model.ProcessSample`; fields at their default are left out, unknown keys are ignored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from unhang.bounds import is_rank
from unhang.model import UNKNOWN_RANK, Frame, ProcessSample, ThreadStack

__all__ = ["SCHEMA", "dump_samples", "matches", "parse", "write_samples"]

SCHEMA = "unhang.stacks/1"

_HEAD = re.compile(r'^\s*\{\s*"schema"\s*:\s*"unhang\.stacks/')
_INT32, _INT64 = (1 << 31) - 1, (1 << 63) - 1
_THREAD_DEFAULTS = {"is_main": False, "holds_gil": None, "active": None, "native": False}
_SAMPLE_DEFAULTS: dict[str, object] = {
    f.name: f.default for f in fields(ProcessSample) if f.name not in ("rank", "host", "pid")
}


def dump_samples(samples: Iterable[ProcessSample]) -> str:
    """Write samples as text of schema "unhang.stacks/1"."""
    frames: dict[Frame, int] = {}
    stacks: dict[tuple[Frame, ...], int] = {}
    rows = [_sample_row(sample, stacks) for sample in samples]
    numbered = [
        [frames.setdefault(frame, len(frames)) for frame in stack] for stack in list(stacks)
    ]
    return json.dumps(
        {
            "schema": SCHEMA,
            "frames": [[f.function, f.file, f.line] for f in frames],
            "stacks": numbered,
            "samples": rows,
        },
        separators=(",", ":"),
    )


def write_samples(path: Path, samples: Iterable[ProcessSample]) -> None:
    """Write a file that appears whole or not at all; OSError where it cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(dump_samples(samples), encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _sample_row(sample: ProcessSample, stacks: dict[tuple[Frame, ...], int]) -> dict[str, object]:
    row: dict[str, object] = {"rank": sample.rank, "host": sample.host, "pid": sample.pid}
    for name, default in _SAMPLE_DEFAULTS.items():
        value = getattr(sample, name)
        if name != "threads" and value != default:
            row[name] = value
    row["threads"] = [_thread_row(thread, stacks) for thread in sample.threads]
    return row


def _thread_row(thread: ThreadStack, stacks: dict[tuple[Frame, ...], int]) -> dict[str, object]:
    row: dict[str, object] = {
        "name": thread.name,
        "tid": thread.tid,
        "stack": stacks.setdefault(thread.frames, len(stacks)),
    }
    for name, default in _THREAD_DEFAULTS.items():
        if getattr(thread, name) != default:
            row[name] = getattr(thread, name)
    return row


def matches(text: str) -> bool:
    """Whether this is a file of ours."""
    return _HEAD.match(text) is not None


def parse(text: str) -> list[ProcessSample]:
    """The samples of a file of ours; ValueError where it is not whole or of another version."""
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"not of schema {SCHEMA}: a newer unhang may have written it")
    frames = [_frame(item) for item in _list(document, "frames")]
    stacks = [_stack(item, frames) for item in _list(document, "stacks")]
    return [_sample(item, stacks) for item in _list(document, "samples") if isinstance(item, dict)]


def _list(document: Mapping[str, object], key: str) -> list[Any]:
    value = document.get(key, [])
    if not isinstance(value, list):
        raise ValueError(f'"{key}" is not a list')  # noqa: TRY004 - the promise is ValueError
    return value


def _frame(item: object) -> Frame:
    match item:
        case [str(function), str(file), int(line)] if abs(line) <= _INT32:
            return Frame(function, file, line)
    raise ValueError("a frame is not [function, file, line]")


def _stack(item: object, frames: list[Frame]) -> tuple[Frame, ...]:
    if not isinstance(item, list):
        raise ValueError("a stack is not a list")  # noqa: TRY004 - the promise is ValueError
    if not all(isinstance(i, int) and 0 <= i < len(frames) for i in item):
        raise ValueError("a stack refers to a frame that is not there")
    return tuple(frames[i] for i in item)


def _sample(item: Mapping[str, object], stacks: list[tuple[Frame, ...]]) -> ProcessSample:
    values: dict[str, Any] = {
        "rank": _rank(item, "rank"),
        "host": _typed(item, "host", ""),
        "pid": _typed(item, "pid", -1),
    }
    for name, default in _SAMPLE_DEFAULTS.items():
        if name not in ("threads", "exit_status"):  # these two have no plain type
            values[name] = _typed(item, name, default)
    values["parent_rank"] = _rank(item, "parent_rank")
    status = item.get("exit_status")
    fits = isinstance(status, int) and abs(status) <= _INT32
    values["exit_status"] = status if fits else None
    values["threads"] = tuple(
        _thread(row, stacks) for row in _list(item, "threads") if isinstance(row, dict)
    )
    return ProcessSample(**values)


def _thread(row: Mapping[str, object], stacks: list[tuple[Frame, ...]]) -> ThreadStack:
    number = row.get("stack")
    if not isinstance(number, int) or not 0 <= number < len(stacks):
        raise ValueError("a thread refers to a stack that is not there")
    gil, active = row.get("holds_gil"), row.get("active")
    return ThreadStack(
        name=_typed(row, "name", ""),
        tid=_typed(row, "tid", -1),
        frames=stacks[number],
        is_main=_typed(row, "is_main", default=False),
        holds_gil=gil if isinstance(gil, bool) else None,
        active=active if isinstance(active, bool) else None,
        native=_typed(row, "native", default=False),
    )


def _typed(row: Mapping[str, object], key: str, default: Any) -> Any:  # noqa: ANN401 - any field
    """The value of a key where it has the type of the default (an int may stand for a float)."""
    value = row.get(key, default)
    if isinstance(value, int) and abs(value) > _INT64:
        return default
    if isinstance(default, float) and isinstance(value, int):
        return float(value)
    return value if type(value) is type(default) else default


def _rank(row: Mapping[str, object], key: str) -> int:
    value = row.get(key)
    return value if isinstance(value, int) and is_rank(value) else UNKNOWN_RANK
