"""What a process gives `init_process_group`: its rank, how many there are, where they meet.

Ranks that never meet mostly disagree about one of the three. Nothing else of the arguments is kept.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from unhang.telltale import without_secrets

_RPC_POSITIONS = ("name", "backend", "rank", "world_size", "rpc_backend_options")
_RPC_THREADS = 16
"""Torch's own number of threads that serve other workers, where none is given."""

_POSITIONS = ("backend", "init_method", "timeout", "world_size", "rank", "store")


class Meeting(NamedTuple):
    """-1, 0 and "" for what it does not say.

    Attributes:
        leftover_s: Where they meet at a file: for how long it had been there, with something in it,
            when the run began; 0 where it was not.
        earlier: How many attempts of torchrun have met at this place before, and left their
            addresses there; 0 where each has a store of its own.
    """

    rank: int = -1
    size: int = 0
    place: str = ""
    leftover_s: int = 0
    earlier: int = 0


def told_by(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Meeting:
    """Read the arguments of `init_process_group`, and what they leave to the environment."""
    given = {**dict(zip(_POSITIONS, args, strict=False)), **kwargs}
    parts = urlsplit(str(given.get("init_method") or "env://"))
    query = parse_qs(parts.query)
    return Meeting(
        rank=_first(given.get("rank"), query.get("rank", [""])[0], os.environ.get("RANK")),
        size=_first(
            given.get("world_size"), query.get("world_size", [""])[0], os.environ.get("WORLD_SIZE")
        ),
        place=""
        if given.get("store") is not None
        else _place(parts.scheme, parts.netloc, parts.path),
        leftover_s=_leftover_s(parts.path) if parts.scheme == "file" else 0,
        earlier=_earlier() if parts.scheme == "env" and given.get("store") is None else 0,
    )


def _earlier() -> int:
    """How often torchrun has restarted the job, where one store of its own serves all attempts.

    That is so where its ranks use the store of its agent: by default with every rendezvous since
    torch 2.4, with the static one before, too.
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
        return self.meeting.rank

    @property
    def size(self) -> int:
        """How many workers there are; 0 where they come and go."""
        return max(self.meeting.size, 0)


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
