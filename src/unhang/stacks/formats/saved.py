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
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from unhang.bounds import is_rank
from unhang.model import UNKNOWN_RANK, Frame, ProcessSample, ThreadStack

SCHEMA = "unhang.stacks/1"

_HEAD = re.compile(r'^\s*\{\s*"schema"\s*:\s*"unhang\.stacks/')
_INT32, _INT64 = (1 << 31) - 1, (1 << 63) - 1
_THREAD_DEFAULTS = {"is_main": False, "holds_gil": None, "active": None, "native": False}
_SAMPLE_DEFAULTS: dict[str, object] = {
    f.name: f.default for f in fields(ProcessSample) if f.name not in ("rank", "host", "pid")
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Saved:
    """What a file holds next to its schema."""

    frames: list[tuple[str, str, int]] = field(default_factory=list)
    stacks: list[list[int]] = field(default_factory=list)
    samples: list[Any] = field(default_factory=list)


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
            row[name] = _shown(value)
    row["threads"] = [_thread_row(thread, stacks) for thread in sample.threads]
    return row


def _shown(value: Any) -> Any:  # noqa: ANN401 - whatever a field holds
    """A record as an object, without what nothing tells of; all else as it is."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return {key: each for key, each in asdict(value).items() if each}


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
    from unhang.incoming import fit, value_of  # the writer above runs on nodes that have no msgspec

    document = value_of(text)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"not of schema {SCHEMA}: a newer unhang may have written it")
    saved = fit(document, _Saved)
    if any(abs(line) > _INT32 for _, _, line in saved.frames):
        raise ValueError("a frame has a line that no file has")
    frames = [Frame(*frame) for frame in saved.frames]
    stacks = [tuple(_at(frames, number) for number in stack) for stack in saved.stacks]
    return [_sample(row, stacks) for row in saved.samples if isinstance(row, dict)]


def _at(items: Sequence[T], number: int) -> T:
    if not 0 <= number < len(items):
        raise ValueError("it refers to a frame or a stack that is not there")
    return items[number]


def _sample(row: dict[str, Any], stacks: list[tuple[Frame, ...]]) -> ProcessSample:
    """A process; a field of another type, or that no machine could have, is left at its default."""
    from unhang.incoming import fit, overlaid

    rows = fit(row.pop("threads", []), list[Any])
    threads = tuple(_thread(told, stacks) for told in rows if isinstance(told, dict))
    sample = overlaid(ProcessSample(UNKNOWN_RANK, "", -1, threads), _possible(row))[0]
    status = sample.exit_status
    fits = all(n == UNKNOWN_RANK or is_rank(n) for n in (sample.rank, sample.parent_rank))
    if fits and (status is None or abs(status) <= _INT32):
        return sample
    return replace(
        sample,
        rank=sample.rank if is_rank(sample.rank) else UNKNOWN_RANK,
        parent_rank=sample.parent_rank if is_rank(sample.parent_rank) else UNKNOWN_RANK,
        exit_status=status if status is None or abs(status) <= _INT32 else None,
    )


def _possible(row: dict[str, Any]) -> dict[str, Any]:
    """Without numbers that fit into no column."""
    return {k: v for k, v in row.items() if _is_possible(v)}


def _is_possible(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(v, int | float) and _is_possible(v) for v in value.values())
    return not isinstance(value, int | float) or abs(value) <= _INT64


def _thread(row: dict[str, Any], stacks: list[tuple[Frame, ...]]) -> ThreadStack:
    from unhang.incoming import fit, overlaid

    stack = _at(stacks, fit(row.get("stack"), int))
    return overlaid(ThreadStack("", -1, stack), {**_possible(row), "frames": None})[0]
