"""Words for decisions: one sentence for each action and reason, for people who skim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unhang.report import Action, Reason, Subject
from unhang.wording import printable, rank_phrase

__all__ = ["WHY", "sentence"]

WHY: Final[dict[Reason, str]] = {
    "nothing-wrong": "nothing wrong was found",
    "slow": "it moves, and slower than it could",
    "moves": "who is waited for is not stuck, and may come yet",
    "pauses": "it stands still for so short a while that it may only pause",
    "idle": "it may have nothing to do, as the others have always waited for it there",
    "spins": "it goes round on a few lines, which may never end",
    "wrong-calls": "the same calls would not fit together the next time either",
    "deadlock": "the same order of calls would lock again",
    "program-failed": "the program itself failed, and would again",
    "left-early": "a rank left while its peers still called",
    "interrupted": "it was ended from outside",
    "bad-node": "a look at the node itself says that it is bad",
    "bad-node-unproven": "its device may be bad, which nothing has confirmed yet",
    "away": "what keeps it tells what helps",
    "stopped": "it is stopped, and may only need to be continued",
    "ended": "why it ended tells what helps",
    "transport": "everybody is there: network, GPU or library hold it",
    "surroundings": "what surrounds the job is wrong, and a restart does not change that",
    "unsure": "the evidence is not enough to act on",
    "not-enough-evidence": "there is not enough to decide on",
}
"""Why, after "because"."""

_WHAT: Final[dict[Action, str]] = {
    "wait": "Wait",
    "fix-code": "Fix the code before it runs again",
    "restart": "Restart",
    "restart-without": "Restart without {who}",
    "look-first": "Look first{at}",
}


def sentence(action: Action, reason: Reason, subjects: Sequence[Subject]) -> str:
    """What to do and why: "Look first at rank 3: what keeps it tells what helps."."""
    who = _who(subjects)
    what = _WHAT[action].format(who=who, at=f" at {who}" if who else "")
    return f"{what}: {WHY[reason]}."


def _who(subjects: Sequence[Subject]) -> str:
    ranks = [subject.rank for subject in subjects if subject.rank is not None]
    return rank_phrase(ranks) if ranks else ", ".join(printable(s.id) for s in subjects)
