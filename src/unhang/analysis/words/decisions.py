"""Words for decisions: one sentence for each action and reason, for people who skim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unhang.report import Action, Reason, Subject
from unhang.wording import printable, rank_phrase

WHY: Final[dict[Reason, str]] = {
    "nothing-wrong": "nothing wrong was found",
    "slow": "the job makes progress, but slower than it could",
    "moves": "what the others wait for is not stuck and may still arrive",
    "pauses": "it has been blocked for no longer than a pause may take",
    "idle": "its peers have always waited for it in this call: it may have no work",
    "spins": "it repeats a few lines, perhaps for ever",
    "wrong-calls": "the next run would make the same mismatched calls",
    "deadlock": "the next run would deadlock in the same order of calls",
    "program-failed": "the program itself failed, and would fail again",
    "left-early": "a rank exited while its peers still made calls",
    "interrupted": "something outside the job ended it",
    "bad-node": "a check of the node itself found it bad",
    "bad-node-unproven": "its device may be bad, but nothing has confirmed this yet",
    "away": "find out what blocks it",
    "outside": "a rank waits for its answer, and the others for that rank",
    "stopped": "it is stopped, and may only need to be continued",
    "ended": "find out why it ended",
    "transport": "all ranks are in the call: network, GPU or library blocks it",
    "surroundings": "the job's environment is wrong, and a restart does not change it",
    "unsure": "the evidence is not enough to act on",
    "not-reached": "ranks that others wait for run there, and it gave no evidence",
    "not-enough-evidence": "not enough evidence to decide",
    "comes-again": "it ended at the same line for the same reason each time",
}
"""Why, after what to do and a colon."""

_WHAT: Final[dict[Action, str]] = {
    "wait": "Wait",
    "fix-code": "Fix the code before the next run",
    "restart": "Restart",
    "restart-without": "Restart without {who}",
    "look-first": "Inspect {who} first",
    "stop": "Stop restarting the job",
}


def sentence(action: Action, reason: Reason, subjects: Sequence[Subject]) -> str:
    """What to do and why: "Inspect rank 3 first: find out what blocks it."."""
    who = _who(subjects)
    what = _WHAT[action].format(who=who or "the job")
    return f"{what}: {WHY[reason]}."


def _who(subjects: Sequence[Subject]) -> str:
    ranks = [subject.rank for subject in subjects if subject.rank is not None]
    return rank_phrase(ranks) if ranks else ", ".join(printable(s.id) for s in subjects)
