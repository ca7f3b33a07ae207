"""Faults of order between groups: deadlocks in which nobody is to blame."""

from __future__ import annotations

from dataclasses import replace

from lab.faults.registry import fault
from lab.faults.scene import Judge, Scene, UnfitError, problem, site_of
from lab.model.job import Issue
from lab.recorder.recording import Recording
from lab.simulate.engine import Outcome
from lab.simulate.oracle import Oracle
from lab.truth import Cause, Point, Truth


@fault("crossed-groups", "UH301", layouts=("hsdp", "tp", "megatron"), smallest=4)
def crossed_groups(scene: Scene) -> Judge:
    """Ranks enter two crossing groups in opposite order: a deadlock.

    Everybody waits for somebody who waits; sequences inside each group are equal, so nobody is to
    blame. A loop is to be shown.
    """
    tall, wide = _crossing(scene)
    model = site_of(scene)
    first = Issue(-1, "all_reduce", ((512,),), ((512,),), replace(model, line=401))
    points = set()
    for rank in range(scene.plan.world_size):
        order = [tall[rank], wide[rank]]
        column = scene.members(tall[rank]).index(rank) + scene.members(wide[rank]).index(rank)
        if column % 2:
            order.reverse()
        calls = [
            replace(first, group=g, site=replace(model, line=401 + 6 * (g == wide[rank])))
            for g in order
        ]
        starts = scene.step_starts(rank)
        if not starts:
            raise UnfitError("no step to begin")
        scene.insert(rank, starts[len(starts) // 2], *calls)
        points |= {scene.point(c.group, -1, c) for c in calls}
    return _loop("UH301", tuple(sorted(points)))


def _loop(code: str, points: tuple[Point, ...], *more: str) -> Judge:
    """Nobody is a root: a deadlock in which no rank is to blame."""

    def judge(outcome: Outcome, _recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        if oracle.sinks() or not oracle.waits:
            raise UnfitError("not a loop")
        return problem(outcome, Cause((code, *more), points=points))

    return judge


def _crossing(scene: Scene) -> tuple[dict[int, int], dict[int, int]]:
    """For each rank, two groups that share nobody else; every rank must have both."""
    kinds: dict[str, dict[int, int]] = {}
    for index, group in enumerate(scene.plan.groups):
        if group.size > 1 and group.description != "default_pg":
            kinds.setdefault(group.description, {}).update(dict.fromkeys(group.members, index))
    whole = [of for of in kinds.values() if len(of) == scene.plan.world_size]
    if len(whole) < 2:  # noqa: PLR2004 - two to cross
        raise UnfitError("no crossing groups")
    return whole[0], whole[1]


@fault("crossed-twins", "UH301", layouts=("ddp", "fsdp", "tp", "mixed"), smallest=4)
def crossed_twins(scene: Scene) -> Judge:
    """Two groups with the same members, entered the other way round by some ranks.

    As with crossed grids nobody's sequence inside a group is wrong; who has the wrong order is
    the programmer's to say. A loop, no culprit. On Gloo members are inferred from who recorded a
    call, so the twin looks like a smaller group in which all have joined: that is right as well.
    """
    world = scene.plan.groups[0]
    twin = len(scene.plan.groups)
    name = str(sum(1 for _ in scene.plan.groups) + 90)
    scene.plan.groups.append(replace(world, name=name, description="side_channel"))
    model = site_of(scene)
    one = Issue(0, "all_reduce", ((512,),), ((512,),), replace(model, line=421))
    two = Issue(twin, "all_reduce", ((64,),), ((64,),), replace(model, line=427))
    odd = set(scene.rng.sample(range(scene.plan.world_size), scene.plan.world_size // 2))
    for rank in range(scene.plan.world_size):
        starts = scene.step_starts(rank)
        if not starts:
            raise UnfitError("no step to begin")
        calls = [two, one] if rank in odd else [one, two]
        scene.insert(rank, starts[len(starts) // 2], *calls)
    points = (scene.point(0, -1, one), scene.point(twin, -1, two))
    return _loop("UH301", points, *(("UH401",) if world.backend == "gloo" else ()))
