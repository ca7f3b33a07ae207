"""The other supervisors of a job, as one of them sees them: none, or those that share its case.

Whatever carries it, the concept is one: who sees an incident announces it, all give their parts
into one case, the judge waits for those who take part, and who ends the job says so first.
Over a shared directory each judges for itself; over the network (`meeting.py`) one does for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.casedir.sharing import (
    Announcement,
    announce,
    heard_of,
    is_being_ended,
    tell_of_end,
    without_part,
)
from unhang.run.meeting.assembly import Absent
from unhang.run.watching.watch import ProgressLook

if TYPE_CHECKING:
    from unhang.run.meeting.beats import NodeBeat


@dataclass(frozen=True, slots=True)
class ToldVerdict:
    """The verdict of the one that judges, with the number of the incident, its host and its case.

    Attributes:
        verdict: As `unhang.run.incident.verdict.sent` writes it.
    """

    number: int
    host: str
    case: str
    verdict: str


class Company:
    """No other supervisor: what one that is alone hears.

    Attributes:
        follows: Another supervisor raises the alarm, judges and ends, for all.
        leads: This one does, for others too.
        elects: The one that led is lost, and another one may be about to lead.
        is_shared: An incident here is one of others, too.
    """

    follows = False
    leads = False
    elects = False
    is_shared = False

    def start(self) -> None:
        """The job has begun."""

    def now(self) -> Company:
        """The others as of now: of a kind that never changes, these."""
        return self

    def close(self) -> None:
        """The command is over here, and everything is written."""

    def look(self, mine: ProgressLook, beat: Callable[[], NodeBeat]) -> ProgressLook:  # noqa: ARG002 - for those that send it
        """What is seen of all ranks, given what is seen of those here."""
        return mine

    def ask_for_work(self, *, wanted: bool) -> bool:
        """Whether looks must tell who works: here, or for the one that leads."""
        return wanted

    def host_of(self, rank: int) -> str:  # noqa: ARG002 - for those that know
        """The other node that has a rank; "" for none."""
        return ""

    # -------------------------------------------------------------- an incident

    def news(self) -> Announcement | None:
        """An incident that another one has seen, in which this one has no part yet."""
        return None

    def announce(self, case: Path, news: Announcement) -> None:
        """Let the others know, so that they collect as well.

        Raises:
            OSError: It cannot be written.
        """

    def hand_over(self, case: Path, in_time: Callable[[], bool]) -> ToldVerdict | None:  # noqa: ARG002 - for those that do
        """Give this node's part to the one that judges; its verdict, or None: judge here."""
        return None

    def give_more(self, case: Path) -> None:
        """Dumps of this node have become better since."""

    def without_part(self, case: Path) -> list[Absent]:  # noqa: ARG002 - for those that know
        """Those that take part and have not given theirs."""
        return []

    def received(self) -> int:
        """How much has come of the others' parts: as long as it grows, waiting is worth it."""
        return 0

    def tell(self, verdict: str) -> None:
        """The verdict is out, as it is sent."""

    def why_not_all(self) -> str:
        """Why a verdict does not rest on the evidence of all ranks; "" where nothing says so."""
        return ""

    def tell_of_end(self, case: Path, how: str) -> None:
        """Let the others know, before it is done, that the job is ended or frozen by order.

        Raises:
            OSError: It cannot be written.
        """

    def is_being_ended(self, case: Path) -> bool:  # noqa: ARG002 - for those that know
        """Whether one of them ends the job, or has ended it."""
        return False

    def order(self) -> str:
        """What the one that leads has ordered since it was last asked: "kill", "keep" or ""."""
        return ""


class SharedDisk(Company):
    """Those that were given the same directory: files in it are all that they tell each other."""

    is_shared = True

    def __init__(self, named: Path, job: str, run: str) -> None:
        """Take part.

        Args:
            named: The directory that all of them were given.
            job: The job.
            run: Who this is.
        """
        self._named, self._job, self._run = named, job, run

    def news(self) -> Announcement | None:
        """See `Company`."""
        return heard_of(self._named, self._job, self._run)

    def announce(self, case: Path, news: Announcement) -> None:
        """See `Company`."""
        announce(case, news)

    def without_part(self, case: Path) -> list[Absent]:
        """See `Company`; a run's name begins with its host's (`unhang.run.identity.run_id`)."""
        runs = without_part(self._named, case)
        return [Absent(run, run.rsplit("-", 2)[0], (), "") for run in runs]

    def tell_of_end(self, case: Path, how: str) -> None:
        """See `Company`; what is frozen goes on, and each freezes for itself."""
        if how == "kill":
            tell_of_end(case, self._run)

    def is_being_ended(self, case: Path) -> bool:
        """See `Company`."""
        return is_being_ended(case)
