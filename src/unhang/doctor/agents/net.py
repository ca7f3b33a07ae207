"""One node's part of the connection matrix: it listens for its peers and connects to each of them.

Standard library only and self-contained. Takes one JSON argument:
{"me", "token", "peers": {name: [addresses]}, "ports": [..], "seconds", "bytes"} and prints JSON.
It answers only callers that know the token, and stops by itself.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

HELLO = b"unhang-doctor 1 "
CONNECT_S = 2.0
LINGER_S = 3.0
ECHO = 64
LONGEST = 200
SETTLED = ("open", "wrong-host", "other-service")


class Listener(threading.Thread):
    """Answers peers on one port until told to stop."""

    def __init__(self, port: int, me: str, token: str) -> None:
        """Bind the port; `error` says why it could not."""
        super().__init__(daemon=True)
        self.me, self.token, self.error = me, token, ""
        self.done: set[str] = set()
        self.stop = threading.Event()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind(("", port))
            self.socket.listen(256)
            self.socket.settimeout(0.2)
        except OSError as error:
            self.error = str(error)

    def run(self) -> None:
        """Accept callers."""
        while not self.stop.is_set() and not self.error:
            try:
                caller, _ = self.socket.accept()
            except OSError:
                continue
            threading.Thread(target=self.answer, args=(caller,), daemon=True).start()
        self.socket.close()

    def answer(self, caller: socket.socket) -> None:
        """Say who we are, echo pings, swallow the throughput test."""
        try:
            with caller:
                caller.settimeout(CONNECT_S * 2)
                greeting = line_of(caller)
                if not greeting.startswith(HELLO + self.token.encode() + b" "):
                    return
                caller.sendall(HELLO + self.token.encode() + b" " + self.me.encode() + b"\n")
                while True:
                    command = line_of(caller)
                    if command == b"ping":
                        caller.sendall(b"p" * ECHO)
                    elif command.startswith(b"data "):
                        swallow(caller, int(command[5:]))
                        caller.sendall(b"k")
                    elif command.startswith(b"bye "):
                        self.done.add(command[4:].decode())
                    else:
                        return
        except (OSError, ValueError):
            return


def line_of(stream: socket.socket) -> bytes:
    """Read up to a newline, at most 200 bytes."""
    data = b""
    while not data.endswith(b"\n"):
        piece = stream.recv(1)
        if not piece or len(data) > LONGEST:
            return b""
        data += piece
    return data[:-1]


def swallow(stream: socket.socket, count: int) -> None:
    """Read that many bytes."""
    while count > 0:
        piece = stream.recv(min(count, 1 << 16))
        if not piece:
            raise ConnectionError("closed")
        count -= len(piece)


def probe(me: str, token: str, target: tuple[str, str, int], size: int) -> dict[str, Any]:
    """Connect once to (peer, address, port); returns what was seen."""
    name, address, port = target
    seen = {"peer": name, "address": address, "port": port, "state": "", "latency_ms": None,
            "mb_per_s": None, "says": ""}  # fmt: skip
    try:
        stream = socket.create_connection((address, port), timeout=CONNECT_S)
    except TimeoutError:
        seen["state"] = "filtered"
        return seen
    except ConnectionRefusedError:
        seen["state"] = "refused"
        return seen
    except OSError as error:
        seen.update(state="unreachable", says=str(error))
        return seen
    with stream:
        try:
            talk(stream, f"{token} {me}", size, seen)
        except OSError as error:
            seen.update(state=seen["state"] or "silent", says=str(error))
    return seen


def talk(stream: socket.socket, who: str, size: int, seen: dict[str, Any]) -> None:
    """Check who answers, then measure latency and throughput."""
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    token, me = who.split(" ", 1)
    prefix = HELLO + token.encode() + b" "
    stream.sendall(prefix + me.encode() + b"\n")
    answer = line_of(stream)
    if not answer.startswith(prefix):
        seen.update(state="other-service", says=repr(answer[:60]))
        return
    if answer[len(prefix) :].decode() != seen["peer"]:
        seen.update(state="wrong-host", says=answer[len(prefix) :].decode())
        return
    laps = []
    for _ in range(5):
        start = time.perf_counter()
        stream.sendall(b"ping\n")
        swallow(stream, ECHO)
        laps.append(time.perf_counter() - start)
    seen["latency_ms"] = round(sorted(laps)[2] * 1000, 3)
    if size:
        stream.settimeout(CONNECT_S * 2)
        start = time.perf_counter()
        stream.sendall(b"data %d\n" % size)
        block = b"x" * (1 << 16)
        for _ in range(size >> 16):
            stream.sendall(block)
        swallow(stream, 1)
        seen["mb_per_s"] = round(size / 1e6 / max(time.perf_counter() - start, 1e-6), 1)
    seen["state"] = "open"


def call_all(order: dict[str, Any], end: float) -> list[dict[str, Any]]:
    """Call every peer at every address and port, until all answered; slow ones once more."""
    me, token, ports = order["me"], order["token"], order["ports"]
    size = (int(order.get("bytes", 1 << 22)) >> 16) << 16
    wanted = [
        (name, address, port)
        for name, addresses in sorted(order["peers"].items())
        if name != me
        for address in addresses
        for port in ports
    ]
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}

    def call(target: tuple[str, str, int]) -> None:
        rows[target] = probe(me, token, target, size if target[2] == ports[0] else 0)

    def call_until_settled(target: tuple[str, str, int]) -> None:
        while time.monotonic() < end:
            call(target)
            if rows[target]["state"] in SETTLED:
                return
            time.sleep(0.2)

    # A thread for each, so that a slow peer delays nobody else's turn.
    threads = [threading.Thread(target=call_until_settled, args=(target,)) for target in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    call_slow_ones_alone(rows, call, end)
    for target, row in rows.items():
        if row["state"] == "open":
            say_bye(me, token, target)
    return [rows[key] for key in wanted if key in rows]


def call_slow_ones_alone(
    rows: dict[tuple[str, str, int], dict[str, Any]],
    call: Callable[[tuple[str, str, int]], None],
    end: float,
) -> None:
    """Measure slow connections once more, one by one, and keep the better of the two."""
    for target, row in list(rows.items()):
        if looks_slow(row, rows.values()) and time.monotonic() < end:
            call(target)
            again = rows[target]
            if again["state"] != "open" or (again["mb_per_s"] or 0) < row["mb_per_s"]:
                rows[target] = row


def looks_slow(row: dict[str, Any], rows: Iterable[dict[str, Any]]) -> bool:
    """Whether a connection's throughput is far below the middle one of this node's."""
    rates = sorted(other["mb_per_s"] for other in rows if other["mb_per_s"])
    return bool(row["mb_per_s"]) and row["mb_per_s"] * 4 < rates[len(rates) // 2]


def say_bye(me: str, token: str, target: tuple[str, str, int]) -> None:
    """Tell a peer that we shall not call again, so that it need not wait."""
    try:
        with socket.create_connection(target[1:], timeout=CONNECT_S) as stream:
            stream.settimeout(CONNECT_S)
            stream.sendall(HELLO + token.encode() + b" " + me.encode() + b"\n")
            line_of(stream)
            stream.sendall(b"bye " + me.encode() + b"\n")
    except OSError:
        return


def main() -> None:
    """Run one node's part; prints {"me", "rows", "listen_errors"}."""
    order = json.loads(sys.argv[1])
    listeners = {port: Listener(port, order["me"], order["token"]) for port in order["ports"]}
    for listener in listeners.values():
        listener.start()
    end = time.monotonic() + order["seconds"]
    rows = call_all(order, end)
    # Peers may still be about to call: stay until each has said good-bye, or a while past the end.
    end += LINGER_S
    others = set(order["peers"]) - {order["me"]}
    while time.monotonic() < end and not all(
        listener.error or others <= listener.done for listener in listeners.values()
    ):
        time.sleep(0.1)
    for listener in listeners.values():
        listener.stop.set()
    errors = {port: listener.error for port, listener in listeners.items() if listener.error}
    json.dump({"me": order["me"], "rows": rows, "listen_errors": errors}, sys.stdout)


if __name__ == "__main__":
    main()
