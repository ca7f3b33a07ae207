"""The supervisor that leads: listens on the job's own interface, and hears of all others.

One thread serves all connections; the patrol's thread asks and tells under a lock that is never
held while anything is written or waited for.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from unhang.casedir.sharing import Announcement
from unhang.incoming import fit, value_of
from unhang.run.meeting.assembly import Absent, Assembly, Successor
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
from unhang.run.meeting.beats import NodeBeat, unpacked
from unhang.run.meeting.company import Company, ToldVerdict
from unhang.run.meeting.parcels import Parcels
from unhang.run.meeting.sealing import CHUNK, Host, MessageKind, Sealed, WireError
from unhang.run.watching.watch import ProgressLook
from unhang.wording import printable

MOST_GUESTS: Final = 8192
_MOST_UNKNOWN: Final = 512
"""So many may be about to prove themselves; who comes then comes again."""
_PROVES_S: Final = 5.0
_MOST_UNSENT: Final = 4 << 20
"""A supervisor that takes nothing any more is left."""
_FLUSH_S: Final = 1.0
_MOST_DETAIL: Final = 500


@dataclass(slots=True, eq=False)
class _Guest:
    """One connection.

    Attributes:
        run: Whose it is; "" until it has introduced itself.
    """

    link: socket.socket
    host: Host
    until_s: float
    sealed: Sealed | None = None
    run: str = ""
    out: bytearray = field(default_factory=bytearray)
    parcels: Parcels | None = None
    over: bool = False


class Leading(Company):
    """The one that leads, from its election until it ends or steps down."""

    leads = True
    is_shared = True

    def __init__(self, standing: Attendance, listener: socket.socket) -> None:
        """Lead.

        Args:
            standing: Who this is.
            listener: Bound and listening.
        """
        self._standing = standing
        self._assembly = Assembly(standing.run, standing.number)
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._bell = Bell()
        self._listener = listener
        self._guests: set[_Guest] = set()
        self._case: Path | None = None
        self._asks, self._order = False, ""
        self._told: tuple[int, bytes] = (0, b"")
        self._dirty = self._closed = False
        self._state_s = 0.0
        self._received = 0

    # -------------------------------------------------------------- the patrol's thread

    def look(self, mine: ProgressLook, beat: Callable[[], NodeBeat]) -> ProgressLook:
        """See `Company`."""
        with self._lock:
            self._assembly.mine = beat()
            look = self._assembly.look(mine, time.monotonic())
        return replace(look, lost=look.lost or self._standing.silent)

    def ask_for_work(self, *, wanted: bool) -> bool:
        """See `Company`."""
        if wanted != self._asks:
            self._asks = wanted
            self._change()
        return wanted

    def host_of(self, rank: int) -> str:
        """See `Company`."""
        with self._lock:
            return self._assembly.hosts.get(rank, "")

    def news(self) -> Announcement | None:
        """See `Company`."""
        with self._lock:
            return self._standing.news_of(self._assembly.incident, time.time())

    def announce(self, case: Path, news: Announcement) -> None:
        """See `Company`."""
        with self._lock:
            if not self._assembly.incident.is_open:
                self._assembly.open(news)
            self._standing.joined = self._standing.number = self._assembly.incident.number
            self._assembly.ready()
            self._case, self._received = case, 0
        self._change()

    def without_part(self, case: Path) -> list[Absent]:  # noqa: ARG002 - it is the newest
        """See `Company`."""
        with self._lock:
            return self._assembly.without_part(time.monotonic())

    def received(self) -> int:
        """See `Company`."""
        return self._received

    def tell(self, verdict: str) -> None:
        """See `Company`; what is found later about the same incident stays here."""
        name = str(self._case or "")
        with self._lock:
            incident = self._assembly.incident
            if not incident.is_open:
                return
            self._assembly.judged()
            told = ToldVerdict(incident.number, self._standing.host, name, verdict)
            self._told = incident.number, message(told)
        self._change()

    def why_not_all(self) -> str:
        """See `Company`."""
        with self._lock:
            return self._assembly.why_not_all(time.monotonic())

    def tell_of_end(self, case: Path, how: str) -> None:  # noqa: ARG002 - it is the newest
        """See `Company`."""
        self._order = how
        self._change()
        self._flush()

    def _flush(self) -> None:
        """Give what was said a moment to leave."""
        until_s = time.monotonic() + _FLUSH_S
        while time.monotonic() < until_s and not self._closed:
            if not self._dirty and not any(guest.out for guest in list(self._guests)):
                return
            time.sleep(0.01)

    def close(self) -> None:
        """See `Company`."""
        self._flush()
        self._closed = True
        self._wake()

    def step_down(self) -> None:
        """Another one leads, whose turn comes before."""
        self._closed = True
        self._wake()

    def _change(self) -> None:
        self._dirty = True
        self._wake()

    def _wake(self) -> None:
        self._bell.ring()

    # -------------------------------------------------------------- the meeting's thread

    def serve(self) -> None:
        """Until it is closed."""
        self._listener.setblocking(False)  # noqa: FBT003 - as it is called
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._bell.ears, selectors.EVENT_READ)
        try:
            while not self._closed:
                self._turn()
        finally:
            for guest in list(self._guests):
                self._drop(guest)
            self._selector.close()
            self._listener.close()
            self._bell.close()

    def _turn(self) -> None:
        wait_s = max(0.0, self._state_s + STATE_S - time.monotonic())
        for key, events in self._selector.select(wait_s):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._bell.ears:
                self._bell.hush()
            else:
                self._serve(key.data, events)
        self._say_state()

    def _accept(self) -> None:
        unknown = sum(not guest.run for guest in self._guests)
        try:
            link, _ = self._listener.accept()
        except OSError:
            return  # It has gone again, or there is no room: it comes again.
        if unknown >= _MOST_UNKNOWN or len(self._guests) >= MOST_GUESTS:
            link.close()
            return
        link.setblocking(False)  # noqa: FBT003 - as above
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        invitation = self._standing.invitation
        guest = _Guest(link, Host(invitation.token, invitation.job), time.monotonic() + _PROVES_S)
        self._guests.add(guest)
        self._selector.register(link, selectors.EVENT_READ, guest)
        self._send(guest, guest.host.greeting)

    def _serve(self, guest: _Guest, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                data = guest.link.recv(CHUNK)
                if not data:
                    raise WireError("it has gone")  # noqa: TRY301 - as all that ends it
                self._take(guest, data)
            self._push(guest)
        except (BlockingIOError, InterruptedError):
            return
        except (WireError, OSError, ValueError) as error:
            if guest.run and isinstance(error, ValueError):
                self._standing.say(f"a supervisor sent what none sends ({printable(str(error))})")
            self._drop(guest)

    def _take(self, guest: _Guest, data: bytes) -> None:
        if guest.sealed is None:
            proved = guest.host.take(data)
            if proved is None:
                return
            answer, guest.sealed, data = proved
            self._send(guest, answer)
        for kind, body in guest.sealed.take(data):
            if not guest.run:
                self._introduce(guest, body)
            elif kind == MessageKind.BEAT:
                with self._lock:
                    self._assembly.heard(guest.run, unpacked(body), time.monotonic())
            elif kind == MessageKind.FILE:
                self._take_file(guest, body)
            else:
                self._take_words(guest, body)

    def _introduce(self, guest: _Guest, body: bytes) -> None:
        hello = fit(_words(body, "hello"), Hello)
        address = guest.link.getpeername()[0]
        place = Successor(hello.run, address, hello.port)
        with self._lock:
            if not self._assembly.joined(hello.run, hello.host, place, time.monotonic()):
                raise WireError("a supervisor of that name is here")
        guest.run = hello.run
        self._tell(guest, self._state())  # the others hear of it with the next: they are many

    def _take_words(self, guest: _Guest, body: bytes) -> None:
        value = value_of(body)
        do = value.get("do") if isinstance(value, dict) else ""
        with self._lock:
            self._assembly.here(guest.run, time.monotonic())
            if do == "bye":
                guest.over = True
            elif do == "gave":
                self._assembly.gave(guest.run, fit(value, Gave).number)
            elif do == "raised" and not self._assembly.incident.is_open:
                raised = fit(value, Raised)
                detail = raised.detail[:_MOST_DETAIL]
                kind = "hang" if raised.kind == "hang" else "rank-ended"
                self._assembly.open(Announcement(guest.run, kind, detail, time.time()))
                self._dirty = True
        if do == "raised":
            self._standing.nudge()

    def _take_file(self, guest: _Guest, body: bytes) -> None:
        with self._lock:
            incident, case = self._assembly.incident, self._case
        if not incident.ready or case is None:
            return
        if guest.parcels is None or guest.parcels.number != incident.number:
            guest.parcels = Parcels(case, incident.number, guest.run, self._ranks_of(guest.run))
        with suppress(OSError):  # A full disk costs files, not the verdict.
            guest.parcels.take(body)
        self._received += len(body)

    def _ranks_of(self, run: str) -> Callable[[], frozenset[int]]:
        def told() -> frozenset[int]:
            with self._lock:
                return self._assembly.ranks_of(run)

        return told

    def _say_state(self) -> None:
        now_s = time.monotonic()
        if not self._dirty and now_s - self._state_s < STATE_S:
            return
        self._dirty, self._state_s = False, now_s
        said, told = self._state(), self._told[1]
        for guest in list(self._guests):
            if guest.run and guest.sealed is not None:
                self._tell(guest, said)
                if told:
                    self._tell(guest, told)
            elif now_s > guest.until_s:
                self._drop(guest)
        self._told = self._told[0], b"" if self._told[1] is told else self._told[1]

    def _state(self) -> bytes:
        with self._lock:
            incident, line = self._assembly.incident, self._assembly.line
        return message(LeaderState(incident, self._asks, self._order, line))

    def _tell(self, guest: _Guest, body: bytes) -> None:
        if guest.sealed is None or guest not in self._guests:
            return
        with suppress(WireError):  # too long, and so not sent
            self._send(guest, guest.sealed.seal(MessageKind.WORDS, body))

    def _send(self, guest: _Guest, data: bytes) -> None:
        guest.out += data
        if len(guest.out) > _MOST_UNSENT:
            self._drop(guest)
            return
        try:
            self._push(guest)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._drop(guest)

    def _push(self, guest: _Guest) -> None:
        """Send what the other side takes now, and the rest once it takes more."""
        try:
            while guest.out:
                del guest.out[: guest.link.send(guest.out)]
        finally:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if guest.out else 0)
            self._selector.modify(guest.link, wanted, guest)

    def _drop(self, guest: _Guest) -> None:
        if guest not in self._guests:
            return
        self._guests.discard(guest)
        with suppress(KeyError, ValueError):
            self._selector.unregister(guest.link)
        guest.link.close()
        if guest.parcels is not None:
            guest.parcels.close()
        if guest.run:
            with self._lock:
                self._assembly.lost(guest.run, well=guest.over)


def _words(body: bytes, do: str) -> object:
    value = value_of(body)
    if not isinstance(value, dict) or value.get("do") != do:
        raise WireError("it does not introduce itself")
    return value
