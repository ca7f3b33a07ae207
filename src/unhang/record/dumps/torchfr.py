"""Torch's own recorders: which there are in this build, and what they hold.

Each backend family has a recorder of its own with record ids of its own (Gloo's and NCCL's do not
mix), so each gives a dump of its own. The bytes come from torch itself and hold no globals; they
are still read with an unpickler that refuses them.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from unhang.record.contact.heartbeat import GroupBeat

__all__ = ["TorchRecorder", "counters", "load_plain", "recorders"]

COUNTERS: Final = (
    "last_enqueued_collective",
    "last_started_collective",
    "last_completed_collective",
)

FUNCTIONS: Final = (
    ("gloo", "_dump_fr_trace", "_dump_fr_trace_json"),
    ("nccl", "_dump_nccl_trace", "_dump_nccl_trace_json"),
    ("xccl", "_dump_xccl_trace", "_dump_xccl_trace_json"),
)


@dataclass(frozen=True, slots=True)
class TorchRecorder:
    """One of torch's recorders.

    Attributes:
        backend: "gloo", "nccl" or "xccl".
        as_pickle: `(include_collectives, include_stacks, only_active) -> bytes`.
        as_json: `(include_collectives, only_active) -> bytes`, or None; it never has stacks.
    """

    backend: str
    as_pickle: Callable[[bool, bool, bool], bytes]
    as_json: Callable[[bool, bool], bytes] | None

    def dump(self, *, collectives: bool, stacks: bool, only_active: bool) -> dict[str, Any]:
        """What the recorder holds, in torch's layout.

        Raises:
            ValueError: Torch's bytes are no dump.
        """
        return load_plain(self.as_pickle(collectives, stacks, only_active))


class _PlainUnpickler(pickle.Unpickler):
    """Unpickles numbers, texts and containers, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - never returns
        raise pickle.UnpicklingError(f"a dump holds no {module}.{name}")


def load_plain(data: bytes) -> dict[str, Any]:
    """Read a dump without running anything that it names.

    Raises:
        ValueError: It is no dump.
    """
    try:
        dump = _PlainUnpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, IndexError, KeyError, ValueError) as error:
        raise ValueError(f"no dump of torch's recorder: {error}") from error
    if isinstance(dump, list):  # torch 2.2 and older: entries only
        return {"entries": dump}
    if not isinstance(dump, dict):
        raise ValueError("no dump of torch's recorder")  # noqa: TRY004 - a matter of content
    return dump


def recorders() -> list[TorchRecorder]:
    """The recorders that this build of torch has; none before torch is imported."""
    c10d = sys.modules.get("torch._C._distributed_c10d")
    return [
        TorchRecorder(backend, getattr(c10d, as_pickle), getattr(c10d, as_json, None))
        for backend, as_pickle, as_json in FUNCTIONS
        if hasattr(c10d, as_pickle)
    ]


def counters(recorder: TorchRecorder) -> list[GroupBeat]:
    """The counters of a recorder's groups, in about 10 µs, without entries.

    Raises:
        ValueError: Torch's JSON is not as expected.
    """
    if recorder.as_json is None:
        return []
    status = json.loads(recorder.as_json(False, False)).get("pg_status", {})  # noqa: FBT003 - torch's
    return [
        GroupBeat(recorder.backend, int(pg_id), *(int(values.get(name, -1)) for name in COUNTERS))
        for pg_id, values in sorted(status.items(), key=lambda item: int(item[0]))
    ]
