"""Torch's recorders as they are asked from outside, over HTTP: by handler, or by backend's name.

Those that record themselves have a handler each. From torch 2.15 on there is a recorder for each
name of another backend; the handler for these takes the name, which an older torch passes over: it
answers with Gloo's calls then. So where no recorder of ours has said that torch knows the name, an
answer counts only if the calls in it say whose they are. The handler gives unfinished calls alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

HOOKED = ("nccl2", "nccl-lazy")
"""The backends of torch's own that a hook records; "nccl" is the first of them in 2.15."""
_OWN = {"gloo": "fr_trace_json", "nccl": "dump_nccl_trace_json"}


def backends_in(told: str) -> list[str]:
    """The names in "gloo,nccl2", or in torch's own "cpu:gloo,cuda:nccl"."""
    names = (part.rpartition(":")[2] for part in told.split(","))
    return [name for name in dict.fromkeys(names) if re.fullmatch(r"[\w.-]{1,64}", name)]


def handlers(backends: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Backend and handler of each recorder to ask, last those that may wait for a device.

    Args:
        backends: Of these; by default, of all that torch has.
    """
    names = sorted(list(backends) or [*_OWN, *HOOKED], key=lambda name: name == "nccl")
    return [(name, _OWN.get(name) or f"fr_trace_json?backend={name}") for name in names]


def is_hooked(backend: str) -> bool:
    """Whether only a hook can record this backend."""
    return backend not in _OWN


def is_dump(data: str | bytes) -> bool:
    """Whether these bytes are a dump, with a list of calls."""
    return _entries(data) is not None


def holds_calls(data: str | bytes, backend: str) -> bool:
    """Whether a dump holds calls, and none that says that it is another recorder's."""
    names = [
        entry.get("profiling_name") for entry in _entries(data) or [] if isinstance(entry, dict)
    ]
    whose = {str(name).partition(":")[0] for name in names}
    return bool(whose) and whose.isdisjoint(_OWN.keys() - {backend})


def _entries(data: str | bytes) -> list[object] | None:
    try:
        entries = json.loads(data).get("entries")
    except (ValueError, AttributeError, RecursionError):
        return None
    return entries if isinstance(entries, list) else None
