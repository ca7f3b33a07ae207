"""Before there are groups: who has not come, met elsewhere, was told otherwise, or came twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.model import Frame, LogEvent, ProcessSample, ThreadStack
from unhang.report import Finding
from unhang.testing import FakeJob, sample_of, worked

C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed"
JOINING = f"{C10D}/rendezvous.py:200 _create_c10d_store < train.py:9 main"
MESHING = f"{C10D}/distributed_c10d.py:2200 _new_process_group_helper < train.py:9 main"
LOADING = "train.py:5 load < train.py:8 main"
PLACE = "127.0.0.1:29500"


def joining(rank: int, *, size: int = 4, **more: object) -> list[ProcessSample]:
    """Two looks at a rank inside init_process_group."""
    told = {"phase": "initialising", "told_size": size, "rendezvous": PLACE} | more
    site = JOINING if rank == 0 else MESHING
    return [sample_of(rank, site, sample=number, **told) for number in (0, 1)]


def cause(*samples: list[ProcessSample]) -> Finding:
    """The first finding."""
    first = diagnose(Case(samples=tuple(s for each in samples for s in each))).findings[0]
    assert first.role == "cause"
    return first


def essence(found: Finding) -> tuple[str, str, tuple[int, ...], set[int]]:
    """Code, confidence, culprits and their lines."""
    lines = {site.line for site in found.sites if site.role == "culprit"}
    return found.code, found.confidence, found.culprits, lines


def test_some_come_out_of_making_the_first_group_and_others_do_not() -> None:
    """As Gloo's second attempt did that met addresses of the first: nobody is missing."""
    out = [sample_of(0, "train.py:12 main", sample=n, phase="ready", told_size=3) for n in (0, 1)]
    found = cause(out, joining(1, size=3), joining(2, size=3))
    assert (found.code, found.culprits, found.victims) == ("UH402", (), (0, 1, 2))
    assert found.confidence == "medium"
    assert "rank 0 returned from it, and ranks 1-2 have not" in found.summary


def test_who_asks_another_worker_before_it_makes_a_group_has_not_come() -> None:
    """`init_rpc` makes a rank ready, too: rank 1 asks worker2, which waits for it in the group."""
    asks = {"phase": "ready", "told_size": 3, "worker": "worker1", "asks": "worker2"}
    waits = f"{C10D}/rpc/api.py:800 wait < train.py:5 main"
    asking = [sample_of(1, waits, sample=n, **asks) for n in (0, 1)]
    others = [joining(rank, size=3, worker=f"worker{rank}") for rank in (0, 2)]
    assert essence(cause(asking, *others)) == ("UH101", "medium", (1,), {5})


def test_who_has_come_since_its_mark_was_read_is_not_missing() -> None:
    """Marks are read before stacks are taken: a rank that began meanwhile is in both."""
    late = [sample_of(1, MESHING, sample=n, phase="imported", told_size=3) for n in (0, 1)]
    gone = [sample_of(2, LOADING, state="X", tool="heartbeat", exit_status=1, phase="imported")]
    samples = (*joining(0, size=3), *late, *gone)
    causes = diagnose(Case(samples=samples)).causes
    assert [(c.code, c.culprits) for c in causes] == [("UH106", (2,))]


def test_a_rank_that_reads_before_it_joins_is_named_with_its_line() -> None:
    """Three wait in different places of init_process_group, one has not entered it."""
    late = [sample_of(1, LOADING, sample=n, phase="starting", told_size=4) for n in (0, 1)]
    found = cause(joining(0), late, joining(2), joining(3))
    assert essence(found) == ("UH101", "high", (1,), {5})
    busy = {"looks": worked(cpu_s=0.9)}
    found = cause(joining(0), [replace(s, **busy) for s in late], joining(2), joining(3))  # type: ignore[arg-type]  # its fields
    assert (found.confidence, found.moving) == ("low", (1,))


def test_a_rank_that_was_never_started_is_counted() -> None:
    """WORLD_SIZE says five, and four have come."""
    found = cause(*(joining(rank, size=5) for rank in range(4)))
    assert essence(found) == ("UH101", "medium", (4,), set())
    assert "no such process" in found.summary


@pytest.mark.parametrize(
    "odd", [{"rendezvous": "127.0.0.1:29501"}, {"size": 3}], ids=["port", "size"]
)
def test_who_was_told_otherwise_is_named(odd: dict[str, object]) -> None:
    """Another port, or another number of ranks; with two ranks nobody knows which is right."""
    found = cause(joining(0), joining(1), joining(2, **odd), joining(3))  # type: ignore[arg-type]  # its fields
    assert essence(found) == ("UH205", "high", (2,), {9})
    found = cause(joining(0, size=2), joining(1, **{"size": 2, **odd}))  # type: ignore[arg-type]  # same
    assert (found.culprits, found.confidence) == ((), "medium")


def test_two_processes_with_one_rank_are_told() -> None:
    """Both say that they are rank 1, and nobody is rank 2."""
    second = [replace(sample, pid=77) for sample in joining(1)]
    found = cause(joining(0), joining(1), second, joining(3))
    assert essence(found)[:3] == ("UH205", "high", (1,))
    assert "no process is rank 2" in found.summary


def launcher(*options: str) -> list[ProcessSample]:
    """A launcher that waits in its rendezvous."""
    frames = (Frame("launch_agent", f"{C10D}/launcher/api.py", 300),)
    thread = ThreadStack("MainThread", 7, frames, is_main=True)
    command = f"python torchrun --nnodes=2 --nproc-per-node 2 {' '.join(options)} train.py"
    return [ProcessSample(-1, "node01", 7, (thread,), role="launcher", command=command)]


def test_launchers_that_wait_for_another_node_are_told() -> None:
    """With numbered nodes the ranks are known that the missing one would start."""
    found = cause(launcher("--node_rank=1", "--master-port", "29500"))
    assert (found.code, found.confidence, found.culprits) == ("UH101", "medium", (0, 1))
    found = cause(launcher("--rdzv-endpoint", "node00:29500"))
    assert (found.code, found.culprits) == ("UH101", ())
    assert "1 node of 2 has not arrived" in found.summary


def test_one_who_is_not_where_most_wait_in_their_own_way() -> None:
    """No calls, no groups: three poll for a file at one line, one stands at another."""
    polling = "train.py:7 wait_for_file < train.py:8 main"
    samples = [
        [sample_of(rank, polling if rank else LOADING, sample=n, state="S") for n in (0, 1)]
        for rank in range(4)
    ]
    found = cause(*samples)
    assert (found.code, found.confidence, found.culprits) == ("UH602", "medium", (0,))
    assert found.victims == (1, 2, 3)


SIZE_MESSAGE = "op.preamble.length <= op.nbytes. 128 vs 80. Received data size doesn't match"


def sizes_told(
    calls: tuple[int, ...] = (9, 9, 9, 9), site: str = "/home/user/train.py:9"
) -> Finding:
    """Gloo ended rank 0, and rank 2 is the one with another size; each after so many calls."""

    def ended(rank: int, status: int, numel: int) -> ProcessSample:
        told = {"last_op": "all_reduce", "last_call": calls[rank], "last_numel": numel}
        told |= {"tool": "heartbeat", "last_site": site}
        return sample_of(rank, "train.py:30 step", state="X", exit_status=status, time_ns=5, **told)

    samples = (ended(0, 134, 256), ended(1, 1, 256), ended(2, 1, 160), ended(3, 1, 256))
    event = LogEvent("UH762", "cause", -1, f"[enforce fail] {SIZE_MESSAGE}", "job.log:1")
    return diagnose(Case(samples=samples, log_events=(event,))).findings[0]


def test_sizes_that_did_not_fit_are_told_from_the_last_calls() -> None:
    """The odd one is named, whoever was ended."""
    first = sizes_told()
    assert (first.code, first.culprits, first.confidence) == ("UH202", (2,), "high")
    assert "160 elements" in first.summary


def test_stages_of_a_pipeline_make_different_numbers_of_calls() -> None:
    """Then their last calls are compared if they were made at one line; and less sure."""
    first = sizes_told((41, 61, 61, 41))
    assert (first.code, first.culprits, first.confidence) == ("UH202", (2,), "medium")
    assert sizes_told((41, 60, 61, 41), site="").code != "UH202"


@pytest.mark.parametrize(
    ("lines", "numbers", "said"),
    [
        ((9, 9, 9, 52), (7, 7, 7, 7), ("UH202", (3,), "medium")),
        ((9, 9, 52, 52), (7, 7, 7, 7), ("UH762", (), "medium")),  # no majority
        ((9, 9, 9, 52), (7, 7, 7, 8), ("UH762", (), "medium")),  # another call
    ],
)
def test_who_made_the_call_at_another_line_is_named(
    lines: tuple[int, ...], numbers: tuple[int, ...], said: tuple[str, tuple[int, ...], str]
) -> None:
    """Numbers of elements agree and types do not, as where one rank alone leaves its loop."""
    samples = tuple(
        sample_of(rank, "train.py:30 step", state="X", exit_status=134 if rank == 3 else 1,
                  time_ns=5, tool="heartbeat", last_op="all_gather", last_call=numbers[rank],
                  last_numel=1, last_site=f"/home/user/train.py:{lines[rank]}")
        for rank in range(4)
    )  # fmt: skip
    event = LogEvent("UH762", "cause", -1, f"[enforce fail] {SIZE_MESSAGE}", "job.log:1")
    first = diagnose(Case(samples=samples, log_events=(event,))).findings[0]
    assert (first.code, first.culprits, first.confidence) == said


def test_a_call_that_lost_its_peer_follows() -> None:
    """Exit code 1 of those whose call raised: the one without such an error was first."""
    ended = {"tool": "heartbeat", "state": "X", "time_ns": 5}
    samples = [
        sample_of(rank, "train.py:30 step", exit_status=1, lost_ns=7 if rank != 1 else 0, **ended)
        for rank in range(3)
    ]
    assert cause(samples).culprits == (1,)


def test_the_thread_that_runs_the_program_is_shown() -> None:
    """A framework's main thread shows no line of the program, another thread does."""
    main = (Frame("main_loop", "/opt/venv/lib/python3.11/site-packages/ray/_private/worker.py", 1),)
    stuck = (Frame("load", "/home/user/train.py", 5), Frame("train", "/home/user/train.py", 8))
    waits = (Frame("all_reduce", f"{C10D}/distributed_c10d.py", 1), *stuck[1:])

    def look(rank: int, number: int) -> ProcessSample:
        threads = (ThreadStack("MainThread", 1, main, is_main=True),
                   ThreadStack("Train", 2, waits if rank else stuck))  # fmt: skip
        return ProcessSample(rank, "node01", 100 + rank, threads, state="S", sample=number)

    found = cause([look(rank, number) for rank in range(3) for number in (0, 1)])
    assert essence(found)[2:] == ((0,), {5})


def test_a_worker_that_does_not_come_back_is_shown_with_its_line() -> None:
    """The rank waits for its data loader, and the worker stands in the program's own code."""
    data = "/opt/venv/lib/python3.11/site-packages/torch/utils/data"
    main = (Frame("_try_get_data", f"{data}/dataloader.py", 9), Frame("train", "train.py", 8))
    inner = (Frame("fetch", "data.py", 31), Frame("__getitem__", "data.py", 12))
    forked = (*inner, Frame("_worker_loop", f"{data}/_utils/worker.py", 3), *main)
    waits = (Frame("all_reduce", f"{C10D}/distributed_c10d.py", 1), Frame("train", "train.py", 9))

    def look(rank: int, number: int, frames: tuple[Frame, ...], **more: object) -> ProcessSample:
        thread = ThreadStack("MainThread", 1, frames, is_main=True)
        return ProcessSample(rank, "", 50 + rank, (thread,), state="S", sample=number, **more)  # type: ignore[arg-type]  # its fields

    looks = [[look(0, n, main), look(1, n, waits), look(2, n, waits)] for n in (0, 1)]
    worker = [look(-1, n, forked, role="data-loader", parent_rank=0) for n in (0, 1)]
    found = cause(*looks, worker)
    assert (found.culprits, found.sites[0].line) == ((0,), 31)
    assert "its worker stands at fetch (data.py:31)" in found.summary


def making(*makes: str, stand: tuple[int, ...] = (0, 1, 2)) -> Finding:
    """Ranks whose last groups were these, newest first; those in `stand` are in `new_group`."""
    samples = [
        sample_of(rank, MESHING if rank in stand else LOADING, sample=look, state="S",
                  phase="ready", last_op="new_group", last_call=4 + rank,
                  makes=tuple(groups.split()))
        for rank, groups in enumerate(makes)
        for look in (0, 1)
    ]  # fmt: skip
    job = FakeJob(len(makes))
    job.call(range(len(makes)))
    alone = diagnose(Case(samples=tuple(samples))).findings[0]
    found = diagnose(job.case(samples=samples)).findings[0]
    assert (alone.code, alone.culprits) == (found.code, found.culprits)
    return found


def test_ranks_that_make_other_groups_under_one_name() -> None:
    """No call is in flight: by the dumps alone, the job is idle."""
    found = making("1=0-1", "1=1-2", "2=1-2 1=0-1")
    assert (found.code, found.culprits, found.confidence) == ("UH205", (1,), "high")
    assert "ranks 0,2 with ranks 0-1; rank 1 with ranks 1-2" in found.summary
    found = making("1=0-1", "2=0-1 1=2-3", "3=0-3", stand=(0, 1))
    assert (found.code, found.culprits, found.confidence) == ("UH205", (), "medium")


def test_who_has_made_another_group_and_called_in_it_is_the_odd_one() -> None:
    """Its heartbeat tells of that call, its dump of the group's members."""
    job = FakeJob(3)
    job.call(range(3))
    job.call([2], group=job.group([1, 2], name="1"), finished=False)
    told = {"state": "S", "phase": "ready", "last_op": "new_group", "makes": ("1=0-2",)}
    samples = [sample_of(rank, MESHING, sample=at, **told) for rank in (0, 1) for at in (0, 1)]
    samples += [sample_of(2, f"{C10D}/distributed_c10d.py:3245 all_reduce < train.py:12 main",
                          sample=at, state="S", phase="ready") for at in (0, 1)]  # fmt: skip
    found = diagnose(job.case(samples=samples)).findings[0]
    assert (found.code, found.culprits) == ("UH205", (2,))
    assert [site.line for site in found.sites if site.role == "culprit"] == [12]


@pytest.mark.parametrize(
    "makes",
    [
        ("1=0-1", "1=0-1", "1=0-1"),
        ("1=0", "1=1-2", "1=1-2"),  # replicas use the same names
        ("1=7~0badcafe", "1=7~0badcaff", "1=7~0badcaff"),  # who is in them is not known
        ("", "1=0-99999999999", "1=x"),
    ],
)
def test_groups_that_nothing_sets_apart(makes: tuple[str, ...]) -> None:
    """That everybody waits there is a problem all the same, and nobody's."""
    found = making(*makes)
    assert (found.code, found.culprits, found.confidence) == ("UH401", (), "low")


WAITING = "train.py:7 average < train.py:8 main"


def left_early(phase: str, rest: str = "ready", *, ranks: int = 3, gone: int = 1) -> Finding:
    """The first have ended with status 0 in one phase; the others stand at one place in another."""
    samples = [
        sample_of(rank, LOADING, state="X", tool="heartbeat", exit_status=0, phase=phase)
        for rank in range(gone)
    ]
    samples += [
        sample_of(rank, WAITING, sample=look, state="S", phase=rest)
        for rank in range(gone, ranks)
        for look in (0, 1)
    ]
    return diagnose(Case(samples=tuple(samples))).findings[0]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (left_early("ready"), ("UH106", (0,), "medium")),  # by os._exit
        (left_early("exited"), ("UH106", (0,), "low")),  # as one ends that has done its work
        (left_early("exited", ranks=2), ("UH602", (1,), "medium")),
        (left_early("exited", rest="destroyed"), ("UH602", (1, 2), "medium")),
        # Half of them have left: some programs end so when they have done their work.
        (left_early("ready", ranks=4, gone=2), ("UH901", (), "low")),
    ],
)
def test_who_left_before_peers_that_wait_in_their_own_way(
    found: Finding, said: tuple[str, tuple[int, ...], str]
) -> None:
    """They wait in no call, for instance at the store: that they did not end is not their fault."""
    assert (found.code, found.culprits, found.confidence) == said


def test_a_file_of_an_earlier_run_is_told_with_what_helps() -> None:
    """All wait for addresses of processes that are no more, and one saw the file as it was."""
    place = "/home/user/shared_init"
    told = {"size": 2, "rendezvous": place}
    found = cause(joining(0, **told, leftover_s=3600), joining(1, **told))  # type: ignore[arg-type]  # its fields
    assert found.culprits == ()
    assert f"the file {place}, which was 3,600 seconds old" in found.evidence[0]
    assert found.actions[0].startswith(f"Delete {place} before each run")
    fresh = cause(joining(0, **told), joining(1, **told))  # type: ignore[arg-type]  # its fields
    assert not any("earlier run" in text for text in fresh.evidence)


REFUSED = (
    "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:152] timed out "
    "connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:5537$1"
)


def again(rank: int, *, refused: bool = False, **told: object) -> list[ProcessSample]:
    """A rank of a second attempt that meets at the store of the first."""
    told = {"earlier": 1, "rendezvous": PLACE} | told
    if not refused:
        return joining(rank, size=3, **told)  # type: ignore[arg-type]  # its fields
    ended = {"tool": "heartbeat", "state": "X", "exit_status": 1, "phase": "exited"}
    return [sample_of(rank, MESHING, told_size=3, **ended, **told)]


def test_addresses_of_an_attempt_before_are_told_with_what_helps() -> None:
    """Torchrun has one store for all attempts; ranks that are refused are no culprits."""
    samples = (*again(0), *again(1, refused=True), *again(2, refused=True))
    events = tuple(LogEvent("UH7300", "cause", rank, REFUSED, "stderr.log:5") for rank in (1, 2))
    report = diagnose(Case(samples=samples, log_events=events))
    found = report.causes[0]
    assert (found.code, found.culprits, found.confidence) == ("UH404", (), "high")
    assert [each.code for each in report.causes] == ["UH404"]
    assert "ranks 1-2 found no process" in found.summary.lower()
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in found.actions[0]
    assert "--standalone" in found.actions[0]
    assert "--rdzv-backend c10d" in found.actions[0]
    assert report.decision is not None
    assert report.decision.reason == "surroundings"
    for told in ({"earlier": 0}, {"last_op": "all_reduce", "last_call": 7}):
        other = tuple(replace(sample, **told) for sample in samples)  # type: ignore[arg-type]  # its fields
        codes = {each.code for each in diagnose(Case(samples=other, log_events=events)).findings}
        assert "UH404" not in codes, "its first attempt, or its group was made"


def test_the_file_of_an_earlier_run_is_why_its_ranks_were_refused() -> None:
    """No line says whose it is; a rank that ended for it is no cause, nor is the network."""
    place = {"earlier": 0, "rendezvous": "/home/user/shared_init"}
    samples = (*again(0, refused=True, leftover_s=8, **place), *again(1, refused=True, **place))
    samples = tuple(replace(sample, told_size=2) for sample in samples)
    events = (LogEvent("UH7300", "cause", -1, REFUSED, "job.log:5"),)
    report = diagnose(Case(samples=samples, log_events=events))
    found = report.causes[0]
    assert (found.code, found.culprits, found.confidence) == ("UH404", (), "high")
    assert [each.code for each in report.causes] == ["UH404"]
    assert found.actions[0].startswith("Delete /home/user/shared_init before each run")
    fresh = tuple(replace(sample, leftover_s=0) for sample in samples)
    codes = {each.code for each in diagnose(Case(samples=fresh, log_events=events)).findings}
    assert "UH404" not in codes


def test_who_has_not_come_to_the_store_of_an_earlier_attempt_is_named() -> None:
    """A rank that did not come explains more than addresses of an attempt before."""
    stuck = cause(again(0), again(1), again(2))
    assert (stuck.code, stuck.culprits, stuck.confidence) == ("UH404", (), "medium")
    out = sample_of(2, f"{C10D}/distributed_c10d.py:3245 all_reduce < train.py:12 main", state="S",
                    phase="ready", told_size=3, earlier=1)  # fmt: skip
    half = diagnose(Case(samples=(*again(0), *again(1), out, replace(out, sample=1))))
    assert [(each.code, each.culprits) for each in half.causes] == [("UH404", ())]
    alone = cause(again(0), again(1))
    assert (alone.code, alone.culprits) == ("UH101", (2,))
