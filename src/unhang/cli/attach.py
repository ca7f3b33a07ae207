"""Connect to a rank that stopped in unhang.breakpoint, or attach a debugger to a running one.

Attaching to a running process by its PID needs Python 3.14 or later on both sides (PEP 768).
"""

from __future__ import annotations

import argparse
import codecs
import getpass
import re
import socket
import subprocess
import sys
import threading

from unhang.errors import ToolError, UsageError
from unhang.wording import printable

EXAMPLES = """unhang attach 127.0.0.1:41234 3f9a1c0b77d2e845
unhang attach 127.0.0.1:41234
unhang attach 4711"""

FIRST_ATTACHABLE = (3, 14)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang attach`."""
    parser.add_argument("target", metavar="ADDRESS|PID", help="as the stopped rank printed it")
    parser.add_argument(
        "token",
        nargs="?",
        help="as the stopped rank printed it; asked for where it is left out, as other users of "
        "the node may see command lines",
    )


def run(args: argparse.Namespace) -> int:
    """Talk to a stopped rank, or attach to a running one."""
    if args.target.isdigit():
        return _attach(int(args.target))
    found = re.fullmatch(r"([\w.:-]+):(\d{1,5})", args.target)
    if not found:
        raise UsageError(
            f"{args.target!r} is no address, and no PID",
            "The stopped rank prints the whole command on its stderr.",
        )
    return _talk(found[1], int(found[2]), args.token or _asked())


def _asked() -> str:
    """The token, typed without being shown, or the first line of stdin."""
    token = ""
    if sys.stdin is not None:
        asks = sys.stdin.isatty()
        token = getpass.getpass("token: ") if asks else sys.stdin.readline().strip()
    if not token:
        raise UsageError("the token is missing", "The stopped rank prints it on its stderr.")
    return token


def _attach(pid: int) -> int:
    if sys.version_info < FIRST_ATTACHABLE:
        raise ToolError(
            "attaching to a running process needs Python 3.14, this is "
            f"{sys.version_info[0]}.{sys.version_info[1]}",
            "Put unhang.breakpoint(rank=N) into the program, or inspect it with unhang stacks.",
        )
    command = [sys.executable, "-I", "-m", "pdb", "-p", str(pid)]  # -p is new in 3.14
    away = "/"  # pdb runs what a .pdbrc of the working directory says
    return subprocess.run(command, cwd=away, check=False).returncode  # noqa: S603 - our own interpreter


def _talk(host: str, port: int, token: str) -> int:
    """Send what is typed, show what comes, until the other side closes."""
    try:
        stream = socket.create_connection((host, port), timeout=10)
    except OSError as error:
        raise ToolError(
            f"no process answers at {host}:{port}: {error.strerror or error}",
            "A stopped rank listens on the loopback of its own node: run this command there.",
        ) from error
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with stream:
        stream.settimeout(None)
        stream.sendall(token.encode() + b"\n")
        threading.Thread(target=_type, args=(stream,), daemon=True).start()
        while data := stream.recv(1 << 16):
            sys.stdout.write(_safe(decoder.decode(data)))
            sys.stdout.flush()
    return 0


def _safe(text: str) -> str:
    """A text without what a terminal would obey: any program may listen at an address."""
    return re.sub(r"[^\n\t]+", lambda found: printable(found[0]), text)


def _type(stream: socket.socket) -> None:
    try:
        for line in sys.stdin:
            stream.sendall(line.encode())
        stream.shutdown(socket.SHUT_WR)
    except OSError:
        return
