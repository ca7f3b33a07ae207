"""Faults of the host program: ranks that stop, or make other calls than their peers."""

from __future__ import annotations

from dataclasses import replace

from unhang.lab.engine import Outcome
from unhang.lab.faults.registry import COLLECTIVE, fault
from unhang.lab.faults.scene import Judge, Scene, UnfitError, problem, silence
from unhang.lab.job import Bundle, Compute, Issue, Site, Step, Stop
from unhang.lab.oracle import Oracle
from unhang.lab.recording import Recording
from unhang.lab.truth import Cause, Point, Truth

__all__ = ["judge_stopped"]


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
    site = replace(_site_of(scene), function="share_batch", line=142)
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


def _site_of(scene: Scene) -> Site:
    """Any call site of the program, as a model for new ones."""
    for step in scene.plan.programs[0]:
        if isinstance(step, Issue):
            return replace(step.site, through="python", file="/home/user/train/train.py")
    raise UnfitError("no call")


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
    model = _site_of(scene)
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


@fault("crossed-groups", "UH301", layouts=("hsdp", "tp", "megatron"), smallest=4)
def crossed_groups(scene: Scene) -> Judge:
    """Ranks enter two crossing groups in opposite order: a deadlock.

    Everybody waits for somebody who waits; sequences inside each group are equal, so nobody is to
    blame. A loop is to be shown.
    """
    tall, wide = _crossing(scene)
    model = _site_of(scene)
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


@fault("crossed-order-one-rank", "UH301", layouts=("ddp", "fsdp", "tp", "mixed"), smallest=4)
def crossed_order_one_rank(scene: Scene) -> Judge:
    """Two groups with the same members, entered the other way round by some ranks.

    As with crossed grids nobody's sequence inside a group is wrong; who has the wrong order is
    the programmer's to say. A loop, no culprit.
    """
    world = scene.plan.groups[0]
    twin = len(scene.plan.groups)
    name = str(sum(1 for _ in scene.plan.groups) + 90)
    scene.plan.groups.append(replace(world, name=name, description="side_channel"))
    model = _site_of(scene)
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
    return _loop("UH301", points)


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


@fault("late-rank", "UH501", layouts=("ddp", "fsdp", "zero", "tp", "megatron"), history=True)
def late_rank(scene: Scene) -> Judge:
    """One rank's host is slow in every step; everything completes.

    It arrives last, every time; clocks differ between hosts, but all leave a collective together,
    so offsets can be estimated. Status "slow", that rank, UH501.
    """
    rank = scene.rng.randrange(scene.plan.world_size)
    return _slow(scene, (rank,))


@fault("late-host", "UH501", layouts=("ddp", "fsdp", "tp"), smallest=32, history=True)
def late_host(scene: Scene) -> Judge:
    """All ranks of one host are slow in every step (its CPUs are taken, its disk is slow)."""
    hosts = scene.plan.world_size // scene.plan.ranks_per_host
    if hosts < 3:  # noqa: PLR2004 - a host among others
        raise UnfitError("too few hosts")
    first = scene.rng.randrange(hosts) * scene.plan.ranks_per_host
    return _slow(scene, tuple(range(first, first + scene.plan.ranks_per_host)))


def _slow(scene: Scene, ranks: tuple[int, ...]) -> Judge:
    extra = scene.rng.uniform(0.25, 0.6)
    for rank in ranks:
        for start in reversed(scene.step_starts(rank)):
            scene.insert(rank, start, Compute(host_s=extra))
    if len(scene.step_starts(ranks[0])) < 5:  # noqa: PLR2004 - "the same ranks" needs some steps
        raise UnfitError("too few steps")

    def judge(outcome: Outcome, recording: Recording) -> Truth:
        if Oracle(outcome).waits or set(ranks) & recording.silent:
            raise UnfitError("not merely slow")
        return Truth(("slow",), (Cause(("UH501",), ranks),), outcome.plan.world_size)

    return judge
