"""Faults below the host program: devices that stop, and calls that do not move though all came."""

from __future__ import annotations

from lab.faults.registry import COLLECTIVE, fault
from lab.faults.scene import Judge, Scene, UnfitError, problem
from lab.model.job import DeviceStop, Issue
from lab.recorder.recording import Recording
from lab.simulate.engine import Outcome
from lab.simulate.oracle import Oracle
from lab.truth import Cause, Point, Truth

_GROUPED = ("tp", "hsdp", "megatron", "moe")


@fault(
    "device-error",
    "UH105",
    layouts=_GROUPED,
    near=("UH402", "UH401"),
    recordings=("nccl-status", "active"),
)
def device_error(scene: Scene) -> Judge:
    """A device fails; its host, which does not notice, goes on enqueueing.

    Its last finished calls are never seen to finish, while its peers saw the same calls finish, in
    several groups: the rank is behind in completion and not in enqueueing.
    """
    rank, position = scene.place(scene.collective)
    scene.insert(rank, position, DeviceStop(blind=scene.rng.randrange(6, 12)))

    def judge(outcome: Outcome, _recording: Recording) -> Truth:
        blind = [r for r in outcome.records[rank] if not r.seen]
        groups = {r.issue.group for r in blind}
        queued = [r for r in outcome.records[rank] if r.finished is None]
        if len(groups) < 2 or not queued or Oracle(outcome).sinks():  # noqa: PLR2004 - "several"
            raise UnfitError("it shows in one group only")
        return problem(outcome, Cause(("UH105",), (rank,)))

    return judge


@fault(
    "device-error-one-group",
    "UH105",
    layouts=("ddp", "fsdp", "zero"),
    near=("UH401",),
    recordings=("nccl-status",),
)
def device_error_one_group(scene: Scene) -> Judge:
    """The same in a job with one group: the rank alone did not come out of its last few calls.

    "Partly finished" says the same of the first of them.
    """
    rank, position = scene.place(scene.collective)
    scene.insert(rank, position, DeviceStop(blind=scene.rng.randrange(3, 6)))

    def judge(outcome: Outcome, _recording: Recording) -> Truth:
        if not any(not r.seen for r in outcome.records[rank]) or outcome.plan.world_size < 4:  # noqa: PLR2004 - a majority
            raise UnfitError("nothing finished unseen")
        return problem(outcome, Cause(("UH105", "UH402"), (rank,)))

    return judge


@fault("device-stuck-timed", "UH105", layouts=COLLECTIVE, near=("UH401",), recordings=("timing",))
def device_stuck_timed(scene: Scene) -> Judge:
    """A device hangs in a computation; with timing on, the rank alone never starts the call.

    Its peers' entries are `started`, its own is `scheduled` although its host went on: the call is
    queued behind something on that device.
    """
    rank, position = scene.place(lambda step: scene.collective(step, at_least=3))
    scene.insert(rank, position, DeviceStop())
    return _all_joined(("UH105", "UH401"), (rank,), scene.issue(rank, position + 1))


@fault(
    "device-stuck",
    "UH401",
    layouts=COLLECTIVE,
    near=("UH105", "UH104"),
    recordings=("nccl-status", "active"),
)
def device_stuck(scene: Scene) -> Judge:
    """The same without timing: every member has called, none has finished. Nobody can be named."""
    rank, position = scene.place(lambda step: scene.collective(step, at_least=2))
    scene.insert(rank, position, DeviceStop())
    return _all_joined(("UH401",), (), scene.issue(rank, position + 1))


def _all_joined(codes: tuple[str, ...], culprits: tuple[int, ...], issue: Issue) -> Judge:
    def judge(outcome: Outcome, recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        members = outcome.plan.groups[issue.group].members
        heads = {oracle.waits[m].head for m in members if m in oracle.waits}
        points = {oracle.point(head) for head in heads if head.issue.group == issue.group}
        if oracle.sinks() or len(heads) < len(members) or len(points) != 1:
            raise UnfitError("not all members wait in one call")
        if set(members) & (recording.silent | recording.truncated):
            raise UnfitError("a member left no dump")
        return problem(outcome, Cause(codes, culprits, points=tuple(points)))

    return judge


def _freeze(scene: Scene, leaving: int) -> tuple[int, int]:
    """Stop the data of one collective; `leaving` members come out. Returns group and number."""
    rank, position = scene.place(lambda step: scene.collective(step, at_least=leaving + 2))
    group = scene.issue(rank, position).group
    if scene.issue(rank, position).root >= 0:
        raise UnfitError("rooted calls end one by one")
    seq = scene.number(rank, position)
    out = frozenset(scene.rng.sample(scene.members(group), leaving))
    scene.plan.frozen[(group, seq)] = out
    return group, seq


@fault("fabric-stuck", "UH401", layouts=(*COLLECTIVE, "uneven"), near=("UH101", "UH201", "UH204"))
def fabric_stuck(scene: Scene) -> Judge:
    """Everybody is in the call, all agree, and it makes no progress: transport, device or library.

    No rank is missing and none may be named.
    """
    group, seq = _freeze(scene, 0)
    return _frozen("UH401", ((group, seq),))


@fault(
    "fabric-stuck-widely",
    "UH401",
    layouts=("tp", "hsdp", "megatron", "moe"),
    smallest=16,
    near=("UH301",),
)
def fabric_stuck_widely(scene: Scene) -> Judge:
    """Several communicators stop at once (a switch): everybody joined everywhere."""
    return _frozen("UH401", (_freeze(scene, 0), _freeze(scene, 0)))


@fault("partly-finished", "UH402", layouts=COLLECTIVE, near=("UH101", "UH105"))
def partly_finished(scene: Scene) -> Judge:
    """All joined; some members came out, at least two did not. Nobody can be named.

    Those that came out wait in their next call for the others, which have queued it.
    """
    leaving = scene.rng.choice((1, 1, 2, 3))
    group, seq = _freeze(scene, leaving)
    return _frozen("UH402", ((group, seq),))


def _frozen(code: str, calls: tuple[tuple[int, int], ...]) -> Judge:
    def judge(outcome: Outcome, recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        members = {m for group, _ in calls for m in outcome.plan.groups[group].members}
        if oracle.sinks() or members & (recording.silent | recording.truncated):
            raise UnfitError("somebody is missing")
        points: set[Point] = set()
        for wait in oracle.waits.values():
            if (wait.head.issue.group, wait.head.seq) in calls and not wait.head.issue.is_p2p:
                points.add(oracle.point(wait.head))
        if not points:
            raise UnfitError("nobody waits there")
        return problem(outcome, Cause((code,), points=tuple(sorted(points))))

    return judge
