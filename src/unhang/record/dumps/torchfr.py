"""Torch's own recorders: which there are in this build, and what they hold.

Each backend has a recorder of its own with record ids of its own (Gloo's and NCCL's do not mix), so
each gives a dump of its own. Some record themselves and are asked by a function of their own. From
torch 2.15 on a hook of torch's records for all others (ProcessGroupNCCL2, which "nccl" is there,
MPI, UCC, any plugin), in a recorder for each name of a backend: it is asked by that name. The bytes
come from torch itself and hold no globals; they are still read with an unpickler that refuses them.

The recorder of NCCL's older class asks the device about every open call, which can block while
another thread waits for that device, and its Python function keeps the GIL in the meantime: then
the whole process stands, by our doing. So torch's worker server is asked, whose threads have no
GIL, and Python's function only where there is no such server or handler. That of torch 2.2 is never
called: it crashes the process once anything was sent, received or coalesced (seen on 2.2.2). A hook
has no events of a device to ask about.
"""

from __future__ import annotations

import functools
import io
import json
import pickle
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from unhang.record.contact.beatlayout import GroupBeat
from unhang.record.contact.client import RefusedError, ask_worker

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
"""Backends that record themselves, and how each one is asked."""
_HOOKED: Final = FUNCTIONS[0]
"""The functions that also take the name of a backend for which a hook records."""

_PARAMETERS: Final = ("includecollectives", "includestacktraces", "onlyactive")
_SAFE_SINCE: Final = (2, 3)
_COUNTERS_S, _ENTRIES_S, _STACKS_S = 0.5, 2.0, 30.0
"""How long torch's worker server may take: for counters alone, for entries, for stacks too."""


@dataclass(frozen=True, slots=True, repr=False)
class TorchRecorder:
    """One of torch's recorders.

    Attributes:
        backend: "gloo", "nccl" or "xccl"; or "nccl2" and any other that torch's hook records.
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


def recorders(worker_socket: str = "", hooked: Iterable[str] = ()) -> list[TorchRecorder]:
    """The recorders that this build of torch has; none before torch is imported.

    Args:
        worker_socket: Where this process's worker server listens; "" for nowhere.
        hooked: The backends for which torch's hook records.
    """
    c10d = sys.modules.get("torch._C._distributed_c10d")
    found = []
    for backend, as_pickle, as_json in FUNCTIONS:
        function = getattr(c10d, as_pickle, None)
        if function is None or (backend == "nccl" and crashes()):
            continue
        if backend == "nccl":
            function = functools.partial(_dump_of_nccl, worker_socket, function)
        found.append(TorchRecorder(backend, function, getattr(c10d, as_json, None)))
    _, as_pickle, as_json = _HOOKED
    for backend in hooked:
        asked = (
            functools.partial(getattr(c10d, name), backend=backend) for name in (as_pickle, as_json)
        )
        found.append(TorchRecorder(backend, *asked))
    return found


def crashes() -> bool:
    """Whether asking this torch's NCCL recorder can crash the process."""
    version = str(getattr(sys.modules.get("torch"), "__version__", ""))
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < _SAFE_SINCE


def _dump_of_nccl(
    worker_socket: str,
    function: Callable[..., bytes],
    collectives: bool,  # noqa: FBT001 - torch's own order
    stacks: bool,  # noqa: FBT001
    only_active: bool,  # noqa: FBT001
) -> bytes:
    """The dump of NCCL's recorder, from a thread without the GIL where torch has one.

    Raises:
        AskError: The server is there and does not answer in time; then no other way would.
    """
    if worker_socket:
        values = (collectives, stacks, only_active)
        told = "&".join(
            f"{name}={str(value).lower()}" for name, value in zip(_PARAMETERS, values, strict=True)
        )
        try:
            patience_s = _STACKS_S if stacks else _ENTRIES_S if collectives else _COUNTERS_S
            return ask_worker(worker_socket, f"dump_nccl_trace_pickle?{told}", patience_s)
        except RefusedError:
            pass  # a torch whose server has no such handler
    try:
        return function(collectives, stacks, only_active)
    except TypeError:  # up to torch 2.3 it takes no arguments
        return function()


def counters(recorder: TorchRecorder) -> list[GroupBeat]:
    """The counters of a recorder's groups, in about 10 µs, without entries.

    Raises:
        ValueError: Torch's JSON is not as expected.
    """
    if recorder.as_json is None:
        return []
    status = json.loads(recorder.as_json(False, False)).get("pg_status", {})  # noqa: FBT003 - torch's
    beats = []
    for pg_id, values in sorted(status.items(), key=lambda item: int(item[0])):
        enqueued, started, completed = (int(values.get(name, -1)) for name in COUNTERS)
        beats.append(GroupBeat(recorder.backend, int(pg_id), enqueued, started, completed))
    return beats
