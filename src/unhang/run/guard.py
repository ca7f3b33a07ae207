"""The supervisor's watcher: light until there is something to watch.

Most commands end within a moment, or never use torch. What watching needs is imported only once
the command has lived for a while, so that it costs others nothing. A failure of the watching ends
the watching and nothing else.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from unhang.run.child.environment import EnvironmentPlan
from unhang.run.child.speak import say
from unhang.run.child.streams import Stream

if TYPE_CHECKING:
    from unhang.run.incident.verdict import Verdict
    from unhang.run.meeting.invitation import Invitation

SHORT_S = 0.3
"""Commands that end sooner are not watched; importing torch alone takes longer."""


class Orders(NamedTuple):
    """What a patrol has to do; see `unhang run --help`."""

    command: Sequence[str]
    plan: EnvironmentPlan
    streams: Sequence[Stream]
    folder: str
    run: str
    job: str
    named: str
    hang_after_s: float
    auto: bool
    grace_s: float
    on_hang: str
    verbose: bool
    quiet: bool
    notify: Sequence[str]
    meet: Invitation | None = None


class Guard:
    """Carries messages from the supervisor's main thread to the patrol in its own.

    Attributes:
        verdict: Of the last incident, or None.
        first: Of the first incident, which may be the same.
        code: Exit code of the command, once it has ended.
        interrupted_s: When the command was last ordered to end; 0.0 for never.
        hurried: The user is impatient: finish with what there is.
        wake_fd: Becomes readable whenever there is news.
    """

    def __init__(self, patrol: Callable[[Guard, int], None]) -> None:
        """Get ready.

        Args:
            patrol: Watches a process until the command has ended; given here, because the patrol
                knows the guard, and imports much.

        Raises:
            OSError: There is no room for a pipe.
        """
        self.verdict: Verdict | None = None
        self.first: Verdict | None = None
        self.code: int | None = None
        self.interrupted_s = 0.0
        self.continued = False
        self.hurried = False
        self._patrol = patrol
        self._over = threading.Event()
        self.wake_fd, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self.wake_fd, False)

    @property
    def is_over(self) -> bool:
        """Whether the command has ended."""
        return self._over.is_set()

    def run(self, child: int) -> None:
        """Watch until the command has ended and everything is written."""
        if self._over.wait(SHORT_S):
            return
        try:
            self._patrol(self, child)
        except Exception as error:  # noqa: BLE001 - the command must not notice
            say(f"watching failed, the command runs on: {type(error).__name__}: {error}")

    def ended(self, exit_code: int) -> None:
        """The command is gone."""
        self.code = exit_code
        self._over.set()
        self._wake()

    def hurry(self) -> None:
        """The user is impatient."""
        self.hurried = True
        self._wake()

    def told_to_end(self) -> None:
        """The command was sent a signal to end: that its ranks end now is no fault."""
        self.interrupted_s = time.monotonic()
        self._wake()

    def told_to_continue(self) -> None:
        """A user sent SIGCONT: what was frozen may go on."""
        self.continued = True
        self._wake()

    def nudge(self) -> None:
        """There is something new to look at."""
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except OSError:
            return  # Full: it will wake anyway.
