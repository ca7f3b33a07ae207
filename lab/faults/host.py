"""Faults of the host program: ranks that stop, outside or inside the library."""

from __future__ import annotations

from dataclasses import replace

from lab.faults.registry import COLLECTIVE, fault
from lab.faults.scene import Judge, Scene, UnfitError, problem, silence, site_of
from lab.model.job import Bundle, Issue, Step, Stop
from lab.recorder.recording import Recording
from lab.simulate.engine import Outcome
from lab.simulate.oracle import Oracle
from lab.truth import Cause, Truth


def judge_stopped(culprits: tuple[int, ...]) -> Judge:
    """Somebody waits for each culprit, no culprit waits, and no innocent rank is a root."""

    def judge(outcome: Outcome, recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        wanted = frozenset(culprits)
        if oracle.sinks() != wanted:
            raise UnfitError("other roots than the culprits")
        waits = oracle.waiting_for(wanted)
        points = tuple(sorted({oracle.point(wait.head) for wait in waits}))
        if lost := silence(outcome, recording, wanted, points):
            return lost
        p2p = any(wait.head.issue.is_p2p for wait in waits)
        codes = ("UH101", "UH302") if p2p else ("UH101",)
        return problem(outcome, Cause(codes, tuple(sorted(culprits)), points=points))

    return judge


def _is_call(step: Step) -> bool:
    return isinstance(step, (Issue, Bundle))


@fault("never-joined", "UH101", loses=True, weight=4)
def never_joined(scene: Scene) -> Judge:
    """One rank's host stops before a call (data loader, lock, exception without exit).

    Its dump ends before the call that others wait in, and nothing of its own is in flight: it is
    the only root. Where a peer waits in a receive, "p2p-unmatched" is as true as "never-joined".
    """
    rank, position = scene.place(_is_call)
    scene.insert(rank, position, Stop())
    return judge_stopped((rank,))


@fault("never-joined-several", "UH101", smallest=8, loses=True)
def never_joined_several(scene: Scene) -> Judge:
    """Two or three ranks stop at about the same place of their programs.

    Each is idle and somebody waits for each, so all of them are named, in one finding or several.
    """
    count = scene.rng.choice((2, 3))
    share = scene.rng.uniform(0.45, 0.7)
    chosen = scene.rng.sample(range(scene.plan.world_size), count)
    for rank in chosen:
        _stop_near(scene, rank, share)
    return judge_stopped(tuple(chosen))


def _stop_near(scene: Scene, rank: int, share: float) -> None:
    places = scene.places(rank, _is_call, share, 0.9)
    if not places:
        raise UnfitError("no call left")
    scene.insert(rank, places[0], Stop())


@fault("never-joined-host", "UH101", layouts=COLLECTIVE, smallest=16, loses=True)
def never_joined_host(scene: Scene) -> Judge:
    """All ranks of one host stop (its file system hangs, it is powered off without dying).

    Peers on other hosts wait for each of them; the whole host is to be named.
    """
    hosts = scene.plan.world_size // scene.plan.ranks_per_host
    if hosts < 2:  # noqa: PLR2004 - somebody must be left to wait
        raise UnfitError("one host only")
    first = scene.rng.randrange(hosts) * scene.plan.ranks_per_host
    ranks = tuple(range(first, first + scene.plan.ranks_per_host))
    share = scene.rng.uniform(0.45, 0.7)
    for rank in ranks:
        starts = [i for i in scene.step_starts(rank) if i >= share * len(scene.plan.programs[rank])]
        if not starts:
            raise UnfitError("no later step")
        scene.insert(rank, starts[0], Stop())
    return judge_stopped(ranks)


@fault("never-joined-first", "UH101", loses=True)
def never_joined_first(scene: Scene) -> Judge:
    """A rank stops before its very first call: its dump has no entry and no group.

    Membership comes from its peers' files, and an empty dump is a readable one: the rank made no
    call at all while all others wait in the first one.
    """
    rank = scene.rng.randrange(scene.plan.world_size)
    scene.insert(rank, 0, Stop())
    return judge_stopped((rank,))


@fault(
    "never-joined-broadcast",
    "UH101",
    near=("UH402", "UH102"),
    layouts=("ddp", "zero", "fsdp", "tp", "megatron"),
    loses=True,
)
def never_joined_broadcast(scene: Scene) -> Judge:
    """A rank stops before a broadcast whose source, and members before it, have already left.

    Ranks that came out are ahead by right: the source needs nobody. Some finished and some did
    not, and yet it is no "partly-finished": one member never came.
    """
    group = 0
    members = scene.members(group)
    root = scene.rng.choice(members)
    site = replace(site_of(scene), function="share_batch", line=142)
    call = Issue(group, "broadcast", ((64, 4096),), ((64, 4096),), site, dtype="Long", root=root)
    starts = {rank: scene.step_starts(rank) for rank in members}
    turn = min(len(s) for s in starts.values()) // 2
    if not turn:
        raise UnfitError("too few steps")
    culprit = scene.rng.choice([rank for rank in members if rank != root])
    for rank in members:
        for start in reversed(starts[rank]):
            stop = rank == culprit and start == starts[rank][turn]
            scene.insert(rank, start, *([Stop()] if stop else []), call)
    return judge_stopped((culprit,))


@fault(
    "inside-enqueue",
    "UH104",
    layouts=COLLECTIVE,
    near=("UH101", "UH401"),
    recordings=("nccl-status",),
)
def inside_enqueue(scene: Scene) -> Judge:
    """A rank's host enters the library's enqueue and never returns.

    The entry is there, so the rank has called; its `last_enqueued` counter stands one before it,
    while its peers' stand at the call or beyond.
    """
    rank, position = scene.place(scene.collective)
    stuck = replace(scene.issue(rank, position), inside=True)
    scene.replace(rank, position, stuck)

    def judge(outcome: Outcome, _recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        wait = oracle.waits.get(rank)
        if wait is None or wait.head.issue is not stuck or oracle.sinks():
            raise UnfitError("the rank is stuck elsewhere")
        members = set(outcome.plan.groups[stuck.group].members)
        here = {
            r for r, w in oracle.waits.items() if oracle.point(w.head) == oracle.point(wait.head)
        }
        if not members <= here:
            raise UnfitError("its peers wait elsewhere")
        return problem(outcome, Cause(("UH104",), (rank,), points=(oracle.point(wait.head),)))

    return judge


@fault("two-stopped", "UH101", layouts=("tp", "hsdp", "megatron", "moe", "pp"), smallest=16)
def two_stopped(scene: Scene) -> Judge:
    """Two ranks of different groups stop independently: two roots, two causes."""
    share = scene.rng.uniform(0.45, 0.65)
    half = scene.plan.world_size // 2
    chosen = (scene.rng.randrange(half), half + scene.rng.randrange(half))
    for rank in chosen:
        _stop_near(scene, rank, share)
    return judge_stopped(chosen)
