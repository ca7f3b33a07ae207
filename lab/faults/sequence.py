"""Faults of the sequence of calls: one too few, one too many, two in the other order."""

from __future__ import annotations

from dataclasses import replace

from lab.faults.registry import COLLECTIVE, fault
from lab.faults.scene import Judge, Scene, UnfitError, problem, site_of
from lab.model.job import Issue
from lab.recorder.recording import Recording
from lab.simulate.engine import Outcome
from lab.simulate.oracle import Oracle
from lab.truth import Cause, Point, Truth


def _other_calls(culprit: int, points: tuple[Point, ...], *codes: str) -> Judge:
    """The culprit's sequence of calls differs from its peers' at one of these points."""

    def judge(outcome: Outcome, recording: Recording) -> Truth:
        if culprit in recording.silent | recording.truncated:
            raise UnfitError("the culprit's history is lost")
        oracle = Oracle(outcome)
        if not oracle.waits:
            raise UnfitError("nobody is stuck")
        if recording.shows_frames:
            return problem(outcome, Cause(codes, (culprit,), points=points))
        # Equal calls cannot be told apart now, and the symptom may be all that is left.
        heads = {oracle.point(wait.head) for wait in oracle.waits.values()}
        alike = {p for p in heads if p.group in {q.group for q in points}}
        seen = tuple(dict.fromkeys((*codes, *_SYMPTOMS)))
        shown = tuple(sorted({*points, *alike}))
        return problem(outcome, Cause(seen, (culprit,), points=_any_of(shown)))

    return judge


def _any_of(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """The same groups, any number."""
    return tuple(dict.fromkeys(replace(point, seq=-1) for point in points))


_SYMPTOMS = ("UH201", "UH202", "UH203", "UH101")


def _skippable(scene: Scene) -> tuple[int, int]:
    return scene.place(
        lambda step: (
            scene.collective(step, at_least=3) and isinstance(step, Issue) and step.root < 0
        )
    )


@fault("skipped-call", "UH102", layouts=COLLECTIVE, smallest=8, history=True, weight=3)
def skipped_call(scene: Scene) -> Judge:
    """A rank leaves out one collective that its peers make.

    From there its numbers are off by one. If the next call is another one, the hang comes at once,
    as a mismatch; if it looks the same, only much later. Peers' sequences show the missing call,
    by call site or shape; among calls that nothing tells apart any of the run is right. Without
    call sites a mismatch, or a last call that never came, may be all that can be said.
    """
    rank, position = _skippable(scene)
    points = _points_around(scene, rank, position)
    scene.replace(rank, position)
    return _other_calls(rank, points, "UH102")


def _points_around(scene: Scene, rank: int, position: int, more: int = 0) -> tuple[Point, ...]:
    issue = scene.issue(rank, position)
    seq = scene.number(rank, position)
    run = scene.same_calls(rank, issue.group, seq)
    return tuple(scene.point(issue.group, n, issue) for n in range(run.start, run.stop + more))


@fault("repeated-call", "UH102", layouts=COLLECTIVE, smallest=8, history=True, weight=2)
def repeated_call(scene: Scene) -> Judge:
    """A rank makes one collective twice (a retry, a double hook).

    The mirror image of a skipped call: its sequence has one call too many.
    """
    rank, position = _skippable(scene)
    points = _points_around(scene, rank, position, more=1)
    again = replace(scene.issue(rank, position))
    scene.insert(rank, position, again)
    return _other_calls(rank, points, "UH102")


@fault("extra-call", "UH102", layouts=COLLECTIVE, smallest=8, history=True)
def extra_call(scene: Scene) -> Judge:
    """Only one rank logs: `if rank == 0: dist.all_reduce(...)`, at a line of its own.

    Its sequence has a call that no peer ever made. Peers that wait for it later are victims.
    """
    rank, position = _skippable(scene)
    issue = scene.issue(rank, position)
    site = replace(issue.site, function="log_gradients", line=12, through="python")
    site = replace(site, file="/home/user/train/debug.py")
    extra = Issue(issue.group, "all_reduce", ((7,),), ((7,),), site, dtype="Float")
    seq = scene.number(rank, position)
    scene.insert(rank, position, extra)
    points = (scene.point(issue.group, seq, extra),)
    return _other_calls(rank, points, "UH102", "UH201", "UH202", "UH203")


@fault("skipped-alike", "UH102", layouts=("ddp", "fsdp", "tp"), history=True)
def skipped_alike(scene: Scene) -> Judge:
    """A rank skips one of many equal calls made at different lines, long before the hang.

    Operation and shapes agree ever after, so nothing but call sites and counts shows it, and the
    hang comes with the last call. Without call sites: the count differs by one, and "never-joined"
    the last one is as true.
    """
    group = 0
    members = scene.members(group)
    culprit = scene.rng.choice(members)
    model = site_of(scene)
    lines = [replace(model, function="average", file=model.file, line=301 + i) for i in range(12)]
    calls = [Issue(group, "all_reduce", ((256,),), ((256,),), at, dtype="Float") for at in lines]
    for rank in members:
        scene.plan.programs[rank] = [*scene.plan.programs[rank][: _tail(scene, rank)], *calls]
    lost = scene.rng.randrange(2, 8)
    program = scene.plan.programs[culprit]
    position = len(program) - len(calls) + lost
    seq = scene.number(culprit, position)
    points = (scene.point(group, seq, calls[lost]),)
    scene.replace(culprit, position)
    if len(members) == 2:  # noqa: PLR2004 - two sides have no majority
        raise UnfitError("two members")
    return _other_calls(culprit, points, "UH102")


def _tail(scene: Scene, rank: int) -> int:
    """Where a rank's last host synchronisation ends."""
    starts = scene.step_starts(rank)
    if not starts:
        raise UnfitError("one step only")
    return starts[-1]


@fault("swapped-calls", "UH102", layouts=("zero", "fsdp", "ddp"), history=True)
def swapped_calls(scene: Scene) -> Judge:
    """A rank makes two neighbouring calls of one group in the other order.

    The first of them is a mismatch, in which it stands alone; a missing and an extra call beside
    each other say the same.
    """
    rank, position = _skippable(scene)
    after = next(
        (
            i
            for i in range(position + 1, min(position + 4, len(scene.plan.programs[rank])))
            if scene.collective(scene.step(rank, i), at_least=3)
        ),
        None,
    )
    if after is None:
        raise UnfitError("no neighbour")
    one, two = scene.issue(rank, position), scene.issue(rank, after)
    if one.group != two.group or (one.op, one.inputs) == (two.op, two.inputs):
        raise UnfitError("not two different calls of one group")
    seq = scene.number(rank, position)
    scene.replace(rank, position, two)
    scene.replace(rank, after, one)
    at = {scene.point(one.group, n, step) for n in (seq, seq + 1) for step in (one, two)}
    return _other_calls(rank, tuple(sorted(at)), "UH102", "UH201", "UH202", "UH203")
