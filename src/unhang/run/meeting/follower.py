"""A supervisor that follows another: it tells what it sees, gives its part, takes the verdict."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from unhang.casedir.sharing import Announcement
from unhang.incoming import fit, value_of
from unhang.run.meeting.assembly import SILENT_S, OpenIncident
from unhang.run.meeting.attendance import (
    STATE_S,
    Attendance,
    Bell,
    Gave,
    Hello,
    LeaderState,
    Raised,
    message,
)
from unhang.run.meeting.beats import NodeBeat, packed
from unhang.run.meeting.company import Company, ToldVerdict
from unhang.run.meeting.parcels import files_of, parcelled
from unhang.run.meeting.sealing import CHUNK, Guest, MessageKind, Sealed, WireError
from unhang.run.watching.watch import ProgressLook

T = TypeVar("T")

CONNECT_S: Final = 3.0
READY_S: Final = 20.0
"""So long the one that leads is given to begin an incident that was raised to it."""
VERDICT_S: Final = 400.0
"""So long it is given to wait for all, and to judge."""
_SENT_S: Final = 10.0


def met(address: str, port: int, token: bytes, job: str) -> tuple[socket.socket, Sealed, bytes]:
    """Connect to the one that leads, each proving itself; what came behind its proof, too.

    Raises:
        OSError: Nothing answers there in time.
        WireError: It is no supervisor of this job.
    """
    link = socket.create_connection((address, port), CONNECT_S)
    until_s = time.monotonic() + CONNECT_S
    guest = Guest(token, job)
    try:
        while True:
            link.settimeout(max(0.01, until_s - time.monotonic()))
            data = link.recv(4096)
            if not data:
                raise WireError("it does not take this one")  # noqa: TRY301 - closed below, too
            answer, sealed, rest = guest.take(data)
            if answer:
                link.sendall(answer)
            if sealed is not None:
                return link, sealed, rest
    except BaseException:
        link.close()
        raise


class Following(Company):
    """From the moment that a leader is met until it is lost."""

    follows = True
    is_shared = True

    def __init__(
        self, standing: Attendance, link: socket.socket, sealed: Sealed, rest: bytes, port: int
    ) -> None:
        """Follow.

        Args:
            standing: Who this is.
            link: Connected to the one that leads.
            sealed: How messages on it are made.
            rest: What has come already.
            port: That is kept for when this one leads.
        """
        self._standing, self._link, self._sealed = standing, link, sealed
        self._rest, self._port = rest, port
        self._bell = Bell()
        self._lock = threading.Condition()
        self._beat = b""
        self._words: deque[bytes] = deque()
        self._files: Iterator[bytes] | None = None
        self._state = LeaderState()
        self._told: ToldVerdict | None = None
        self._ordered = ""
        self._closed = self._over = False
        self._heard_s = self._said_s = time.monotonic()

    # -------------------------------------------------------------- the patrol's thread

    def look(self, mine: ProgressLook, beat: Callable[[], NodeBeat]) -> ProgressLook:
        """See `Company`: it goes to the one that leads, which alone sees all."""
        self._beat = packed(beat())
        self._bell.ring()
        return mine

    def ask_for_work(self, *, wanted: bool) -> bool:
        """See `Company`."""
        return wanted or self._state.asks

    def news(self) -> Announcement | None:
        """See `Company`."""
        return self._standing.news_of(self._state.incident, time.time())

    def announce(self, case: Path, news: Announcement) -> None:  # noqa: ARG002 - it is given later
        """See `Company`."""
        incident = self._state.incident
        if not (incident.is_open and incident.number == self._standing.joined):
            self._say(message(Raised(news.kind, news.detail)))

    def hand_over(self, case: Path, in_time: Callable[[], bool]) -> ToldVerdict | None:
        """See `Company`."""
        incident = self._awaited(self._ready, READY_S, in_time)
        if incident is None:
            return None
        number = self._standing.joined = incident.number
        self._give(case, number, dumps_only=False)
        return self._awaited(lambda: self._verdict(number), VERDICT_S, in_time)

    def give_more(self, case: Path) -> None:
        """See `Company`."""
        self._give(case, self._standing.joined, dumps_only=True)

    def _give(self, case: Path, number: int, *, dumps_only: bool) -> None:
        def pieces() -> Iterator[bytes]:
            for path in files_of(case, self._standing.run, dumps_only=dumps_only):
                yield from parcelled(case, path, number)

        with self._lock:
            before = self._files

            def all_pieces() -> Iterator[bytes]:
                yield from before or ()
                yield from pieces()
                self._say(message(Gave(number)))

            self._files = all_pieces()
        self._bell.ring()

    def _ready(self) -> OpenIncident | None:
        incident = self._state.incident
        known = incident.number >= self._standing.joined
        return incident if incident.is_open and incident.ready and known else None

    def _verdict(self, number: int) -> ToldVerdict | None:
        told = self._told
        return told if told is not None and told.number == number else None

    def _awaited(
        self, found: Callable[[], T | None], most_s: float, in_time: Callable[[], bool]
    ) -> T | None:
        """What comes in time; None where it does not, or the one that leads is lost."""
        until_s = time.monotonic() + most_s
        while time.monotonic() < until_s and in_time():
            if (value := found()) is not None or self._over:
                return value
            time.sleep(0.05)
        return None

    def is_being_ended(self, case: Path) -> bool:  # noqa: ARG002 - one job, one order
        """See `Company`."""
        return self._state.order == "kill"

    def order(self) -> str:
        """See `Company`."""
        given, self._ordered = self._ordered, ""
        return given

    def close(self) -> None:
        """See `Company`."""
        self._say(b'{"do": "bye"}')
        self._closed = True
        self._bell.ring()

    def _say(self, body: bytes) -> None:
        self._words.append(body)
        self._bell.ring()

    # -------------------------------------------------------------- the meeting's thread

    def serve(self) -> None:
        """Until the one that leads is lost, or this one is closed."""
        self._link.settimeout(_SENT_S)
        try:
            self._send(
                MessageKind.WORDS,
                message(Hello(self._standing.run, self._standing.host, self._port)),
            )
            self._take(self._rest)
            while not self._over and self._turn():
                pass
        except (OSError, WireError, ValueError) as error:
            if not isinstance(error, OSError):
                self._standing.say(f"the supervisor that leads is not followed: {error}")
        finally:
            self._over = True
            self._link.close()
            self._bell.close()

    def _turn(self) -> bool:
        """One message each way at most; False where it is over."""
        sent = self._send_next()
        if self._closed and not self._words:
            return False
        wait_s = 0.0 if sent else STATE_S
        ready, _, _ = select.select([self._link, self._bell.ears], [], [], wait_s)
        self._bell.hush()
        if self._link in ready:
            data = self._link.recv(CHUNK)
            if not data:
                return False
            self._take(data)
        if time.monotonic() - self._said_s >= STATE_S:
            self._say(b'{"do": "here"}')
        self._standing.silent = time.monotonic() - self._heard_s >= SILENT_S
        return not self._standing.silent

    def _send_next(self) -> bool:
        """Looks before words before files: they are small, and others wait for them."""
        beat, self._beat = self._beat, b""
        if beat:
            self._send(MessageKind.BEAT, beat)
        elif self._words:
            self._send(MessageKind.WORDS, self._words.popleft())
        else:
            with self._lock:
                piece = next(self._files, b"") if self._files is not None else b""
                self._files = self._files if piece else None
            if not piece:
                return bool(self._words)
            self._send(MessageKind.FILE, piece)
        return True

    def _send(self, kind: bytes, body: bytes) -> None:
        self._said_s = time.monotonic()
        self._link.sendall(self._sealed.seal(kind, body))

    def _take(self, data: bytes) -> None:
        for _, body in self._sealed.take(data):
            self._heard_s = time.monotonic()
            value = value_of(body)
            if not isinstance(value, dict):
                raise WireError("it says what none says")
            if value.get("do") == "toldverdict":
                self._told = fit(value, ToldVerdict)
            elif value.get("do") == "leaderstate":
                self._learn(fit(value, LeaderState))

    def _learn(self, state: LeaderState) -> None:
        is_new = state.incident.number > self._state.incident.number
        if state.order and not self._state.order:
            self._ordered = state.order
        self._state = state
        self._standing.number = state.incident.number
        self._standing.succession.led_by(state.line)
        if is_new or self._ordered:
            self._standing.nudge()
