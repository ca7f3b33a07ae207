"""One node's part of the connection matrix: it listens for its peers and connects to each of them.

It receives {"me", "token", "ports", "seconds", "bytes"}, and either {"peers": {name: [addresses]}}
to call all of them at once, or {"again": [[name, address, port]], "callers": [names]} to call some
once more, with nothing else going on. It answers only callers that know the token, and stops by
itself.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

HELLO = b"unhang-doctor 1 "
CONNECT_S = 2.0
LINGER_S = 2.0
DATA_S = 4.0
SETTLE_S = 1.0
ECHO = 64
LONGEST = 200
LAPS = 10
AGAIN = 3
PATHS = (8900, 4000, 1460, 1450, 1420, 1400, 1350, 1300, 1280)
"""Sizes of packets that usual networks and tunnels let through (jumbo frames to IPv6's least)."""
PATH_BYTES, ANY_SIZE = 1 << 18, 0
HEADERS, HEADERS_6 = 40, 60
SETTLED = ("open", "wrong-host", "other-service")
Target = tuple[str, str, int]
# Where struct tcp_info (linux/tcp.h) has what we ask of it; kernels from 4.6 on have all of it.
RETRANS_AT, SEGMENTS_AT, MIN_RTT_AT = 100, 136, 148


class Listener(threading.Thread):
    """Answers peers on one port until told to stop."""

    def __init__(self, port: int, me: str, token: str) -> None:
        """Bind the port; `error` says why it could not."""
        super().__init__(daemon=True)
        self.me, self.token, self.error = me, token, ""
        self.done: set[str] = set()
        self.stop = threading.Event()
        self.socket = both_families()
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
                caller.settimeout(DATA_S)
                greeting = line_of(caller)
                if not greeting.startswith(HELLO + self.token.encode() + b" "):
                    return
                caller.sendall(HELLO + self.token.encode() + b" " + self.me.encode() + b"\n")
                while True:
                    command = line_of(caller)
                    if command == b"ping":
                        caller.sendall(b"p" * ECHO)
                    elif command == b"clock":
                        caller.sendall(b"%d\n" % time.time_ns())
                    elif command.startswith(b"data "):
                        swallow(caller, int(command[5:]))
                        caller.sendall(b"k")
                    elif command.startswith(b"bye "):
                        self.done.add(command[4:].decode())
                    else:
                        return
        except (OSError, ValueError):
            return


def both_families() -> socket.socket:
    """A socket that takes callers of IPv4 and IPv6, where the kernel has both."""
    try:
        stream = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:  # IPv6 is switched off
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    stream.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return stream


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


def connected(address: str, port: int, packet: int) -> socket.socket:
    """A connection, whose packets have at most so many bytes; 0: as large as the kernel likes."""
    family, kind, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    stream = socket.socket(family, kind)
    try:
        stream.settimeout(CONNECT_S)
        if packet:
            headers = HEADERS_6 if family == socket.AF_INET6 else HEADERS
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, packet - headers)
        stream.connect(place)
    except BaseException:
        stream.close()
        raise
    return stream


def probe(me: str, token: str, target: Target, size: int, packet: int = 0) -> dict[str, Any]:
    """Connect once to (peer, address, port); returns what was seen."""
    name, address, port = target
    seen = {"peer": name, "address": address, "port": port, "state": "", "latency_ms": None,
            "mb_per_s": None, "rtt_ms": None, "sent": 0, "resent": 0, "early": 0,
            "says": "", "source": "", "passes": None, "ahead_ms": None}  # fmt: skip
    try:
        stream = connected(address, port, packet)
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
        seen["source"] = stream.getsockname()[0]
        try:
            talk(stream, f"{token} {me}", size, seen)
        except OSError as error:
            seen.update(state=seen["state"] or "silent", says=str(error))
        seen.update(counted(stream))
    return seen


def counted(stream: socket.socket) -> dict[str, Any]:
    """What the kernel counted: segments sent, sent again, and the shortest round trip.

    Unlike our own clock, these do not depend on how busy the processors are.
    """
    info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    if len(info) < MIN_RTT_AT + 4:
        return {}
    resent, sent, rtt = (
        struct.unpack_from("=I", info, at)[0] for at in (RETRANS_AT, SEGMENTS_AT, MIN_RTT_AT)
    )
    return {"resent": resent, "sent": sent, "rtt_ms": rtt / 1000 if rtt < 1 << 31 else None}


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
    for _ in range(LAPS):
        start = time.perf_counter()
        stream.sendall(b"ping\n")
        swallow(stream, ECHO)
        laps.append(time.perf_counter() - start)
    seen["latency_ms"] = round(min(laps) * 1000, 3)
    seen["ahead_ms"] = ahead(stream)
    seen["early"] = counted(stream).get("resent", 0)
    if size:
        seen["mb_per_s"] = throughput(stream, size)
    seen["state"] = "open"


def ahead(stream: socket.socket) -> float:
    """Milliseconds by which the peer's clock is ahead of ours, to within half a round trip."""
    before = time.time_ns()
    stream.sendall(b"clock\n")
    there = int(line_of(stream) or b"0")
    return round((there - (before + time.time_ns()) / 2) / 1e6, 3) if there else 0.0


def throughput(stream: socket.socket, size: int) -> float:
    """Megabytes a second; a slow connection is left in the middle."""
    stream.settimeout(DATA_S)
    start = time.perf_counter()
    stream.sendall(b"data %d\n" % size)
    block = b"x" * (1 << 16)
    sent = 0
    while sent < size and time.perf_counter() - start < DATA_S:
        stream.sendall(block)
        sent += len(block)
    if sent == size:
        swallow(stream, 1)
    return round(sent / 1e6 / max(time.perf_counter() - start, 1e-6), 1)


def call_all(order: dict[str, Any], end: float) -> list[dict[str, Any]]:
    """Call every peer at every address and port, all at once, until all answered."""
    me, token, ports = order["me"], order["token"], order["ports"]
    size = size_of(order)
    wanted = [
        (name, address, port)
        for name, addresses in sorted(order["peers"].items())
        if name != me
        for address in addresses
        for port in ports
    ]
    rows: dict[Target, dict[str, Any]] = {}

    def call_until_settled(target: Target) -> None:
        while time.monotonic() < end:
            rows[target] = probe(me, token, target, size if target[2] == ports[0] else 0)
            if rows[target]["state"] in SETTLED:
                return
            time.sleep(0.2)

    in_threads(call_until_settled, wanted)
    return [rows[key] for key in wanted if key in rows]


def size_of(order: dict[str, Any]) -> int:
    """Bytes of the throughput test, in whole blocks."""
    return (int(order.get("bytes", 0)) >> 16) << 16


def in_threads(work: Callable[[Target], None], targets: list[Target]) -> None:
    """A thread for each, so that a slow peer delays no other's turn."""
    threads = [threading.Thread(target=work, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def call_again(order: dict[str, Any], end: float) -> list[dict[str, Any]]:
    """Call some targets a few times more; those that carry data one after the other."""
    me, token, first = order["me"], order["token"], order["ports"][0]
    size = size_of(order)
    targets = [(str(name), str(address), int(port)) for name, address, port in order["again"]]
    rows: list[dict[str, Any]] = []

    def connect(target: Target) -> None:
        for _ in range(AGAIN):
            row = probe(me, token, target, 0)
            rows.append(row)
            if row["state"] in SETTLED or time.monotonic() > end:
                return
            time.sleep(0.5)

    time.sleep(SETTLE_S)  # the others' listeners
    in_threads(connect, [target for target in targets if target[2] != first])
    heavy = [target for target in targets if target[2] == first] * AGAIN
    rows += [probe(me, token, target, size) for target in heavy if time.monotonic() < end]
    for row in rows:
        if row["state"] == "silent" and row["latency_ms"] is not None and not row["early"]:
            row["passes"] = passing(me, token, (row["peer"], row["address"], row["port"]))
            break  # each takes seconds, and the same way would be tried
    return rows


def passing(me: str, token: str, target: Target) -> int:
    """The largest of usual packets with which data arrives; 0 where size is not what matters."""
    good = set()

    def attempt(way: Target) -> None:
        packet = way[2]
        if probe(me, token, target, PATH_BYTES, packet)["state"] == "open":
            good.add(packet)

    in_threads(attempt, [(*target[:2], packet) for packet in (ANY_SIZE, *PATHS)])
    return 0 if ANY_SIZE in good else max(good, default=0)


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


def examine(order: dict[str, Any]) -> dict[str, Any]:
    """Run one node's part; returns {"me", "rows", "listen_errors"}."""
    listeners = {port: Listener(port, order["me"], order["token"]) for port in order["ports"]}
    for listener in listeners.values():
        listener.start()
    end = time.monotonic() + order["seconds"]
    if "again" in order:
        rows, callers = call_again(order, end), set(order["callers"])
    else:
        rows, callers = call_all(order, end), set(order["peers"]) - {order["me"]}
    answered = {(row["peer"], row["address"], row["port"]) for row in rows
                if row["state"] == "open"}  # fmt: skip
    for target in answered:
        say_bye(order["me"], order["token"], target)
    # Peers may still be about to call: stay until each has said good-bye, or a while past the end.
    end += LINGER_S
    while time.monotonic() < end and not all(
        listener.error or callers <= listener.done for listener in listeners.values()
    ):
        time.sleep(0.1)
    for listener in listeners.values():
        listener.stop.set()
    errors = {str(port): listener.error for port, listener in listeners.items() if listener.error}
    return {"me": order["me"], "rows": rows, "listen_errors": errors}
