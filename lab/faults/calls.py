"""Faults of arguments: members of one collective that do not mean the same call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lab.faults.registry import COLLECTIVE, fault
from lab.faults.scene import Judge, Scene, UnfitError, found, problem
from lab.model.job import Bundle, Issue, Step
from lab.recorder.recording import Recording
from lab.simulate.engine import Outcome
from lab.simulate.oracle import Oracle
from lab.truth import Cause, Truth

_MAJORITY = 3


def judge_odd_call(rank: int, odd: Issue, *codes: str, blamed: bool = True) -> Judge:
    """All members are in the call, and the odd one's differs."""

    def judge(outcome: Outcome, recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        record = found(outcome, rank, odd)
        if record.finished is not None or oracle.sinks():
            raise UnfitError("the call went through, or others are roots")
        members = outcome.plan.groups[odd.group].members
        if any(
            (oracle.waits[m].head.issue.group, oracle.waits[m].head.seq) != (odd.group, record.seq)
            for m in members
        ):
            raise UnfitError("not all members wait in the call")
        if codes == ("UH203",) and not recording.shows_dtypes:
            raise UnfitError("types were not recorded yet")
        lost = (recording.silent | recording.truncated) & set(members)
        if len(members) - len(lost) < _MAJORITY or rank in lost:
            raise UnfitError("no majority left a dump")
        point = replace(oracle.point(record), file="", line=0)
        culprits = (rank,) if blamed else ()
        return problem(outcome, Cause(codes, culprits, points=(point,)))

    return judge


def _odd_one(
    scene: Scene, change: Callable[[Issue], Issue], fits: Callable[[Issue], bool], *codes: str
) -> Judge:
    def wanted(step: Step) -> bool:
        return scene.collective(step, at_least=_MAJORITY) and isinstance(step, Issue) and fits(step)

    rank, position = scene.place(wanted)
    odd = change(scene.issue(rank, position))
    scene.replace(rank, position, odd)
    return judge_odd_call(rank, odd, *codes)


def _symmetric(issue: Issue) -> bool:
    return issue.op in {"all_reduce", "_all_gather_base", "_reduce_scatter_base", "all_gather"}


@fault("wrong-op", "UH201", layouts=COLLECTIVE, smallest=8, weight=2)
def wrong_op(scene: Scene) -> Judge:
    """One rank calls another operation under the same number; counts agree before and after.

    With three members or more the majority is right until evidence says otherwise.
    """

    def change(issue: Issue) -> Issue:
        op = "broadcast" if issue.op == "all_reduce" else "all_reduce"
        return replace(issue, op=op, outputs=issue.inputs)

    return _odd_one(scene, change, _symmetric, "UH201")


@fault("wrong-shape", "UH202", layouts=COLLECTIVE, smallest=8, weight=2)
def wrong_shape(scene: Scene) -> Judge:
    """One rank's tensor has another size (a last batch, a padded vocabulary)."""

    def change(issue: Issue) -> Issue:
        def grown(shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
            return tuple((shape[0] * 2 + 2, *shape[1:]) for shape in shapes)

        return replace(issue, inputs=grown(issue.inputs), outputs=grown(issue.outputs))

    return _odd_one(scene, change, _symmetric, "UH202")


@fault("wrong-dtype", "UH203", layouts=COLLECTIVE, smallest=8, weight=2)
def wrong_dtype(scene: Scene) -> Judge:
    """One rank's tensor has another type; shapes agree."""

    def change(issue: Issue) -> Issue:
        return replace(issue, dtype="Half" if issue.dtype != "Half" else "Float")

    return _odd_one(scene, change, _symmetric, "UH203")


@fault("half-and-half", "UH201", layouts=("ddp", "fsdp", "zero", "tp", "hsdp"))
def half_and_half(scene: Scene) -> Judge:
    """Half of a group (one of two, two of four) calls something else: both sides, no culprit."""

    def wanted(step: Step) -> bool:
        return (
            scene.collective(step)
            and isinstance(step, Issue)
            and _symmetric(step)
            and len(scene.members(step.group)) % 2 == 0
        )

    rank, position = scene.place(wanted)
    issue = scene.issue(rank, position)
    members = list(scene.members(issue.group))
    half = scene.rng.sample(members, len(members) // 2)
    kind = scene.rng.choice(("op", "shape"))
    odd = (
        replace(issue, op="broadcast" if issue.op == "all_reduce" else "all_reduce")
        if kind == "op"
        else replace(issue, inputs=((31, 7),), outputs=((31, 7),))
    )
    for member in half:
        at = scene.places(member, lambda step: step is issue, 0.0, 1.0)
        there = [i for i in at if scene.number(member, i) == scene.number(rank, position)]
        if member == rank:
            there = [position]
        if not there:
            raise UnfitError("the same call is elsewhere")
        scene.replace(member, there[0], odd)
    code = "UH201" if kind == "op" else "UH202"
    return _no_majority(code, odd, half[0])


def _no_majority(code: str, odd: Issue, rank: int) -> Judge:
    def judge(outcome: Outcome, recording: Recording) -> Truth:
        record = found(outcome, rank, odd)
        members = outcome.plan.groups[odd.group].members
        if set(members) & (recording.silent | recording.truncated):
            raise UnfitError("one side would be smaller")
        if record.finished is not None or Oracle(outcome).sinks():
            raise UnfitError("the call went through")
        point = replace(Oracle(outcome).point(record), file="", line=0)
        return problem(outcome, Cause((code,), points=(point,)))

    return judge


@fault("split-mismatch", "UH204", layouts=("moe",), smallest=8, near=("UH202",))
def split_mismatch(scene: Scene) -> Judge:
    """Uneven all-to-all in which one rank gives less than its peers expect.

    Splits are not recorded and totals differ between ranks by right. That all inputs together are
    less than all outputs shows the fault, not whose it is: no culprit.
    """

    def wanted(step: Step) -> bool:
        return (
            scene.collective(step, at_least=_MAJORITY) and getattr(step, "op", "") == "all_to_all"
        )

    rank, position = scene.place(wanted)
    issue = scene.issue(rank, position)
    tokens, width = issue.inputs[0]
    odd = replace(issue, inputs=((tokens - 37, width),), uneven=True)
    scene.replace(rank, position, odd)
    return judge_odd_call(rank, odd, "UH204", blamed=False)


@fault("split-mismatch-even", "UH204", layouts=("moe",), smallest=8)
def split_mismatch_even(scene: Scene) -> Judge:
    """The same where all peers give and take equal amounts: the one that differs is named."""
    rank, position = scene.place(
        lambda step: (
            scene.collective(step, at_least=_MAJORITY) and getattr(step, "op", "") == "all_reduce"
        )
    )
    issue = scene.issue(rank, position)
    at = replace(issue.site, function="balance", line=201)
    even = Issue(issue.group, "all_to_all", ((1024, 64),), ((1024, 64),), at)
    odd = replace(even, inputs=((960, 64),))
    seq = scene.number(rank, position)
    for member in scene.members(issue.group):
        here = [
            i
            for i in scene.places(member, lambda s: s is issue, 0.0, 1.0)
            if scene.number(member, i) == seq
        ]
        if not here:
            raise UnfitError("the same call is elsewhere")
        scene.insert(member, here[0], odd if member == rank else even)
    return judge_odd_call(rank, odd, "UH204", "UH202")


@fault("wrong-root", "UH401", layouts=("ddp", "zero", "fsdp", "tp"), near=("UH201", "UH202"))
def wrong_root(scene: Scene) -> Judge:
    """One rank broadcasts from another root. Roots are not recorded.

    The files show the same call on all members and that it does not end: nobody can be named.
    """
    group = 0
    members = scene.members(group)
    rank = scene.rng.choice(members[1:])
    model = next(step for step in scene.plan.programs[0] if isinstance(step, Issue))
    at = replace(model.site, function="share_seed", line=333, through="python")
    call = Issue(group, "broadcast", ((8, 8),), ((8, 8),), at, root=members[0])
    odd = replace(call, root=rank)
    for member in members:
        starts = scene.step_starts(member)
        if not starts:
            raise UnfitError("no step to begin")
        start = starts[len(starts) // 2]
        scene.insert(member, start, odd if member == rank else call)
        scene.plan.frozen[(group, scene.number(member, start))] = frozenset()

    def judge(outcome: Outcome, _recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        record = found(outcome, rank, odd)
        if record.finished is not None or oracle.sinks():
            raise UnfitError("it went through")
        return problem(outcome, Cause(("UH401",), points=(oracle.point(record),)))

    return judge


@fault(
    "membership",
    "UH205",
    layouts=("tp", "hsdp", "moe", "megatron"),
    near=("UH101",),
    smallest=8,
    recordings=("nccl-plain",),
)
def membership(scene: Scene) -> Judge:
    """One rank believes that a group has one member less than its peers believe.

    Both sides wait in their first call of that name; the groups' member lists disagree, and the
    rank that stands alone with its list is named.
    """
    sized = [i for i, g in enumerate(scene.plan.groups) if g.size >= _MAJORITY + 1 and i]
    if not sized:
        raise UnfitError("no subgroup with a majority")
    group = scene.rng.choice(sized)
    members = scene.members(group)
    rank = scene.rng.choice(members)
    left_out = scene.rng.choice([m for m in members if m != rank])
    wrong = len(scene.plan.groups)
    view = tuple(m for m in members if m != left_out)
    scene.plan.groups.append(replace(scene.plan.groups[group], members=view))
    program = scene.plan.programs[rank]
    if any(
        isinstance(step, (Issue, Bundle)) and step.is_p2p and step.group == group
        for step in program
    ):
        raise UnfitError("a group of sends and receives")
    if any(
        isinstance(step, Issue) and step.group == group and step.root == left_out
        for step in program
    ):
        raise UnfitError("torch refuses a root that is no member")
    for position, step in enumerate(program):
        if isinstance(step, Issue) and step.group == group:
            program[position] = replace(step, group=wrong)

    def judge(outcome: Outcome, recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        if rank not in oracle.waits or set(members) & recording.silent:
            raise UnfitError("the group was never used")
        if oracle.waits[rank].head.issue.group != wrong:
            raise UnfitError("the rank is stuck elsewhere")
        # Not the members' fault in any other group: they must all be in this one.
        if any(oracle.waits[m].head.issue.group not in (group, wrong) for m in members):
            raise UnfitError("members wait elsewhere")
        points = (replace(oracle.point(oracle.waits[rank].head), file="", line=0, seq=-1),)
        return problem(outcome, Cause(("UH205",), (rank,), points=points))

    return judge
