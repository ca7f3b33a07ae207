"""What a process gives `init_process_group`: its rank, how many there are, where they meet.

Ranks that never meet mostly disagree about one of the three. Nothing else of the arguments is kept.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from unhang.record.statement import Meeting
from unhang.telltale import without_secrets

_RPC_POSITIONS = ("name", "backend", "rank", "world_size", "rpc_backend_options")
_RPC_THREADS = 16
"""Torch's own number of threads that serve other workers, where none is given."""

_POSITIONS = ("backend", "init_method", "timeout", "world_size", "rank", "store")


def told_by(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Meeting:
    """Read the arguments of `init_process_group`, and what they leave to the environment."""
    given = {**dict(zip(_POSITIONS, args, strict=False)), **kwargs}
    parts = urlsplit(str(given.get("init_method") or "env://"))
    query = parse_qs(parts.query)
    rank = _first(given.get("rank"), query.get("rank", [""])[0], os.environ.get("RANK"))
    size = _first(
        given.get("world_size"), query.get("world_size", [""])[0], os.environ.get("WORLD_SIZE")
    )
    return Meeting(
        env_rank=rank if rank >= 0 else None,
        told_size=max(size, 0),
        rendezvous=""
        if given.get("store") is not None
        else _place(parts.scheme, parts.netloc, parts.path),
        leftover_s=_leftover_s(parts.path) if parts.scheme == "file" else 0,
        earlier=_earlier() if parts.scheme == "env" and given.get("store") is None else 0,
    )


def _earlier() -> int:
    """How often torchrun has restarted the job, where one store of its own serves all attempts.

    That is so where its ranks use the store of its agent, with c10d's rendezvous and static ones.
    Seen with torch 2.13: `next_rendezvous` of dynamic_rendezvous.py makes the server once, and
    `_create_c10d_store` of rendezvous.py puts no attempt into keys. pytorch#135712 has the failure.
    """
    told = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return int(told) if shared and told.isdecimal() else 0


def _leftover_s(path: str) -> int:
    """How old a file was when `unhang run` began, whose id ends with that moment, in ms."""
    began_ms = os.environ.get("UNHANG_RUN", "").rpartition("-")[2]
    try:
        about = os.stat(path)  # noqa: PTH116 - pathlib is not needed here for one call
    except (OSError, ValueError):
        return 0
    if not (about.st_size and began_ms.isascii() and began_ms.isdigit()):
        return 0
    return max(0, int(began_ms) // 1000 - int(about.st_mtime))


class RpcWorker(NamedTuple):
    """What `init_rpc` is given: the worker's name, its threads that serve others, its meeting."""

    name: str
    threads: int
    meeting: Meeting

    @property
    def rank(self) -> int:
        """Its number; -1 where nothing says."""
        return -1 if self.meeting.env_rank is None else self.meeting.env_rank

    @property
    def size(self) -> int:
        """How many workers there are; 0 where they come and go."""
        return self.meeting.told_size


def told_rpc(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> RpcWorker:
    """Read the arguments of `init_rpc`: the options hold the place to meet."""
    given = {**dict(zip(_RPC_POSITIONS, args, strict=False)), **kwargs}
    options = given.get("rpc_backend_options")
    meeting = told_by(
        (),
        {
            "init_method": getattr(options, "init_method", None),
            "rank": given.get("rank"),
            "world_size": given.get("world_size"),
        },
    )
    threads = getattr(options, "num_worker_threads", _RPC_THREADS)
    return RpcWorker(str(given.get("name") or ""), _first(threads), meeting)


def _first(*values: object) -> int:
    """The first of them that is a number from 0 on; -1 for none."""
    texts = (str(value) for value in values)
    return next((int(text) for text in texts if text.isascii() and text.isdigit()), -1)


def _place(scheme: str, netloc: str, path: str) -> str:
    if scheme == "env":
        port = os.environ.get("MASTER_PORT", "")
        netloc = f"{os.environ.get('MASTER_ADDR', '')}:{port}" if port else ""
    return without_secrets((netloc or path).rpartition("@")[2][:200])
