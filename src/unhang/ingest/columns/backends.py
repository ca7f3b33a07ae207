"""Which backend's calls a dump holds, and when its newest one was made.

NCCL and Gloo have recorders of their own in one process, with numbers of their own, so one rank may
leave two dumps that both are right.
"""

from __future__ import annotations

import re

import numpy as np

from unhang.ingest.columns.decoded import Decoded
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.discover.reading import Loaded

__all__ = ["characterise"]

_IN_PATH = re.compile(r"(?:^|[/_.-])(nccl|gloo|xccl|hccl|mccl|rccl|ucc|mpi)(?=[/_.-]|$)")


def characterise(loaded: list[Loaded], shared: Dictionaries) -> None:
    """Set `backend` and `newest_ns` of all files.

    The calls' names decide; where there are none, our recorder's word, the path, and what kind of
    library reported its version (Gloo has none).
    """
    backends = np.array([name.partition(":")[0] if ":" in name else "" for name in shared.names])
    kinds, kind_of_name = np.unique(backends, return_inverse=True)
    for item in loaded:
        decoded = item.decoded
        if decoded is None:
            item.backend = _of_path(item.source)
            continue
        item.backend = _without_calls(decoded, item.source)
        item.newest_ns = decoded.origin.time_ns if decoded.origin else 0
        if decoded.count:
            votes = np.bincount(kind_of_name[decoded.column("name")])
            item.backend = str(kinds[int(votes.argmax())]) or item.backend
            item.newest_ns = max(item.newest_ns, int(decoded.column("created_ns").max()))


def _without_calls(decoded: Decoded, path: str) -> str:
    own_word = decoded.origin.backend if decoded.origin else ""
    return own_word or _of_path(path) or ("nccl" if decoded.comm_lib_version else "")


def _of_path(path: str) -> str:
    found = _IN_PATH.findall(path.lower())
    return str(found[-1]) if found else ""
