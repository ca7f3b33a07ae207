"""Show cases in a browser: a list, the page of each, its JSON, SQL, two compared, their history.

The server listens on 127.0.0.1 alone, and answers only requests with the token of the address that
it prints. From another machine: ssh -L PORT:127.0.0.1:PORT. It changes nothing. Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import secrets
import select
import signal
import socket
import sys
from pathlib import Path
from shlex import quote
from threading import Thread
from typing import TYPE_CHECKING

from unhang.cli.shared.case_paths import CASES
from unhang.errors import InputError, MissingExtraError, UsageError
from unhang.record.contact.runtime_dir import private_opener, runtime_root
from unhang.regular import reason

if TYPE_CHECKING:
    from starlette.routing import Route

EXAMPLES = """unhang serve
unhang serve unhang-cases/ --port 8770
unhang serve /shared/cases --port 0 --open
unhang serve --live
unhang serve --collect /var/lib/unhang --token-file ~/.unhang-token"""

_PORT = 8770
_MOST_PORT = 65_535
_ENDS_WITHIN_S = 5
_TOKEN_BYTES, _LONGEST_TOKEN = 24, 4096


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang serve`."""
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="CASE", help=f"cases; default: ./{CASES}"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=_PORT,
        metavar="N",
        help=f"default: {_PORT}; 0 takes a free one",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="read a fixed token from FILE; only you may be able to read the file",
    )
    parser.add_argument(
        "--live", action="store_true", help="open the live page of the job on this node"
    )
    parser.add_argument("--job", default="", metavar="ID", help="which job, for --live")
    parser.add_argument(
        "--collect",
        type=Path,
        metavar="DIR",
        help="also take reports of all jobs at /fleet, keep them in DIR, and answer launchers",
    )
    parser.add_argument("--open", action="store_true", help="open a browser")
    parser.add_argument(
        "--for-process", type=int, default=0, metavar="PID", help="end once it has ended"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C, or until the process that it serves for has ended."""
    try:
        import uvicorn

        from unhang.serve.app import make_app
    except ImportError as error:
        raise MissingExtraError("unhang serve", "serve") from error
    from unhang.context.recalled import cases_in

    paths = args.paths or ([] if args.collect else [CASES])
    more = _fleet_in(args.collect) if args.collect else []
    if not args.live:
        cases_in(paths)  # a missing place is reported before the address is
    token = _token(args.token_file)
    if args.for_process:
        Thread(target=_end_with, args=(args.for_process,), daemon=True).start()
    with _listening(args.port) as place:
        port, aim = place.getsockname()[1], "&to=live" if args.live else ""
        address = f"http://127.0.0.1:{port}/enter?token={token}{aim}"
        print(address, flush=True)
        print("unhang: Ctrl-C ends it", file=sys.stderr, flush=True)
        if args.open:
            _open_page(address)
        app = make_app(paths, token, args.job, more, lambda: server.should_exit)
        server = uvicorn.Server(
            uvicorn.Config(
                app, log_level="warning", access_log=False, server_header=False,
                timeout_graceful_shutdown=_ENDS_WITHIN_S,
            )
        )  # fmt: skip
        server.run(sockets=[place])
    return 0


def _end_with(pid: int) -> None:
    """End as by a signal once another process has, which may be killed and so not end us."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        pass
    except OSError:
        return  # The system does not tell: the process that started us ends us, as far as it can.
    else:
        select.select([descriptor], [], [])
    os.kill(os.getpid(), signal.SIGTERM)


def _fleet_in(folder: Path) -> list[Route]:
    """The addresses under /fleet, over the store in a folder of this user alone."""
    import sqlite3

    from unhang.serve.reception import STORE, fleet_routes

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(folder / STORE, os.O_WRONLY | os.O_CREAT, 0o600))
        return fleet_routes(folder)
    except (OSError, sqlite3.Error) as error:
        raise InputError(
            f"{folder} cannot hold the reports: {reason(error)}", "Name a local directory of yours."
        ) from error


def _open_page(address: str) -> None:
    """Open a browser by a file that only its owner can read: each user sees arguments."""
    import webbrowser

    page = runtime_root() / "open.html"
    text = f'<meta http-equiv="refresh" content="0;url={html.escape(address)}">'
    with open(page, "w", opener=private_opener) as file:
        file.write(text)
    webbrowser.open(page.as_uri())


def _token(file: Path | None) -> str:
    """A new token, or the one in a file that no other user can read."""
    if file is None:
        return secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(_LONGEST_TOKEN).decode("ascii", "replace").strip()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", _makes(file)) from error
    if mode & 0o077:
        raise UsageError(f"others can read {file}", f"chmod 600 {file}")
    if len(text) < _TOKEN_BYTES or not re.fullmatch(r"[\w-]+", text, re.ASCII):
        raise UsageError(f"{file} holds no token", _makes(file))
    return text


def _makes(file: Path) -> str:
    return f"To make one: (umask 077; openssl rand -hex {_TOKEN_BYTES} > {quote(str(file))})"


def _listening(port: int) -> socket.socket:
    if not 0 <= port <= _MOST_PORT:
        raise UsageError(f"--port {port} is not a port", f"0 to {_MOST_PORT}; 0 takes a free one.")
    place = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind(("127.0.0.1", port))
        place.listen()  # who comes before the server is ready waits instead of being refused
    except OSError as error:
        place.close()
        raise InputError(
            f"port {port} is not available: {error.strerror}", "--port 0 takes a free one."
        ) from error
    return place
