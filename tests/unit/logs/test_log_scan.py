"""Scanning interleaved logs: tracebacks put together, first failure, counters, facts."""

from __future__ import annotations

import gzip
import io
import random
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.analysis import diagnose
from unhang.casebuilder import case_of_logs
from unhang.logs.failure import ordered_failures
from unhang.logs.files import chunks, find_logs, open_log, source_of
from unhang.logs.keeping import LogScan
from unhang.logs.lines.nccl_facts import differing
from unhang.logs.scan import scan_logs
from unhang.report import Finding, Report

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/home/user/job/train.py", line 88, in save',
    "    torch.save(state, path)",
    '  File "/usr/lib/python3.11/site-packages/torch/serialization.py", line 12, in save',
    "    f.write(x)",
    "OSError: [Errno 28] No space left on device: '/ckpt/rank_5.pt'",
)


def watchdog(rank: int, minute: int, *, op: str = "ALLREDUCE", numel: int = 64) -> str:
    """A watchdog's line as torch prints it."""
    return (
        f"[rank{rank}]:[E1120 06:{minute:02d}:31.11 ProcessGroupNCCL.cpp:616] [Rank {rank}] "
        f"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=122, OpType={op}, "
        f"NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for 600012 milliseconds"
    )


def counters(rank: int, enqueued: int) -> str:
    """The line with the counters that follows it."""
    return (
        f"[rank{rank}]:[E1120 06:07:00.0 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) "
        f"Rank {rank}]  failure detected by watchdog at work sequence id: 122 PG status: last "
        f"enqueued work: {enqueued}, last completed work: 121"
    )


def signalled(rank: int, enqueued: int) -> str:
    """The counters of a rank whose own watchdog did not time out: another one's did."""
    return (
        f"[rank{rank}]:[E1120 06:07:00.2 ProcessGroupNCCL.cpp:1784] [PG ID 0 PG GUID 0(default_pg) "
        f"Rank {rank}] Received a dump signal due to a collective timeout from  rank 3 and we will "
        f"try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed "
        f"NCCL work: {enqueued}.This is most likely caused by incorrect usages of collectives"
    )


def scan(path: Path, text: str) -> LogScan:
    """Write a log and scan it."""
    path.write_text(text)
    return scan_logs(find_logs(path))


def interleaved() -> str:
    """64 ranks; rank 5's disk is full, everybody's watchdog aborts, torchelastic blames rank 7."""
    rng = random.Random(7)  # noqa: S311 - a fixed interleaving
    lines = [
        f"[rank{r}]:[I1120 05:06:{s:02d}.1 a.cpp:1] step {s}" for s in range(60) for r in range(64)
    ]
    for line in TRACEBACK:
        lines.append(f"[rank5]: {line}")
        lines += [
            f"[rank{rng.randrange(6, 60)}]:[I1120 05:56:30.1 a.cpp:1] working" for _ in range(3)
        ]
    lines += [watchdog(rank, 6) for rank in range(64) if rank != 5]
    lines += [
        "[rank3]: To avoid data inconsistency, we are taking the entire process down.",
        "Root Cause (first observed failure):",
        "  rank      : 7 (local_rank: 7)",
        "  exitcode  : -6 (pid: 99)",
        "  traceback : Signal 6 (SIGABRT) received by PID 99",
    ]
    return "\n".join(lines) + "\n"


def judged(found: LogScan, ranks: int = 0) -> Report:
    """The verdict of logs alone, of so many ranks."""
    return diagnose(replace(case_of_logs(found), world_size=ranks))


def findings_of(found: LogScan, ranks: int) -> tuple[Finding, ...]:
    """What logs alone show of so many ranks."""
    return judged(found, ranks).findings


def test_the_full_disk_comes_first(tmp_path: Path) -> None:
    """The rank whose disk is full is named first, with its own line; the rest are consequences."""
    found = scan(tmp_path / "job.log", interleaved())
    findings = findings_of(found, 64)
    first = findings[0]
    assert (first.code, first.role, first.culprits) == ("UH776", "cause", (5,))
    assert (first.sites[0].file, first.sites[0].line) == ("/home/user/job/train.py", 88)
    assert [f.role for f in findings[1:]] == ["consequence"] * (len(findings) - 1)
    assert any("torchelastic blames rank 7" in sentence for sentence in first.evidence)


def test_a_message_of_all_ranks_blames_none(tmp_path: Path) -> None:
    """When every rank dies with one message, no rank is at fault."""
    lines = [
        f"[rank{rank}]: {line}"
        for rank in range(4)
        for line in (*TRACEBACK[:-1], "ValueError: no such option: batchsize")
    ]
    found = scan(tmp_path / "job.log", "\n".join(lines))
    first = findings_of(found, 4)[0]
    assert first.culprits == ()
    assert "every rank" in first.summary


def test_counters_name_the_rank_that_did_not_enqueue(tmp_path: Path) -> None:
    """Logs alone name the rank behind, with medium confidence."""
    lines = [watchdog(rank, 6) for rank in range(4) if rank != 2]
    lines += [counters(rank, 122) for rank in range(4) if rank != 2]
    lines.append(signalled(2, 121))
    found = scan(tmp_path / "job.log", "\n".join(lines))
    first = findings_of(found, 4)[0]
    assert (first.code, first.culprits, first.confidence) == ("UH101", (2,), "medium")
    assert first.victims == (0, 1, 3)
    assert first.seq == 122


def test_who_is_ahead_did_nothing_wrong(tmp_path: Path) -> None:
    """Who enqueued further than the call that timed out is no reason to blame the others."""
    lines = [watchdog(rank, 6) for rank in range(4)]
    lines += [counters(rank, 125 if rank == 1 else 122) for rank in range(4)]
    first = findings_of(scan(tmp_path / "job.log", "\n".join(lines)), 4)[0]
    assert (first.code, first.culprits) == ("UH401", ())


def test_consequences_alone_are_not_enough(tmp_path: Path) -> None:
    """A log that shows only what followed is neither healthy nor a verdict."""
    text = "[rank1]: RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.4]:34567\n"
    path = "[rank1]: [/x/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.4]:345\n"
    report = judged(scan(tmp_path / "a.log", path))
    assert (report.status, report.culprits) == ("insufficient", ())
    assert judged(scan(tmp_path / "b.log", text)).status == "insufficient"


def test_an_error_of_communication_is_no_beginning(tmp_path: Path) -> None:
    """A RuntimeError of torch.distributed itself is a consequence; the same elsewhere is not."""
    inside = (
        "Traceback (most recent call last):",
        '  File "/home/user/train.py", line 3, in step',
        '  File "/usr/lib/python3/site-packages/torch/distributed/c10d.py", line 9, in f',
        "RuntimeError: op.preamble.length <= op.nbytes. 16 vs 12",
    )
    wrapped = (*inside[:3], '  File "/x/unhang/record/wrap.py", line 285, in wait', inside[3])
    events = scan(tmp_path / "a.log", "\n".join(f"[rank1]: {line}" for line in inside)).events
    events += scan(tmp_path / "c.log", "\n".join(f"[rank1]: {line}" for line in wrapped)).events
    own = scan(
        tmp_path / "b.log", "\n".join(f"[rank1]: {line}" for line in inside[:2] + inside[3:])
    )
    assert [event.role for event in events] == ["consequence"] * 2
    assert {event.fields["file"] for event in events} == {"/home/user/train.py"}
    assert [event.role for event in own.events] == ["cause"]


def test_an_error_that_was_noticed_later(tmp_path: Path) -> None:
    """An asynchronous error: the line that is shown is said not to be the one at fault."""
    lines = (
        *TRACEBACK[:3],
        "torch.AcceleratorError: CUDA error: device-side assert triggered",
        (
            "CUDA kernel errors might be asynchronously reported at some other API call, so the "
            "stacktrace below might be incorrect."
        ),
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    )
    found = scan(tmp_path / "a.log", "".join(f"[rank1]: {line}\n" for line in lines) + "[rank0]: x")
    first, hint = findings_of(found, 2)
    assert (first.code, first.culprits) == ("UH779", (1,))
    assert any("where the error surfaced" in sentence for sentence in first.evidence)
    assert (hint.code, hint.role) == ("UH780", "observation")


def test_too_many_messages_are_cut_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cut in silence."""
    monkeypatch.setattr("unhang.logs.keeping.MAX_EVENTS", 2)
    words = ("alpha", "beta", "gamma", "delta")
    found = scan(tmp_path / "a.log", "".join(f"ValueError: {word}\n" for word in words))
    assert len(found.events) == 2
    assert [note.level for note in found.notes] == ["warning"]


def test_ops_and_sizes_that_differ(tmp_path: Path) -> None:
    """One sequence number with two ops, or two sizes, is a mismatch of the minority."""
    ops = [watchdog(rank, 6, op="BROADCAST" if rank == 1 else "ALLREDUCE") for rank in range(4)]
    sizes = [watchdog(rank, 6, numel=63 if rank == 3 else 64) for rank in range(4)]
    by_op = findings_of(scan(tmp_path / "a.log", "\n".join(ops)), 4)[0]
    by_size = findings_of(scan(tmp_path / "b.log", "\n".join(sizes)), 4)[0]
    assert (by_op.code, by_op.culprits) == ("UH201", (1,))
    assert (by_size.code, by_size.culprits) == ("UH202", (3,))


def test_two_sides_of_equal_size_blame_nobody(tmp_path: Path) -> None:
    """Without a majority both sides are shown and neither is blamed."""
    lines = [watchdog(rank, 6, op="BROADCAST" if rank else "ALLREDUCE") for rank in range(2)]
    first = findings_of(scan(tmp_path / "a.log", "\n".join(lines)), 2)[0]
    assert (first.code, first.culprits, first.confidence) == ("UH201", (), "low")


def test_everybody_in_the_same_call(tmp_path: Path) -> None:
    """All ranks time out in one call: no rank is named."""
    lines = [watchdog(rank, 6) for rank in range(4)]
    first = findings_of(scan(tmp_path / "a.log", "\n".join(lines)), 4)[0]
    assert (first.code, first.culprits) == ("UH401", ())


def test_who_is_silent_may_be_absent(tmp_path: Path) -> None:
    """Ranks 1 to 3 in one call do not clear rank 0, of which there is no line."""
    lines = [watchdog(rank, 6) for rank in (1, 2, 3)]
    report = judged(scan(tmp_path / "a.log", "\n".join(lines)))
    assert (report.status, report.culprits) == ("insufficient", ())
    assert "rank 0 printed no such line" in report.summary


def test_nothing_known_is_nothing_found(tmp_path: Path) -> None:
    """A quiet log gives no finding."""
    found = scan(tmp_path / "a.log", "step 1\nstep 2\n")
    assert findings_of(found, 2) == ()


def test_facts_that_differ(tmp_path: Path) -> None:
    """Ranks that use another interface or version than their peers are shown side by side."""
    found = scan(
        tmp_path / "a.log",
        "[rank0]: NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n"
        "[rank1]: NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>\n"
        "[rank0]: NCCL version 2.27.3+cuda12.9\n[rank1]: NCCL version 2.27.3+cuda12.9\n",
    )
    assert differing(found.facts) == {"socket interface": {"eth0": (0,), "docker0": (1,)}}


def test_the_interfaces_that_were_taken_are_told(tmp_path: Path) -> None:
    """By NCCL's and Gloo's own lines, with or without a number before the name."""
    found = scan(
        tmp_path / "a.log",
        "[rank0]: n1:7:7 [0] NCCL INFO Bootstrap : Using [0]eth0:10.0.0.2<0> [1]lo:127.0.0.1<0>\n"
        "[rank1]: n2:7:7 [0] NCCL INFO NET/Socket : Using [0]eth1:10.0.0.3<0>\n"
        "ERROR failed to connect, willRetry=1, retry=1, retryLimit=3, rank=0, size=2, "
        "local=[10.0.0.1]:13988, remote=[10.0.0.2]:20914$0, error=SO_ERROR: Connection refused\n",
    )
    assert [note.text for note in found.notes if note.source == "interfaces"] == [
        "NCCL took eth0 (rank 0), eth1 (rank 1)", "Gloo took 10.0.0.1",
    ]  # fmt: skip


def test_unordered_causes_are_said_to_be_unordered(tmp_path: Path) -> None:
    """Causes in two files without stamps have no order, and confidence is low."""
    (tmp_path / "rank_0.log").write_text("ValueError: batch 7 has no labels\n")
    (tmp_path / "rank_1.log").write_text("KeyError: 'loss'\n")
    found = scan_logs(find_logs(tmp_path))
    groups, ordered = ordered_failures(found.events)
    assert {group.ranks for group in groups} == {(0,), (1,)}
    assert ordered is False
    assert findings_of(found, 3)[0].confidence == "low"


def test_the_end_of_a_process_comes_after_what_it_said(tmp_path: Path) -> None:
    """As torchrun leaves it: the exception with its time in one file, the crash in another."""
    told = (
        '{"message": {"message": "OSError: [Errno 28] No space left on device", "extraInfo": '
        '{"py_callstack": "OSError: [Errno 28] No space left on device", '
        '"timestamp": "1763618400"}}}'
    )
    here = tmp_path / "ranks" / "none_x" / "attempt_0" / "2"
    here.mkdir(parents=True)
    (here / "error.json").write_text(told)
    end = "Fatal Python error: Segmentation fault\n"
    (here / "stderr.log").write_text(end)
    found = scan_logs(find_logs(tmp_path))
    groups, ordered = ordered_failures(found.events)
    assert ([group.first.code for group in groups], ordered) == (["UH776", "UH782"], True)
    assert [f.confidence for f in findings_of(found, 4)][:1] == ["high"]


def test_local_and_universal_time_are_not_compared(tmp_path: Path) -> None:
    """A stamp without a zone may be hours off: the order of two such failures is not known."""
    (tmp_path / "rank_0.log").write_text("2025-11-20 05:00:00 step\nKeyError: 'loss'\n")
    zoned = "2025-11-20T04:00:00Z step\nValueError: batch 7 has no labels\n"
    (tmp_path / "rank_1.log").write_text(zoned)
    assert ordered_failures(scan_logs(find_logs(tmp_path)).events)[1] is False
    (tmp_path / "rank_1.log").write_text(zoned.replace("T", " ").replace("Z", ""))
    groups, ordered = ordered_failures(scan_logs(find_logs(tmp_path)).events)
    assert ([group.ranks for group in groups], ordered) == ([(1,), (0,)], True)


def test_compressed_and_unreadable(tmp_path: Path) -> None:
    """A .gz is read; a file that only claims to be one becomes a note."""
    with gzip.open(tmp_path / "rank_3.log.gz", "wt") as stream:
        stream.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")
    (tmp_path / "rank_4.log.gz").write_bytes(b"not gzip")
    found = scan_logs(find_logs(tmp_path))
    assert [(e.code, e.rank) for e in found.events] == [("UH752", 3)]
    assert [note.level for note in found.notes] == ["error"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_what_powershell_writes(encoding: str, tmp_path: Path) -> None:
    """`kubectl logs > job.log` on Windows gives UTF-16 with a mark, packed or not."""
    text = "\ufeff" + "\r\n".join(f"[rank3]: {line} \u2713" for line in TRACEBACK) + "\r\n"
    (tmp_path / "a.log").write_bytes(text.encode(encoding))
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(text.encode(encoding)))
    found = scan_logs(find_logs(tmp_path))
    assert [(event.code, event.rank) for event in found.events] == [("UH776", 3)] * 2
    assert found.notes == []
    with open_log(str(tmp_path / "a.log")) as stream:
        assert b"".join(chunks(stream, 7)).decode() == text.removeprefix("\ufeff")


def test_ranks_from_paths() -> None:
    """The log directory tells the rank on its node, usual names the rank; other numbers nothing."""
    torchrun = source_of("x", "job_x/attempt_1/3/stderr.log")
    assert (torchrun.rank, torchrun.local_rank, torchrun.attempt) == (-1, 3, "1")
    assert source_of("x", "job_x/attempt_0/3/error.json").local_rank == 3
    assert source_of("x", "logs/rank_12.log").rank == 12
    assert source_of("x", "logs/rank7.err.gz").rank == 7
    assert source_of("x", "job-4711.out").rank == -1


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40)), st.integers(1, 64))
def test_chunks_lose_nothing(parts: list[bytes], size: int) -> None:
    """Whatever the block size, the blocks joined are the file."""
    data = b"\n".join(parts)
    assert b"".join(chunks(io.BytesIO(data), size)) == data


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([*TRACEBACK, watchdog(1, 2), "x", "\x1b[31m", ""]), max_size=30))
def test_any_mixture_of_lines_is_scanned(lines: list[str]) -> None:
    """No mixture of tracebacks, messages and rubbish makes the scan fail."""
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        file.write("\n".join(lines))
        file.flush()
        findings_of(scan_logs(find_logs(Path(file.name))), 2)


GLOO = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/debug_logger.cc:9] ERROR failed to connect, "
    "willRetry=1, retry=1, retryLimit=3, rank=0, size=2, local=[127.0.0.1]:13988, "
    "remote=[127.0.1.1]:20914$0, error=SO_ERROR: Connection refused, remote=[127.0.1.1]:20914$0\n"
    "[E1122 18:33:58.853621483 ProcessGroupGloo.cpp:67] Gloo connectFullMesh failed with "
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:152] timed out connecting: SO_ERROR: "
    "Connection refused, remote=[127.0.1.1]:20914$0\n"
)


def test_a_peer_that_gave_its_loopback_address(tmp_path: Path) -> None:
    """What Gloo prints where a host's name means 127.0.1.1 there; a further try is no cause."""
    (cause, *rest) = findings_of(scan(tmp_path / "a.log", GLOO), 2)
    assert (cause.code, cause.role) == ("UH7300", "cause")
    assert any("GLOO_SOCKET_IFNAME" in action for action in cause.actions)
    assert all(found.role != "cause" for found in rest)


@pytest.mark.parametrize(
    ("taken", "told"),
    [
        ("Bootstrap : Using docker0:172.17.0.1<0>", True),
        ("Bootstrap: Using lo:127.0.0.1<0>", True),
        ("NET/Socket : Using [0]eno1:10.0.0.3<0> [1]docker0:172.17.0.1<0>", True),
        ("Bootstrap : Using usb0:169.254.3.1<0>", True),
        ("Bootstrap : Using ib0:10.148.8.203<0>", False),
        ("NET/Socket : Using [0]eno1:172.27.124.94<0>", False),
    ],
)
def test_an_interface_that_peers_cannot_reach(tmp_path: Path, taken: str, *, told: bool) -> None:
    """By the library's own line, as old and new releases print it."""
    found = scan(tmp_path / "a.log", f"node01:123:123 [0] NCCL INFO {taken}\n")
    assert ("UH731" in {event.code for event in found.events}) == told


def test_the_interface_that_all_should_take(tmp_path: Path) -> None:
    """Where others took a better one, the setting names it."""
    found = scan(
        tmp_path / "a.log",
        "[rank0]: NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n"
        "[rank1]: NCCL INFO Bootstrap: Using docker0:172.17.0.1<0>\n"
        "[rank2]: NCCL INFO Bootstrap: Using docker0:172.17.0.1<0>\n",
    )
    (differ,) = (each for each in findings_of(found, 3) if each.code == "UH795")
    assert "NCCL_SOCKET_IFNAME==eth0 GLOO_SOCKET_IFNAME=eth0" in differ.actions[0]


def init(pid: int, number: int, size: int, device: int, host: str = "node01") -> str:
    """What NCCL 2.21 prints when a process comes into a communicator."""
    return (
        f"{host}:{pid}:{pid} [0] NCCL INFO ncclCommInitRankConfig comm 0x55d0 rank {number} nranks "
        f"{size} cudaDev 0 nvmlDev {device} busId {device}000 commId 0x9f3c - Init START\n"
    )


def broken(pid: int, host: str = "node01") -> str:
    """An error of a GPU that NCCL saw."""
    return f"{host}:{pid}:{pid} [0] NCCL WARN Cuda failure 'uncorrectable ECC error encountered'\n"


@pytest.mark.parametrize(
    ("text", "culprits"),
    [
        (init(42, 5, 8, 5) + init(42, 1, 2, 5) + broken(42), (5,)),
        (init(42, 1, 2, 5) + broken(42) + init(43, 5, 8, 5), ()),
        (init(42, 1, 2, 1) + init(44, 1, 2, 3) + broken(42), ()),
        (init(42, 1, 2, 1) + broken(42) + init(44, 1, 2, 1, "node02"), ()),
        (init(42, 1, 4, 1) + init(42, 3, 4, 1) + broken(42), ()),
        (init(42, 1, 2, 1) + init(99, 1, 2, 1) + broken(99), (1,)),
    ],
    ids=["largest", "larger-one-later", "two-devices", "two-hosts", "two-numbers", "restarted"],
)
def test_a_number_in_a_communicator_is_a_rank_in_the_largest_alone(
    text: str, culprits: tuple[int, ...], tmp_path: Path
) -> None:
    """NCCL numbers each communicator from 0: in a smaller one rank 5 is number 1."""
    assert diagnose(case_of_logs(scan(tmp_path / "job.log", text))).findings[0].culprits == culprits


RAY = """\
(PlacementGroupCleaner pid=1608) Exception in thread PlacementGroupCleanerMonitor:
(PlacementGroupCleaner pid=1608) Traceback (most recent call last):
(PlacementGroupCleaner pid=1608)   File "/opt/venv/lib/python3.11/site-packages/ray/_private/\
services.py", line 759, in canonicalize_bootstrap_address_or_die
(PlacementGroupCleaner pid=1608)     raise ConnectionError(
(PlacementGroupCleaner pid=1608) ConnectionError: Found multiple active Ray instances.
(TrainController pid=1553) Started training worker group of size 3:
(RayTrainWorker pid=1645) step 20 loss 5.0681
(RayTrainWorker pid=1696) Error in training function:
(RayTrainWorker pid=1696) Traceback (most recent call last):
(RayTrainWorker pid=1696)   File "/home/user/train.py", line 31, in encode
(RayTrainWorker pid=1696)     return torch.tensor([VOCABULARY[word] for word in words])
(RayTrainWorker pid=1696) KeyError: 'word'
ray.train.WorkerGroupError: Training failed due to worker errors:
[Rank 2 Error Snippet]:
Traceback (most recent call last):
  File "/home/user/train.py", line 31, in encode
    return torch.tensor([VOCABULARY[word] for word in words])
KeyError: 'word'
"""
"""As Ray 2.60 wrote it beside a second instance of Ray, whose threads no job needs."""


def test_a_thread_of_a_helper_that_fails_is_not_the_first_failure(tmp_path: Path) -> None:
    """Where a rank has failed, too."""
    (tmp_path / "job.log").write_text(RAY)
    found = scan_logs(find_logs(tmp_path))
    first = findings_of(found, 3)[0]
    assert (first.code, first.culprits, first.confidence) == ("UH793", (2,), "high")
    assert [(site.function, site.line) for site in first.sites] == [("encode", 31)]
    alone = RAY.partition("(TrainController")[0]
    (tmp_path / "job.log").write_text(alone)
    assert findings_of(scan_logs(find_logs(tmp_path)), 3)[0].culprits == ()
