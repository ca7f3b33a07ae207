"""Faults of sends and receives: none on the other side, circles, disagreement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from lab.faults.host import judge_stopped
from lab.faults.registry import fault
from lab.faults.scene import Judge, Scene, UnfitError, problem
from lab.model.job import Bundle, Issue, Site, Step, Stop
from lab.recorder.recording import Recording
from lab.simulate.engine import Outcome
from lab.simulate.oracle import Oracle
from lab.truth import Cause, Point, Truth

PIPELINES = ("pp", "megatron", "pp-interleaved")
_SHAPE = ((1024, 512),)
_Change: TypeAlias = Callable[[Issue, tuple[int, ...]], Issue]


def _is_p2p(step: Step) -> bool:
    return isinstance(step, (Issue, Bundle)) and step.is_p2p


def _calls(step: Step) -> tuple[Issue, ...]:
    if isinstance(step, Bundle):
        return step.issues
    return (step,) if isinstance(step, Issue) else ()


@fault("pipeline-stall", "UH302", layouts=PIPELINES, near=("UH303", "UH304"), loses=True, weight=2)
def pipeline_stall(scene: Scene) -> Judge:
    """One stage's host stops before it sends; all other stages and their peers are victims.

    Neighbours wait in receives (or sends) that the stage never met. It is idle, so it is the root.
    """
    rank, position = scene.place(_is_p2p)
    scene.insert(rank, position, Stop())
    stopped = judge_stopped((rank,))

    def judge(outcome: Outcome, recording: Recording) -> Truth:
        truth = stopped(outcome, recording)
        cause = truth.causes[0]
        if cause.codes == ("UH101", "UH302"):
            cause = replace(cause, codes=("UH302", "UH101"))
        return replace(truth, causes=(cause,))

    return judge


def _pair(oracle: Oracle, group: int, one: int, two: int) -> tuple[Point, ...]:
    """The calls in which two ranks wait, at least one of them for the other."""
    points = set()
    between = False
    for rank, peer in ((one, two), (two, one)):
        wait = oracle.waits.get(rank)
        if wait is None:
            continue
        points.add(replace(oracle.point(wait.head), file="", line=0))
        issue = wait.head.issue
        if issue.is_p2p and issue.group == group:
            between |= any(r.issue.peer == peer for r in oracle.launch_of(wait.head))
    if not between:
        raise UnfitError("nobody waits between the two")
    return tuple(sorted(points))


def _lost_side(scene: Scene, op: str, *codes: str) -> Judge:
    """Remove one rank's sends (or receives) of one exchange."""

    def wanted(step: Step) -> bool:
        return _is_p2p(step) and any(issue.op == op for issue in _calls(step))

    rank, position = scene.place(wanted)
    step = scene.step(rank, position)
    gone = scene.rng.choice([issue for issue in _calls(step) if issue.op == op])
    rest = tuple(issue for issue in _calls(step) if issue is not gone)
    left = [replace(step, issues=rest)] if isinstance(step, Bundle) and rest else []
    scene.replace(rank, position, *left)

    def judge(outcome: Outcome, recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        pair = {rank, gone.peer}
        if not oracle.waits or oracle.sinks() - pair:
            raise UnfitError("it does not hang, or elsewhere")
        if pair & (recording.silent | recording.truncated):
            raise UnfitError("one of the two sides is lost")
        points = _pair(oracle, gone.group, rank, gone.peer)
        return problem(outcome, Cause(codes, (), ((rank,),), points))

    return judge


@fault("skipped-send", "UH302", layouts=PIPELINES, history=True)
def skipped_send(scene: Scene) -> Judge:
    """A stage leaves out one send and goes on; its neighbour waits in a receive for ever.

    Later sends pair with earlier receives, so one receive is left over; and as the sender soon
    waits for the other's answer, the two look like a circle. Two sides have no majority: naming
    nobody is right, and so is the sender, where the program's earlier steps tell it apart.
    """
    return _lost_side(scene, "send", "UH302", "UH303", "UH301")


@fault("skipped-receive", "UH302", layouts=PIPELINES, history=True)
def skipped_receive(scene: Scene) -> Judge:
    """A stage leaves out one receive; its neighbour's send is never taken.

    The mirror image of a skipped send, and as symmetrical.
    """
    return _lost_side(scene, "recv", "UH302", "UH303", "UH301")


def _ring_group(scene: Scene) -> tuple[int, tuple[int, ...]]:
    fit = [
        (index, group.members)
        for index, group in enumerate(scene.plan.groups)
        if 3 <= group.size <= 64  # noqa: PLR2004 - a ring, and not an endless one
    ]
    if not fit:
        raise UnfitError("no group fit for a ring")
    return scene.rng.choice(fit)


def _ring_calls(members: tuple[int, ...], rank: int, group: int, line: int) -> tuple[Issue, Issue]:
    own = members.index(rank)
    at = Site("rotate", "/home/user/train/ring.py", line)
    after, before = members[(own + 1) % len(members)], members[own - 1]
    return (
        Issue(group, "send", _SHAPE, _SHAPE, at, peer=after),
        Issue(group, "recv", _SHAPE, _SHAPE, replace(at, line=line + 1), peer=before),
    )


def _put_ring(scene: Scene, line: int, *, receive_first: bool) -> None:
    """Let a group rotate, one call after the other, at the beginning of a middle step."""
    group, members = _ring_group(scene)
    for rank in members:
        starts = scene.step_starts(rank)
        if not starts:
            raise UnfitError("no step to begin")
        calls = _ring_calls(members, rank, group, line)
        scene.insert(rank, starts[len(starts) // 2], *(calls[::-1] if receive_first else calls))


def _circle(code: str) -> Judge:
    def judge(outcome: Outcome, _recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        heads = [w.head for w in oracle.waits.values() if w.head.issue.site.function == "rotate"]
        if not heads or oracle.sinks():
            raise UnfitError("no circle")
        points = tuple(sorted({oracle.point(head) for head in heads}))
        return problem(outcome, Cause((code,), points=points))

    return judge


@fault("receive-first-ring", "UH303", layouts=("cp", "ddp", "tp", "pp", "fsdp"), near=("UH302",))
def receive_first_ring(scene: Scene) -> Judge:
    """Every member receives from the left before it sends to the right: nobody ever sends.

    A circle of receives. All members made the same calls, so none of them is to blame.
    """
    _put_ring(scene, 51, receive_first=True)
    return _circle("UH303")


@fault("send-first-ring", "UH303", layouts=("cp", "ddp", "tp", "pp", "fsdp"), near=("UH302",))
def send_first_ring(scene: Scene) -> Judge:
    """Every member sends (too much to be buffered) before it receives.

    Sends wait for receives that nobody has called yet: a circle without a culprit.
    """
    _put_ring(scene, 61, receive_first=False)
    return _circle("UH303")


def _odd_exchange(scene: Scene, *codes: str, change: _Change, dtypes: bool = False) -> Judge:
    """A batched ring exchange in which one rank's send is changed."""
    group, members = _ring_group(scene)
    culprit = scene.rng.choice(members)
    for rank in members:
        send, receive = _ring_calls(members, rank, group, 71)
        if rank == culprit:
            send = change(send, members)
        step = Bundle((send, receive), send.site)
        starts = scene.step_starts(rank)
        if not starts:
            raise UnfitError("no step to begin")
        fine = Bundle(_ring_calls(members, rank, group, 71), send.site)
        scene.insert(rank, starts[len(starts) // 2], fine, step)
    partner = members[(members.index(culprit) + 1) % len(members)]

    def judge(outcome: Outcome, recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        if culprit not in oracle.waits or oracle.sinks():
            raise UnfitError("it does not hang")
        if set(members) & (recording.silent | recording.truncated):
            raise UnfitError("a side is lost")
        if dtypes and not recording.shows_dtypes:
            raise UnfitError("types were not recorded yet")
        waits = [w for r, w in oracle.waits.items() if r in (culprit, partner)]
        points = tuple({replace(oracle.point(w.head), file="", line=0) for w in waits})
        return problem(outcome, Cause(codes, (culprit,), ((),), points))

    return judge


@fault("wrong-peer", "UH304", layouts=("cp", "ddp", "tp", "fsdp"), near=("UH303",), smallest=8)
def wrong_peer(scene: Scene) -> Judge:
    """One rank of a ring sends to the wrong neighbour.

    One member waits for it, another gets what it never asked for. The ring's other members, and
    the same exchange just before, agree with the receiver; naming nobody is right as well.
    """

    def change(send: Issue, members: tuple[int, ...]) -> Issue:
        wrong = members[(members.index(send.peer) + 1) % len(members)]
        return replace(send, peer=wrong)

    if all(group.size < 4 for group in scene.plan.groups):  # noqa: PLR2004 - a third party
        raise UnfitError("no third party")
    return _odd_exchange(scene, "UH304", "UH302", change=change)


@fault("wrong-size", "UH304", layouts=("cp", "ddp", "tp", "fsdp"), near=("UH302", "UH303"))
def wrong_size(scene: Scene) -> Judge:
    """One rank of a ring sends another size than its neighbour receives.

    A send and a receive that disagree are two sides; that all others agree with the receiver
    allows to name the sender, and naming nobody is right as well.
    """
    shape = ((1024, 640),)
    return _odd_exchange(
        scene, "UH304", change=lambda send, _: replace(send, inputs=shape, outputs=shape)
    )


@fault("wrong-p2p-dtype", "UH304", layouts=("cp", "ddp", "tp", "fsdp"))
def wrong_p2p_dtype(scene: Scene) -> Judge:
    """One rank of a ring sends another type than its neighbour receives; sizes agree."""
    return _odd_exchange(
        scene, "UH304", change=lambda send, _: replace(send, dtype="Float"), dtypes=True
    )
