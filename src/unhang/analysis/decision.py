"""What to do now: one of five actions, from what is known of the first cause and of its kind.

What helps against a kind is in its row (`unhang.kinds.Remedy`). The facts of a case come before it:
who moves is waited for, and how a process ended tells whether its code is at fault. A node is left
out only where something that looked at the node itself says that it is bad.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.out_of_calls import unsettled
from unhang.analysis.rules.left_order import LeftOrder
from unhang.analysis.rules.rank_ended import Ended
from unhang.analysis.rules.skipped_call import SkippedCall
from unhang.analysis.rules.told import OfCulprits
from unhang.analysis.shared.claims import Claim, Doubt, Stance, confidence_of, doubts_left
from unhang.analysis.sources.exits import Manner
from unhang.analysis.sources.logs import Failure
from unhang.analysis.words.decisions import sentence
from unhang.checks import HARD_XIDS
from unhang.kinds import Remedy, Trait
from unhang.report import Action, Confidence, Decision, Reason, Status, Subject

_MOST: Final = 8
_IDLE: Final = frozenset({Doubt.LEADS, Doubt.SERVES})
"""That who is waited for may have nothing to do."""
_WHO: Final = frozenset({Doubt.MADE_ALONE, Doubt.ONE_ITERATION})
"""That another rank may be wrong instead."""
_AT_ENDS: Final[dict[Manner, tuple[Action, Reason]]] = {
    Manner.RAISED: ("fix-code", "program-failed"),
    Manner.LEFT: ("fix-code", "left-early"),
}
"""What to do about an end; about all others: look why they ended."""


def decide(claims: Sequence[Claim], status: Status, lives: Lives) -> Decision:
    """Say what to do now.

    Args:
        claims: All of them, in the order of the report.
        status: Of the report.
        lives: Where each rank is, to name its host.
    """
    cause = next((claim for claim in claims if claim.is_cause), None)
    if cause is None:
        return _without_cause(claims, status, lives)
    away = unsettled(lives)
    stalled = _stalled(cause, lives)
    decision = _about(cause, lives)
    pausing = tuple(sorted({*away.pausing, *stalled}))
    return replace(decision, moving=away.moving, pausing=pausing)


def _stalled(cause: Claim, lives: Lives) -> Iterator[int]:
    """Ranks in a call that lacks no rank, for no longer than a pause takes.

    A network that has lost its link may get it back: over TCP such a call went on after 22 s. Of
    other networks and of devices nothing was recorded; they have the same time.
    """
    if cause.kind.family != "transport" or not cause.kind.has(Trait.OPEN):
        return
    for rank in {*cause.culprits, *cause.victims}:
        look = lives.sampled.get(rank)
        if look is not None and not look.gone and look.sample.paused_s >= 0:
            yield rank


def _about(cause: Claim, lives: Lives) -> Decision:
    action, reason = _of_cause(cause, lives)
    sure = confidence_of(cause)
    if reason == "moves":
        sure = "medium"  # Movement was seen; that it ends well was not.
    elif sure == "low" and cause.pausing:
        action, reason = "look-first", "pauses"
    elif sure == "low" and not _IDLE.isdisjoint(cause.all_doubts):
        action, reason = "look-first", "idle"
    elif sure == "low" and (symptom := _sure_symptom(cause)) is not None:
        return _made(action, reason, confidence_of(symptom), _ranks(symptom, lives))
    elif sure == "low" and action != "look-first":
        action, reason = "look-first", "unsure"
    return _made(action, reason, sure, tuple(_subjects(cause, action, lives)))


def _sure_symptom(cause: Claim) -> Claim | None:
    """What is seen in the end, where that is sure, and only which rank is wrong is a guess."""
    symptom = cause.about.symptom if isinstance(cause.about, LeftOrder | SkippedCall) else None
    if symptom is None or symptom.kind.family not in ("disagreement", "deadlock"):
        return None
    grave = {doubt for doubt in doubts_left(cause) if doubt.cost > 1}
    if any(cause.weights(Stance.CONTRADICTS)) or not grave <= _WHO:
        return None
    return None if confidence_of(symptom) == "low" else symptom


def without_evidence() -> Decision:
    """What to do where nothing could be read: there is no case to judge."""
    return _made("look-first", "not-enough-evidence", "low")


def _without_cause(claims: Sequence[Claim], status: Status, lives: Lives) -> Decision:
    sure: Confidence = confidence_of(claims[0]) if claims else "medium"
    if status == "healthy":
        return _made("wait", "nothing-wrong", sure)
    if status == "slow":
        late = _ranks(claims[0], lives) if claims else ()
        return _made("look-first" if late else "wait", "slow", sure, late)
    silent = [node for node in lives.asked if node.state != "answered"]
    hosts = tuple(Subject("host", node.node, host=node.node) for node in silent[:_MOST])
    return _made("look-first", "not-reached" if hosts else "not-enough-evidence", "low", hosts)


def _made(
    action: Action, reason: Reason, sure: Confidence, subjects: tuple[Subject, ...] = ()
) -> Decision:
    return Decision(action, reason, sure, subjects, sentence(action, reason, subjects))


def _of_cause(cause: Claim, lives: Lives) -> tuple[Action, Reason]:
    """The action against a cause, and why, before its confidence is asked for."""
    goes_on = Doubt.WENT_ON in cause.all_doubts
    if goes_on or _moves(cause):
        spins = {look.spins for look in lives.looks_at(cause.culprits)} == {True}
        return ("look-first", "spins") if spins and not goes_on else ("wait", "moves")
    if _bad_hosts(cause, lives):
        return "restart-without", "bad-node"
    if isinstance(cause.about, Ended):
        return _AT_ENDS.get(cause.about.first[0].manner, ("look-first", "ended"))
    if cause.kind.helps is Remedy.CODE or _went_on(cause, lives):
        return "fix-code", _wrong(cause)
    if cause.kind.helps is Remedy.RETRY:
        return "restart", "interrupted"
    return "look-first", _where_to_look(cause, lives)


def _moves(cause: Claim) -> bool:
    """All who are waited for work, and may come yet."""
    return cause.kind.has(Trait.MAY_COME) and 0 < len(cause.moving) == len(cause.culprits)


def _went_on(cause: Claim, lives: Lives) -> bool:
    """A send or receive was left out by ranks that have gone on to other calls since."""
    left_out = cause.kind.has(Trait.ONE_MISTAKE) and cause.kind.has(Trait.MAY_COME)
    return left_out and bool(cause.culprits) and set(cause.culprits) <= lives.in_calls


def _wrong(cause: Claim) -> Reason:
    if cause.kind.family in ("failure", "program"):
        return "program-failed"
    return "deadlock" if cause.kind.family == "deadlock" else "wrong-calls"


_LOOK: Final[Mapping[str, Reason]] = {
    "transport": "transport",
    "device": "bad-node-unproven",
    "environment": "surroundings",
    "failure": "ended",
}


def _where_to_look(cause: Claim, lives: Lives) -> Reason:
    if cause.links and {*cause.links} >= {*cause.culprits}:
        return "outside"
    if any(look.meaning.kind == "stopped" for look in lives.looks_at(cause.culprits)):
        return "stopped"
    return _LOOK.get(cause.kind.family, "away")


# ------------------------------------------------------------------ nodes


def _bad_hosts(cause: Claim, lives: Lives) -> tuple[str, ...]:
    """Hosts about which something that looked at them says that they are bad, and no rank else."""
    if isinstance(cause.about, Failure):
        return tuple(sorted(_hosts_of_failure(cause.about, lives)))
    checks = [
        each.observation
        for each in cause.weighed
        if each.bearing.stance is Stance.SUPPORTS
        and each.bearing.weight
        and cause.kind.has(Trait.FROM_BAD_NODE)
    ]
    if not any(isinstance(each, OfCulprits) and _is_of_node(each) for each in checks):
        return ()
    return tuple(sorted({lives.nodes.host_of.get(rank, "") for rank in cause.culprits} - {""}))


def _is_of_node(told: OfCulprits) -> bool:
    """Whether a check is about the node or its GPU, and sure of what it says."""
    return told.kind.family == "device" and told.finding.confidence == "high"


def _hosts_of_failure(failure: Failure, lives: Lives) -> Iterator[str]:
    """Where a message that tells of bad hardware comes from, or which host it names."""
    if failure.kind.helps is not Remedy.REPLACE or failure.rivals or failure.everybody:
        return
    event = failure.group.first
    xid = event.fields.get("xid", "")
    if xid and int(xid) not in HARD_XIDS:
        return
    hosts = {lives.nodes.host_of.get(rank, "") for rank in failure.culprits}
    hosts = (hosts | {event.fields.get("host") or event.host}) - {""}
    if len(hosts) == 1:  # Two names contradict each other, or are of one node: nothing tells which.
        yield from hosts


# ------------------------------------------------------------------ about whom


def _subjects(cause: Claim, action: Action, lives: Lives) -> Iterator[Subject]:
    if action == "restart-without":
        yield from (Subject("host", host, host=host) for host in _bad_hosts(cause, lives)[:_MOST])
    elif asked := [each for w in cause.weighed for each in w.observation.asked]:
        yield from asked[:_MOST]
    elif action != "restart":
        yield from _ranks(cause, lives)


def _ranks(claim: Claim, lives: Lives) -> tuple[Subject, ...]:
    host_of = lives.nodes.host_of
    return tuple(
        Subject("rank", f"rank {r}", rank=r, host=host_of.get(r)) for r in claim.culprits[:_MOST]
    )
