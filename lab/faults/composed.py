"""Composed faults of the held-out part: two faults at once, or a fault and lost evidence.

No rule may ever be tuned on these. Each is put together from single classes, and its truth from
theirs, where both show.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lab.faults.host import judge_stopped
from lab.faults.registry import FAULTS, Fault
from lab.faults.scene import Judge, Scene, UnfitError
from lab.model.job import Compute, Stop
from lab.recorder.recording import Recording
from lab.simulate.engine import Outcome
from lab.simulate.oracle import Oracle
from lab.truth import Cause, Truth

_GROUPED = ("tp", "hsdp", "megatron", "moe")


def stopped_and_mismatch(scene: Scene) -> Judge:
    """One rank stops; in a group that does not need it, another calls with a wrong shape.

    Two roots that do not depend on each other: two causes.
    """
    return _beside(scene, "wrong-shape")


def stopped_and_frozen(scene: Scene) -> Judge:
    """One rank stops; elsewhere a communicator in which all have joined does not move.

    Two causes, of which only the first has a culprit.
    """
    return _beside(scene, "fabric-stuck")


def _beside(scene: Scene, other: str) -> Judge:
    FAULTS[other].inject(scene)
    rank = scene.rng.randrange(scene.plan.world_size)
    share = scene.rng.uniform(0.4, 0.7)
    places = scene.places(rank, scene.collective, share, 0.9)
    if not places:
        raise UnfitError("no call left")
    scene.insert(rank, places[0], Stop())

    def judge(outcome: Outcome, recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        if oracle.sinks() != {rank} or {rank} & recording.silent:
            raise UnfitError("other roots")
        waits = oracle.waiting_for(frozenset({rank}))
        points = tuple(sorted({oracle.point(wait.head) for wait in waits}))
        p2p = any(wait.head.issue.is_p2p for wait in waits)
        stopped = Cause(("UH101", "UH302") if p2p else ("UH101",), (rank,), points=points)
        return Truth(("problem",), (stopped, _second(oracle, rank, other)), outcome.plan.world_size)

    return judge


def _second(oracle: Oracle, stopped: int, kind: str) -> Cause:
    """The cause in a call that all its members have joined, none of them queued elsewhere."""
    outcome = oracle.outcome
    for wait in oracle.waits.values():
        head = wait.head
        members = outcome.plan.groups[head.issue.group].members
        if head.issue.is_p2p or wait.missing or stopped in members:
            continue
        heads = [oracle.waits[m].head for m in members if m in oracle.waits]
        if len(heads) < len(members) or any(
            (h.issue.group, h.seq) != (head.issue.group, head.seq) for h in heads
        ):
            continue
        point = replace(oracle.point(head), file="", line=0)
        if kind == "fabric-stuck":
            return Cause(("UH401",), points=(point,))
        odd = [h.rank for h in heads if h.issue.inputs != heads[0].issue.inputs]
        if len(odd) > len(members) // 2:
            odd = [h.rank for h in heads if h.rank not in odd]
        if len(odd) == 1:
            return Cause(("UH202",), tuple(odd), points=(point,))
    raise UnfitError("the other fault does not show")


def stopped_and_some_lost(scene: Scene) -> Judge:
    """One rank stops, and the dumps of some others are lost: the one that is idle is named."""
    return FAULTS["never-joined"].inject(scene)


def slow_then_stopped(scene: Scene) -> Judge:
    """One rank is slow in every step, another one stops: being slow is not the cause."""
    ranks = scene.rng.sample(range(scene.plan.world_size), 2)
    for start in reversed(scene.step_starts(ranks[0])):
        scene.insert(ranks[0], start, Compute(host_s=0.1))
    places = scene.places(ranks[1], scene.collective)
    if not places:
        raise UnfitError("no collective")
    scene.insert(ranks[1], scene.rng.choice(places), Stop())
    return judge_stopped((ranks[1],))


def skipped_under_skew(scene: Scene) -> Judge:
    """A rank skips a call, and hosts' clocks disagree by seconds: order must come from sequence."""
    return FAULTS["skipped-call"].inject(scene)


def mismatch_and_some_lost(scene: Scene) -> Judge:
    """A wrong shape, and some dumps lost: the majority that is left decides."""
    return FAULTS["wrong-shape"].inject(scene)


def stall_with_wrapped_rings(scene: Scene) -> Judge:
    """A pipeline stall seen through small rings that wrapped at different points."""
    return FAULTS["pipeline-stall"].inject(scene)


def two_stopped_one_lost(scene: Scene) -> Judge:
    """Two ranks stop; with luck both left a dump among those that came back."""
    return FAULTS["two-stopped"].inject(scene)


def _composed(name: str, like: str, **changes: object) -> Fault:
    inject = globals()[name.replace("-", "_")]
    meaning = (inject.__doc__ or "").strip()
    base = replace(FAULTS[like], name=name, inject=inject, meaning=meaning, weight=1)
    return replace(base, **changes)  # type: ignore[arg-type] # fields of Fault


COMPOSED: Final[dict[str, Fault]] = {
    f.name: f
    for f in (
        _composed("stopped-and-mismatch", "wrong-shape", layouts=_GROUPED, smallest=32,
                  recordings=("plain", "no-stacks", "skew", "nccl-status")),
        _composed("stopped-and-frozen", "fabric-stuck", layouts=_GROUPED, smallest=32,
                  recordings=("plain", "no-stacks", "active", "nccl-status")),
        _composed("stopped-and-some-lost", "never-joined", smallest=8, loses=False,
                  recordings=("lost", "emptied", "cut")),
        _composed("slow-then-stopped", "never-joined", layouts=("ddp", "fsdp", "zero", "tp"),
                  loses=False, recordings=("plain", "skew", "timing")),
        _composed("skipped-under-skew", "skipped-call", smallest=8, recordings=("skew",)),
        _composed("mismatch-and-some-lost", "wrong-shape", smallest=8,
                  recordings=("lost", "emptied")),
        _composed("stall-with-wrapped-rings", "pipeline-stall", loses=False,
                  recordings=("ring", "active", "active-stacks")),
        _composed("two-stopped-one-lost", "two-stopped", recordings=("lost", "culprit-missing")),
    )
}  # fmt: skip
