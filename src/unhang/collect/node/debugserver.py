"""Dumps from torch's debug server (`torch.distributed.debug`), where a job runs one on this node.

Its page next to rank 0 asks the worker servers of all ranks of the job, so it also brings the dumps
of ranks that are on other nodes. Only a server on torch's own port, and only one that a process of
the job listens with, is asked: a question to any other port might disturb what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from unhang.collect.ranks import Target
from unhang.collect.recorders import HOOKED, holds_calls, is_dump, is_hooked
from unhang.stacks.pieces import split

PORT = 25_999
MAX_PAGE_BYTES = 1 << 30
_PAGES = (
    ("gloo", "/fr_trace_json"),
    ("nccl", "/fr_trace_nccl_json"),
    *((backend, f"/fr_trace_json?backend={backend}") for backend in HOOKED),
)
_LISTENS = "0A"
_ASK_S = 75.0  # it waits up to 60 s for ranks that do not answer


def dumps_of_debug_server(
    targets: Sequence[Target], port: int = PORT
) -> list[tuple[int, str, bytes]]:
    """Ask the debug server of this job for the dumps of all its ranks.

    Args:
        targets: The job's processes on this node.
        port: Where it listens.

    Returns:
        Rank, backend and dump as JSON, of those ranks that gave one; empty where no server is.
    """
    if not any(_listens_with(target.process.pid, port) for target in targets):
        return []
    return [
        (piece.rank, backend, piece.text.encode())
        for backend, page in _PAGES
        for piece in split(_page(port, page))
        if piece.rank >= 0
        and (holds_calls(piece.text, backend) if is_hooked(backend) else is_dump(piece.text))
    ]


def _listens_with(pid: int, port: int) -> bool:
    """Whether a process holds a socket that listens on a port."""
    folder = Path(f"/proc/{pid}")
    try:
        lines = [
            line.split()
            for name in ("tcp", "tcp6")
            for line in (folder / "net" / name).read_text(encoding="ascii").splitlines()[1:]
        ]
        held = set(_sockets(folder / "fd"))
    except OSError:
        return False
    end = f":{port:04X}"
    return any(
        line[1].endswith(end) and line[3] == _LISTENS and f"socket:[{line[9]}]" in held
        for line in lines
    )


def _sockets(folder: Path) -> Iterable[str]:
    for link in folder.iterdir():
        with suppress(OSError):  # closed since
            yield str(link.readlink())


def _page(port: int, page: str) -> str:
    """A page; empty where it is not given."""
    connection = HTTPConnection("localhost", port, timeout=_ASK_S)
    try:
        connection.request("GET", page)
        answer = connection.getresponse()
        body = answer.read(MAX_PAGE_BYTES)
    except (OSError, HTTPException):
        return ""
    finally:
        connection.close()
    return body.decode("utf-8", "replace") if answer.status == HTTPStatus.OK else ""
