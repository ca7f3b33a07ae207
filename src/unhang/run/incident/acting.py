"""The rule of ending: the stages of an incident, which may follow which, and what spares a job.

No other place decides that. docs/watching.md has both tables word for word. A stage that may not
follow is not entered, so that nothing is acted on twice, or after a job has gone on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from unhang.run.incident.verdict import Verdict
from unhang.wording import rank_phrase


class IncidentStage(Enum):
    """How far an incident has come; the value says what is so then."""

    WATCHED = "calls finish, or it is too early to tell"
    SUSPECT = "no call has finished for a while: each look asks who works"
    ALARM = "the limit has passed"
    COLLECTING = "evidence is taken and judged"
    TOLD = "the verdict is out"
    GRACE = "some rank may yet make the job go on: it is looked at again once all stood still"
    CONFIRMED = "every condition of ending holds"
    ACTING = "the job is ended, or frozen"
    SPARED = "the verdict is none to act on: the job is left alone"
    RESUMED = "a call has finished, and its rank has begun another"


_S = IncidentStage
FOLLOWS: Final[dict[IncidentStage, frozenset[IncidentStage]]] = {
    _S.WATCHED: frozenset({_S.SUSPECT, _S.ALARM}),
    _S.SUSPECT: frozenset({_S.WATCHED, _S.ALARM}),
    _S.ALARM: frozenset({_S.COLLECTING, _S.RESUMED}),
    _S.COLLECTING: frozenset({_S.TOLD, _S.RESUMED}),
    _S.TOLD: frozenset({_S.GRACE, _S.CONFIRMED, _S.SPARED, _S.RESUMED}),
    _S.GRACE: frozenset({_S.ALARM, _S.RESUMED}),
    _S.CONFIRMED: frozenset({_S.ACTING}),
    _S.ACTING: frozenset({_S.RESUMED}),
    _S.SPARED: frozenset({_S.ALARM, _S.RESUMED}),
    _S.RESUMED: frozenset({_S.WATCHED, _S.SUSPECT, _S.ALARM}),
}
"""From each stage those that may come next. A new attempt of the launcher begins at the first."""


@dataclass(slots=True)
class Course:
    """The stage of the present incident."""

    stage: IncidentStage = IncidentStage.WATCHED

    def enter(self, stage: IncidentStage) -> bool:
        """Go on to a stage; False, and nothing changes, where it may not follow."""
        if stage not in FOLLOWS[self.stage]:
            return False
        self.stage = stage
        return True

    def watched(self, *, suspicious: bool) -> None:
        """A look that raises nothing: of what it is between two incidents."""
        self.enter(IncidentStage.SUSPECT if suspicious else IncidentStage.WATCHED)

    def decided(self, spared: str, *, looks_again: bool) -> bool:
        """After a verdict: whether to act.

        Args:
            spared: Why not, or "".
            looks_again: An alarm comes again once all stand still.
        """
        if not spared:
            return self.enter(IncidentStage.CONFIRMED)
        self.enter(IncidentStage.GRACE if looks_again else IncidentStage.SPARED)
        return False


ENDING: Final = ("fix-code", "restart", "restart-without", "stop")
"""Decisions after which the job as it stands is of no more use."""

LETS_BE: Final = {
    "unsure": "the evidence is not enough to act on",
    "not-enough-evidence": "the evidence is not enough to act on",
    "idle": "the awaited rank may have nothing to do",
}
"""Reasons of decisions that no order to end or to freeze a job overrules."""


def why_spared(
    verdict: Verdict, on_hang: str, grace_s: float, left: Sequence[int] = (), absent: str = ""
) -> str:
    """Why the job is not ended or frozen; "" where it may be. No other place decides that.

    Nothing is ended while any rank outside of a call, blamed or not, moves or may only pause. Nor
    where a call that ranks waited in is no longer in flight at the moment of acting; nor on a
    verdict of low confidence, or evidence that it calls not enough. docs/watching.md has it.

    Args:
        verdict: Of the evidence, which is some seconds old.
        on_hang: What was asked for.
        grace_s: For how long a rank may pause.
        left: Ranks that have left the call since in which they waited.
        absent: Why the verdict does not rest on all nodes, where supervisors act as one.
    """
    if verdict.status != "problem":
        return "found no cause: the job is left alone"
    if unsettled := _may_go_on(verdict, grace_s, left):
        return unsettled
    if absent or verdict.unseen:
        return f"{absent or 'the awaited nodes sent no evidence'}: the job is left alone"
    if verdict.reason in LETS_BE:
        return f"{LETS_BE[verdict.reason]}: the job is left alone"
    waits = verdict.action == "wait" or (on_hang == "decide" and verdict.action not in ENDING)
    if waits:
        return "the decision is not to end the job: it is left alone"
    return "the verdict has low confidence: the job is left alone" if verdict.guessed else ""


def _may_go_on(verdict: Verdict, grace_s: float, left: Sequence[int]) -> str:
    """Who may make the job go on by itself, and what is done about that; "" for no rank."""
    if verdict.moving:
        verb = "moves" if len(verdict.moving) == 1 else "move"
        who = rank_phrase(verdict.moving)
        return f"{who} {verb}: the job is left alone, and watched for the moment that it stops"
    if left:
        have = "has" if len(left) == 1 else "have"
        return (
            f"{rank_phrase(left)} {have} left the call since: the job is left alone "
            f"until nothing has moved for {grace_s:.0f} s (--grace)"
        )
    return pause_words(verdict, "the job is left alone until", grace_s) if verdict.pausing else ""


def pause_words(verdict: Verdict, until: str, grace_s: float) -> str:
    """Who may only pause, and what is done until that has lasted for so long."""
    who = rank_phrase(verdict.pausing)
    return f"{who} may only pause: {until} nothing has moved for {grace_s:.0f} s (--grace)"
