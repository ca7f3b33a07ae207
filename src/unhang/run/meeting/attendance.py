"""What a supervisor keeps under any leader: who it is, where all meet, what it takes part in."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from unhang.casedir.sharing import Announcement
from unhang.run.meeting.assembly import OpenIncident, Succession, Successor
from unhang.run.meeting.invitation import Invitation

STATE_S = 2.0
"""So often each side says that it is there."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A supervisor introduces itself, with the port that it keeps for when it leads."""

    run: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Raised:
    """A supervisor has seen an incident."""

    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Gave:
    """A supervisor has sent all that it has of an incident."""

    number: int


@dataclass(frozen=True, slots=True)
class LeaderState:
    """What the one that leads says every few seconds, and at each change.

    Attributes:
        asks: Looks must tell who works.
        order: What is done to the job: "kill", "keep" or "".
        line: Who leads next.
    """

    incident: OpenIncident = field(default_factory=OpenIncident)
    asks: bool = False
    order: str = ""
    line: tuple[Successor, ...] = ()


def message(value: object) -> bytes:
    """One of these as it travels."""
    return json.dumps({"do": type(value).__name__.lower(), **asdict(value)}).encode()  # type: ignore[call-overload]  # one of these


@dataclass(slots=True)
class Attendance:
    """Of one supervisor.

    Attributes:
        run, host: Who it is, and where.
        nudge: Makes the patrol look at what is new.
        number: The newest incident that it knows of.
        joined: The newest in which it has taken part.
        silent: The last that led fell silent, and none that leads has been met since.
    """

    invitation: Invitation
    run: str
    host: str
    nudge: Callable[[], None]
    say: Callable[[str], None]
    succession: Succession
    number: int = 0
    joined: int = 0
    silent: bool = False

    def news_of(self, incident: OpenIncident, now_s: float) -> Announcement | None:
        """An incident that another one has seen, once."""
        if not incident.is_open or incident.number <= self.joined or incident.run == self.run:
            return None
        self.joined = incident.number
        return Announcement(incident.run, incident.kind, incident.detail, now_s)


class Bell:
    """Wakes a thread that waits for sockets."""

    def __init__(self) -> None:
        """Hang it up."""
        self.ears, self._hand = socket.socketpair()
        for end in (self.ears, self._hand):
            end.setblocking(False)  # noqa: FBT003 - as it is called

    def ring(self) -> None:
        """Wake it; nothing where it is over."""
        with suppress(OSError):  # full: it wakes anyway
            self._hand.send(b"\0")

    def hush(self) -> None:
        """It is awake."""
        with suppress(OSError):
            while self.ears.recv(512):
                pass

    def close(self) -> None:
        """Take it down."""
        self.ears.close()
        self._hand.close()
