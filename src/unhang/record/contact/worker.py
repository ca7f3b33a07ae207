"""Torch's worker server on a unix socket: C++ that answers even while a thread holds the GIL.

It announces itself on stderr when it starts. A job's output is not ours to change, so torch's log
level is raised for the half millisecond that this takes, where torch lets us.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

from unhang.record.calls.ring import Foreign
from unhang.record.contact import sockets
from unhang.record.unsignalled import unsignalled

ERROR_LEVEL = 2


def start(path: Path) -> bool:
    """Start the server; False where this torch has none.

    Raises:
        RuntimeError: Torch could not start it.
        OSError: The socket's mode could not be set.
    """
    c10d = sys.modules.get("torch._C._distributed_c10d")
    server_class = getattr(c10d, "_WorkerServer", None)
    if server_class is None:
        return False
    path.unlink(missing_ok=True)
    with _quiet(), unsignalled(), sockets.short(path) as name:
        server: Foreign = server_class(name)
    _keep_for_ever(server)
    path.chmod(0o600)
    return True


def _keep_for_ever(server: Foreign) -> None:
    """Never stop the server, nor run its destructor, which stops it too.

    Stopping joins its thread: for ever if that has not yet begun to listen (seen on torch 2.13),
    and in a forked child, which has no such thread. The kernel ends it with the process.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    level = _log_level()
    if level is None or level.value >= ERROR_LEVEL:
        yield
        return
    before = level.value
    level.value = ERROR_LEVEL
    try:
        yield
    finally:
        level.value = before


def _log_level() -> ctypes.c_int | None:
    """C10's log level as a variable, or None where this build hides it."""
    where = getattr(sys.modules.get("torch"), "__file__", None)
    if not where:
        return None
    try:
        library = ctypes.CDLL(str(Path(where).parent / "lib" / "libc10.so"))
        return ctypes.c_int.in_dll(library, "FLAGS_caffe2_log_level")
    except (OSError, ValueError):
        return None
