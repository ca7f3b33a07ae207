"""Jobs that are not stuck, and files from which nothing can be said."""

from __future__ import annotations

from dataclasses import replace

from lab.faults.registry import EVERY, fault
from lab.faults.scene import Judge, Scene, UnfitError
from lab.model.job import Compute, Stop
from lab.recorder.recording import Recording
from lab.simulate.engine import Outcome
from lab.simulate.oracle import Oracle
from lab.truth import Cause, Truth

_ALL_CODES = ("UH101", "UH102", "UH201", "UH202", "UH203", "UH204", "UH302", "UH303", "UH304")


def _healthy(*, also: tuple[str, ...] = ()) -> Judge:
    def judge(outcome: Outcome, recording: Recording) -> Truth:
        if Oracle(outcome).waits and recording.at_s is None:
            raise UnfitError("it is stuck")
        if _sees_no_exchanges(outcome, recording):
            return _insufficient(outcome)
        status = ("healthy", *also)
        return Truth(status, (), outcome.plan.world_size, observations=("UH601",))

    return judge


def _sees_no_exchanges(outcome: Outcome, recording: Recording) -> bool:
    """Whether torch recorded it on Gloo: a hang in a send or receive leaves the same files."""
    on_gloo = all(group.backend == "gloo" for group in outcome.plan.groups)
    return on_gloo and not recording.described


@fault("healthy", layouts=(*EVERY, "torchft"), near=_ALL_CODES, smallest=2, weight=4)
def healthy(scene: Scene) -> Judge:
    """A job that has ended, or stands between two steps: every call has finished.

    Uneven and rooted collectives, batches of sends and receives, groups of one name and members
    that made different numbers of calls are all as they should be.
    """
    scene.plan.pace = scene.rng.choice((0.02, 0.05, 0.3))
    return _healthy()


@fault("healthy-one-late-step", near=("UH501",), layouts=("ddp", "fsdp", "tp", "zero"))
def healthy_one_late_step(scene: Scene) -> Judge:
    """One rank was late in one step (it wrote a checkpoint): no habit, no finding."""
    rank = scene.rng.randrange(scene.plan.world_size)
    starts = scene.step_starts(rank)
    if len(starts) < 4:  # noqa: PLR2004 - one step among several
        raise UnfitError("too few steps")
    scene.insert(rank, starts[len(starts) // 2], Compute(host_s=scene.rng.uniform(0.5, 3.0)))
    return _healthy()


@fault(
    "healthy-skewed-clocks", near=("UH501",), layouts=("ddp", "fsdp", "tp"), recordings=("skew",)
)
def healthy_skewed_clocks(_scene: Scene) -> Judge:
    """Hosts' clocks are seconds apart, nobody is late."""
    return _healthy()


@fault("healthy-some-dumps-lost", near=("UH103",), layouts=EVERY, recordings=("lost",))
def healthy_some_dumps_lost(_scene: Scene) -> Judge:
    """Everybody who left a dump has finished all calls; some left none.

    Nothing in the files is wrong; saying that too little is known is right as well.
    """
    return _healthy(also=("insufficient",))


@fault("healthy-in-flight", near=("UH101", "UH401", "UH302"), recordings=("live",))
def healthy_in_flight(_scene: Scene) -> Judge:
    """A running job that was asked for its dumps: calls are in flight since milliseconds.

    Our own recorder says when it dumped, so that the age of each call can be known; a call that is
    younger than a second is no evidence of anything.
    """
    return _healthy(also=("insufficient",))


@fault("host-silent", "UH601", recordings=("nccl-plain", "nccl-status"))
def host_silent(scene: Scene) -> Judge:
    """Every host stops between two steps (a checkpoint that all write): no call is in flight.

    Dumps alone show an idle job. That the program is stuck (UH602) takes stacks, logs or a live
    look, which this corpus does not have; "healthy" with UH601 is the whole truth of the files.
    """
    for rank in range(scene.plan.world_size):
        starts = scene.step_starts(rank)
        if not starts:
            raise UnfitError("no step to begin")
        scene.insert(rank, starts[len(starts) // 2], Stop())
    return _healthy()


@fault(
    "gloo-p2p-unseen", "UH901", near=("UH601",), layouts=("pp",), recordings=("gloo",), largest=4
)
def gloo_p2p_unseen(scene: Scene) -> Judge:
    """A pipeline on Gloo stops in sends and receives, which torch 2.13 does not record there.

    The dumps hold finished collectives only, as those of a job that has ended: not enough
    evidence. Naming anybody would be guessing, and so would calling it healthy.
    """
    rank = scene.rng.randrange(scene.plan.world_size)
    places = [
        i
        for i in range(len(scene.plan.programs[rank]) // 2, len(scene.plan.programs[rank]))
        if getattr(scene.step(rank, i), "is_p2p", False)
    ]
    if not places:
        raise UnfitError("no send or receive")
    scene.insert(rank, places[0], Stop())

    def judge(outcome: Outcome, _recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        if not oracle.waits or any(not w.head.issue.is_p2p for w in oracle.waits.values()):
            raise UnfitError("collectives show it")
        return _insufficient(outcome)

    return judge


def _insufficient(outcome: Outcome) -> Truth:
    cause = Cause(("UH901",))
    return Truth(("insufficient",), (cause,), outcome.plan.world_size)


@fault(
    "most-dumps-lost",
    "UH901",
    near=("UH103", "UH101"),
    recordings=("few",),
    smallest=8,
    layouts=("ddp", "fsdp", "zero"),
)
def most_dumps_lost(scene: Scene) -> Judge:
    """Somebody stopped, and only a few dumps came back, all of ranks that wait.

    Any of the silent ranks may be the one. Naming all of them with UH103 accuses innocents.
    """
    rank = scene.rng.randrange(scene.plan.world_size)
    places = scene.places(rank, scene.collective)
    if not places:
        raise UnfitError("no collective")
    scene.insert(rank, places[0], Stop())

    def judge(outcome: Outcome, recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        seen = [r for r in range(outcome.plan.world_size) if r not in recording.silent]
        if rank in seen or any(r not in oracle.waits for r in seen):
            raise UnfitError("the culprit left a dump")
        return _insufficient(outcome)

    return judge


@fault("all-dumps-empty", "UH901", recordings=("empty",), layouts=("ddp", "tp"))
def all_dumps_empty(_scene: Scene) -> Judge:
    """Every file has no byte (a full disk): nothing can be said."""
    return lambda outcome, _: _insufficient(outcome)


@fault("recorder-off", "UH901", recordings=("off",), layouts=("ddp", "tp", "fsdp"), near=("UH601",))
def recorder_off(scene: Scene) -> Judge:
    """The ring has no room (`TORCH_FR_BUFFER_SIZE=0`): dumps without entries.

    That nothing was recorded does not mean that nothing is in flight.
    """
    rank = scene.rng.randrange(scene.plan.world_size)
    scene.insert(rank, len(scene.plan.programs[rank]) // 2, Stop())
    return lambda outcome, _: _insufficient(outcome)


@fault(
    "head-overwritten",
    "UH901",
    layouts=("zero", "tp", "fsdp"),
    recordings=("tiny-ring",),
    near=("UH101", "UH105"),
)
def head_overwritten(scene: Scene) -> Judge:
    """The call in which all are stuck has left every ring, for hosts ran far ahead.

    What the rings still show are calls queued behind it. The counters, where there are any, say
    that all have called it and none has finished ("joined-not-progressing", nobody to blame).
    """
    rank, position = scene.place(lambda step: scene.collective(step, at_least=3), low=0.3, high=0.5)
    issue = scene.issue(rank, position)
    odd = replace(issue, inputs=((3, 3),), outputs=((3, 3),))
    scene.replace(rank, position, odd)
    for program in scene.plan.programs:
        program[:] = [s for s in program if type(s).__name__ != "HostSync"]

    def judge(outcome: Outcome, recording: Recording) -> Truth:
        oracle = Oracle(outcome)
        shown = min(recording.buffer, *(len(r) for r in outcome.records))
        for wait in oracle.waits.values():
            if len(outcome.records[wait.rank]) - wait.head.number <= shown:
                raise UnfitError("the head is still to be seen")
        if len(oracle.waits) < outcome.plan.world_size:
            raise UnfitError("some finished")
        cause = Cause(("UH901", "UH401"))
        return Truth(("insufficient", "problem"), (cause,), outcome.plan.world_size)

    return judge


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
