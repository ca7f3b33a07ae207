"""For whose answer a rank waits that is no rank of its job: a server, or tasks that others run.

Such a rank is a link of the chain of waiting, and not its end: what others wait for is that answer.
What a rank has started itself, its data loader's workers and its threads, is its own. A connection
tells of a server where the kernel showed its other end, and a client's frames where it did not; a
bare socket without a known end may lead to another rank. So may an address of another node, where
this one sees no process: that is said, and who listens there is what to look at in both cases.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from msgspec import Struct

from unhang.model import Frame, ProcessSample
from unhang.stacks.meaning import Meaning
from unhang.stacks.ownership import bare_name, under
from unhang.wording import printable

OUTSIDE_KINDS: Final = frozenset({"network", "process"})

_CLIENTS: Final = (
    "http/client.py", "urllib/request.py", "urllib3/", "requests/", "httpx/", "httpcore/",
    "aiohttp/client.py", "aiohttp/client_reqrep.py", "grpc/_channel.py", "grpc/aio/_call.py",
    "xmlrpc/client.py", "openai/", "redis/", "pymongo/", "psycopg/", "psycopg2/", "kazoo/",
    "etcd3/", "websockets/sync/client.py", "tritonclient/",
)  # fmt: skip
"""Libraries by which one asks a server, and waits for its answer."""
_TASKS: Final = "ray/_private/worker.py"
_ASKS: Final = frozenset({"get_objects", "get", "wait"})
_ACCEPTS: Final = "accept"
_MOST: Final = 60


class Respondent(Struct, frozen=True):
    """Who is asked.

    Attributes:
        address: The other end of the connection: "10.0.0.2:8000"; "" where it is not known.
        pid, host: Its process, where that is on the same node; 0 and "" for none that is known.
        command: What that process runs.
        tasks: They are tasks or actors of Ray.
    """

    address: str = ""
    pid: int = 0
    host: str = ""
    command: str = ""
    tasks: bool = False

    @property
    def names(self) -> str:
        """How people find it: "10.0.0.2:8000 (pid 42: python server.py)"."""
        if self.tasks:
            return "tasks or actors of Ray"
        runs = f": {printable(self.command, _MOST)}" if self.command else ""
        process = f" (pid {self.pid}{runs})" if self.pid else ""
        return f"{printable(self.address, _MOST)}{process}" if self.address else "a server"


def outside_of(sample: ProcessSample, meaning: Meaning) -> Respondent | None:
    """Who is asked by a process that waits on a socket, or for another process; None for none."""
    main = next((thread for thread in sample.threads if thread.is_main), None)
    frames = main.frames if main is not None else ()
    if meaning.kind == "process":
        at = meaning.frame
        asks = at is not None and under(at.file, _TASKS) and bare_name(at.function) in _ASKS
        return Respondent(tasks=True) if asks else None
    if frames and bare_name(frames[0].function) == _ACCEPTS:
        return None
    if sample.peer:
        host = sample.host if sample.peer_pid else ""
        return Respondent(sample.peer, sample.peer_pid, host, sample.peer_command)
    return Respondent() if any(map(_is_client, frames)) else None


def holder_of(sample: ProcessSample) -> str:
    """The process, none of the job, that holds the lock for which one waits; "" for none seen."""
    runs = f" ({printable(sample.peer_command, _MOST)})" if sample.peer_command else ""
    return f"process {sample.peer_pid}{runs}" if sample.peer_pid else ""


def _is_client(frame: Frame) -> bool:
    return _of_client(frame.file)


@lru_cache(maxsize=4_096)  # the ranks of a job stand in the same few files
def _of_client(file: str) -> bool:
    return any(under(file, path) for path in _CLIENTS)
