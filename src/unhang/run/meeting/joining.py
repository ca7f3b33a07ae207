"""The meeting of one supervisor with the others of its job: it follows, leads, or looks for them.

A thread does the one after the other; the patrol asks `now` whom it has, and need not know why.
Whatever fails here leaves a supervisor alone, as it is without a meeting.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

from unhang.run.meeting.assembly import Succession, Successor
from unhang.run.meeting.attendance import Attendance
from unhang.run.meeting.beats import NodeBeat
from unhang.run.meeting.company import Company
from unhang.run.meeting.follower import Following, met
from unhang.run.meeting.invitation import Invitation
from unhang.run.meeting.leader import Leading
from unhang.run.meeting.sealing import WireError
from unhang.run.watching.watch import ProgressLook

RETRY_S: Final = 1.0
ALONE_S: Final = 60.0
"""After so long without another supervisor, that is said."""
EARLIER_S: Final = 15.0
"""So often one that leads in another's place looks whether that one is there again."""
_BACKLOG: Final = 1024


class _Unmet(Company):
    """No supervisor leads: what is seen is of this node alone."""

    def __init__(self, standing: Attendance) -> None:
        self._standing = standing

    @property
    def elects(self) -> bool:  # type: ignore[override]  # of this one it changes
        """See `Company`."""
        return self._standing.succession.is_open(time.monotonic())

    def look(self, mine: ProgressLook, beat: Callable[[], NodeBeat]) -> ProgressLook:  # noqa: ARG002 - none hears it
        """See `Company`."""
        return replace(mine, lost=self._standing.silent)

    def why_not_all(self) -> str:
        """See `Company`."""
        return "no other supervisor is reached"


class Joining:
    """Finds the others of a job, from its start to its end."""

    def __init__(
        self,
        invitation: Invitation,
        run: str,
        nudge: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        """Get ready; nothing is reached for yet.

        Args:
            invitation: Where, with which token, for which job.
            run: Who this is.
            nudge: Makes the patrol look at what is new.
            say: How to tell people something.
        """
        self._succession = Succession(run)
        host = os.uname().nodename
        self._standing = Attendance(invitation, run, host, nudge, say, self._succession)
        self._alone = _Unmet(self._standing)
        self._role: Company = self._alone
        self._thread = threading.Thread(target=self._walk, name="unhang-meet", daemon=True)
        self._closed = threading.Event()
        self._kept: socket.socket | None = None
        self._told: set[str] = set()
        self._alone_s = time.monotonic()

    def start(self) -> None:
        """Begin to look for the others."""
        with suppress(RuntimeError):  # no room for a thread: it stays alone
            self._thread.start()

    def now(self) -> Company:
        """The others, as of now."""
        return self._role

    def close(self) -> None:
        """The command is over here: let the others know."""
        self._closed.set()
        self._role.close()
        if self._thread.is_alive():
            self._thread.join(1.0)

    # -------------------------------------------------------------- the thread

    def _walk(self) -> None:
        try:
            self._look_for_others()
        except Exception as error:  # noqa: BLE001 - the job must not notice
            self._role = self._alone
            self._standing.say(f"the meeting failed: {type(error).__name__}: {error}")

    def _look_for_others(self) -> None:
        invitation = self._standing.invitation
        while not self._closed.is_set():
            if (listener := self._listening(invitation.host, invitation.port)) is not None:
                self._lead(listener, first=True)
            elif self._succession.is_due(time.monotonic()) and self._kept is not None:
                listener, self._kept = _listening_at(self._kept), None
                self._lead(listener, first=False)
            elif not self._follow(self._succession.next()):
                self._tell_of_being_alone()
                self._closed.wait(RETRY_S)

    def _follow(self, place: Successor | None) -> bool:
        """Follow the one that leads at a place, until it is lost; False where none does."""
        invitation = self._standing.invitation
        address, port = (place.address, place.port) if place else (invitation.host, invitation.port)
        try:
            link, sealed, rest = met(address, port, invitation.token, invitation.job)
        except WireError as error:
            self._say_once(f"the supervisor at {address}:{port} is not followed: {error}")
            return False
        except OSError:
            return False
        role = Following(self._standing, link, sealed, rest, self._kept_port(link))
        self._take(role)
        role.serve()
        if self._standing.silent:
            where = f"{address}:{port}"
            self._standing.say(f"the supervisor at {where} is silent: the next one leads")
        self._leave()
        return True

    def _lead(self, listener: socket.socket, *, first: bool) -> None:
        role = Leading(self._standing, listener)
        self._take(role)
        over = threading.Event()
        if not first:
            looking = threading.Thread(
                target=self._look_for_earlier, args=(role, over), daemon=True
            )
            with suppress(RuntimeError):
                looking.start()
        try:
            role.serve()
        finally:
            over.set()
            self._leave()

    def _look_for_earlier(self, role: Leading, over: threading.Event) -> None:
        """Step down for the rendezvous host's supervisor, once it leads again."""
        invitation = self._standing.invitation
        while not over.wait(EARLIER_S):
            with suppress(OSError, WireError):
                link, _, _ = met(invitation.host, invitation.port, invitation.token, invitation.job)
                link.close()
                role.step_down()
                return

    def _take(self, role: Company) -> None:
        self._role = role
        if self._closed.is_set():
            role.close()
        self._standing.nudge()

    def _leave(self) -> None:
        self._role, self._alone_s = self._alone, time.monotonic()
        self._succession.lost(time.monotonic())
        self._standing.nudge()

    def _kept_port(self, link: socket.socket) -> int:
        """A port for when this one leads, on the interface on which it follows; 0 for none.

        It is bound and not listened on: nothing can be connected to until then.
        """
        address = link.getsockname()[0]
        if self._kept is not None and self._kept.getsockname()[0] != address:
            self._kept.close()
            self._kept = None
        if self._kept is None:
            with suppress(OSError):
                self._kept = _bound(link.family, (address, 0))
        return int(self._kept.getsockname()[1]) if self._kept is not None else 0

    def _listening(self, host: str, port: int) -> socket.socket | None:
        """At the address of the rendezvous host; None where that is another's, or taken."""
        for family, place in self._addresses(host, port):
            with suppress(OSError):
                return _listening_at(_bound(family, place, again=True))
        return None

    def _addresses(self, host: str, port: int) -> Iterator[tuple[int, tuple[object, ...]]]:
        """Those of a host; not the loopback by another name, at which no other node reaches it."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            self._say_once(f"{host} has no address here: the supervisors do not meet")
            return
        places = [(family, place) for family, _, _, _, place in found]
        means_it = host == "localhost" or _is_loopback(host)
        wide = [each for each in places if means_it or not _is_loopback(str(each[1][0]))]
        if not wide:
            text = f"{host} is the loopback here: the supervisors meet if --meet names an address"
            self._say_once(text)
        yield from wide

    def _tell_of_being_alone(self) -> None:
        if time.monotonic() - self._alone_s > ALONE_S:
            where = f"{self._standing.invitation.host}:{self._standing.invitation.port}"
            self._say_once(f"no other supervisor was met at {where}: it watches this node alone")

    def _say_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._standing.say(text)


def _bound(family: int, place: tuple[object, ...], *, again: bool = False) -> socket.socket:
    """A socket at a place; again: also where one of before has only just been closed."""
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if again:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
    except BaseException:
        bound.close()
        raise
    return bound


def _listening_at(bound: socket.socket) -> socket.socket:
    try:
        bound.listen(_BACKLOG)
    except BaseException:
        bound.close()
        raise
    return bound


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
