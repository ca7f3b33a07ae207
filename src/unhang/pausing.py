"""`unhang.breakpoint(rank=3)`: a debugger on one rank while the others wait.

The others wait for a key in the job's store, not in a collective, so nothing is enqueued and no
watchdog counts; the time-outs of all groups are raised for that time. Where the rank
has no terminal (torchrun, srun took stdin) the debugger listens on the loopback and asks for a
token. Standard library only and lazily torch: it is used inside jobs.
"""

from __future__ import annotations

import hmac
import pdb  # noqa: T100 - the debugger is the purpose
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import IO, Any

_visits: dict[tuple[str, int], int] = {}
POLL_S = 2.0
TOKEN_S = 2.0
"""How long a client has for the token, which `unhang attach` sends at once."""


def breakpoint_on_rank(rank: int = 0, timeout_s: float = 3600.0) -> None:
    """Stop here: rank `rank` in the debugger, all others until it goes on.

    Call it on every rank of the default group. Without an initialised group it is an ordinary
    breakpoint.

    Args:
        rank: Global rank that gets the debugger.
        timeout_s: How long the others wait, in seconds.

    Raises:
        ValueError: If there is no such rank.
        TimeoutError: On the other ranks, if the debugger is not left in time.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the caller's frame is what is debugged
    torch = sys.modules.get("torch.distributed")
    if torch is None or not torch.is_available() or not torch.is_initialized():
        _debug(frame, 0)
        return
    if not 0 <= rank < torch.get_world_size():
        raise ValueError(f"there is no rank {rank}: the job has {torch.get_world_size()}")
    place = (frame.f_code.co_filename, frame.f_lineno)
    _visits[place] = visit = _visits.get(place, -1) + 1
    key = f"unhang/breakpoint/{place[0]}:{place[1]}/{visit}"
    store = torch.distributed_c10d._get_default_store()  # noqa: SLF001 - torch has no public way
    with _raised_timeouts(torch, timeout_s):
        if torch.get_rank() == rank:
            try:
                _debug(frame, rank)
            finally:
                store.set(key, "done")
        else:
            _wait(store, key, rank, timeout_s)


def _wait(store: Any, key: str, rank: int, timeout_s: float) -> None:  # noqa: ANN401 - torch's store
    """Wait for the key in short steps, so that Ctrl-C is heard."""
    waited = 0.0
    while waited < timeout_s:
        with suppress(RuntimeError):  # torch raises DistStoreError, a RuntimeError, for a time-out
            store.wait([key], timedelta(seconds=min(POLL_S, timeout_s - waited)))
            return
        waited += POLL_S
    raise TimeoutError(f"rank {rank} did not leave its debugger in {timeout_s:.0f} s")


@contextmanager
def _raised_timeouts(torch: Any, timeout_s: float) -> Iterator[None]:  # noqa: ANN401 - the module
    """Raise the time-outs of all groups and put them back."""
    inside = torch.distributed_c10d
    before = {}
    for group in list(inside._world.pg_map):  # noqa: SLF001 - torch has no public list of groups
        with suppress(RuntimeError, AttributeError, ValueError):
            before[group] = group._get_backend(_device(group)).options._timeout  # noqa: SLF001 - see above
            inside._set_pg_timeout(timedelta(seconds=timeout_s + 60), group)  # noqa: SLF001 - see above
    try:
        yield
    finally:
        for group, timeout in before.items():
            with suppress(RuntimeError, AttributeError, ValueError):
                inside._set_pg_timeout(timeout, group)  # noqa: SLF001 - see above


def _device(group: Any) -> Any:  # noqa: ANN401 - torch's types
    """A device that the group has a backend for."""
    return group._device_types[0]  # noqa: SLF001 - torch has no public way


def _debug(frame: FrameType, rank: int) -> None:
    """Run the debugger at a frame, on the terminal or on a socket."""
    if sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty():
        _Stop().run(frame)
        return
    token = secrets.token_hex(8)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        port = listener.getsockname()[1]
        print(  # noqa: T201 - the user has to know where to connect
            f"unhang: rank {rank} stopped at {frame.f_code.co_filename}:{frame.f_lineno}; on "
            f"{socket.gethostname()} run: unhang attach 127.0.0.1:{port} {token}",
            file=sys.stderr,
            flush=True,
        )
        with (
            _let_in(listener, token) as client,
            client.makefile("r", errors="replace") as typed,
            client.makefile("w") as shown,
        ):
            listener.close()  # the token is good for one
            _Stop(typed, shown).run(frame)


def _let_in(listener: socket.socket, token: str) -> socket.socket:
    """The first client that says the token; every user of the node may connect.

    One that goes away must not end the rank, and one that says nothing holds it for `TOKEN_S`.
    """
    while True:
        with suppress(OSError):
            client, _ = listener.accept()
            client.settimeout(TOKEN_S)
            if hmac.compare_digest(client.recv(len(token) + 1).strip(), token.encode()):
                client.settimeout(None)
                return client
            with client:
                client.sendall(b"wrong token\n")


class _Stop(pdb.Pdb):
    """A debugger that stops in a given frame and is left by continue, quit or a closed line.

    The interaction runs here, under the breakpoint, not by tracing: when it returns, the program
    goes on, and `step`, `next` and `until` trace from there as usual on a terminal.
    """

    def __init__(self, typed: IO[str] | None = None, shown: IO[str] | None = None) -> None:
        super().__init__(stdin=typed, stdout=shown, nosigint=True)
        self.use_rawinput = typed is None
        self.prompt = "(unhang) "

    def run(self, frame: FrameType) -> None:  # type: ignore[override]  # not bdb's run of a string
        """Interact at a frame; quit means continue, since the other ranks wait."""
        self.reset()
        with suppress(BrokenPipeError, ConnectionError, ValueError):
            self.interaction(frame, None)

    def onecmd(self, line: str) -> bool:
        """Leave; refuse what would let this rank run on while others wait; else do as pdb."""
        word = line.split(maxsplit=1)[0] if line.strip() else ""
        if word in _LEAVING:
            return True
        if word in _STEPPING:
            self.message("the other ranks wait: use continue, and another breakpoint further on")
            return False
        return bool(super().onecmd(line))


_LEAVING = frozenset(("continue", "c", "cont", "quit", "q", "exit", "EOF"))
_STEPPING = frozenset(
    ("step", "s", "next", "n", "until", "unt", "return", "r", "jump", "j", "run", "restart")
)
