"""Who waited is a witness: not blamed, not told to mend its code, and never called healthy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from log_fuzz import judged

from lab.rules.rows import PLACE, tomllib
from unhang.analysis.words.quiet import LEFT_OPEN
from unhang.kinds import Remedy
from unhang.logs.failure import settled
from unhang.logs.files import LogSource
from unhang.logs.rules import RULES, LogRule, rule_of
from unhang.logs.rules.known import WORKER_DIED
from unhang.logs.scan import scan_logs

DATA = Path(__file__).parents[2] / "data" / "logs"
NOBODY: tuple[int, ...] = ()
(ANY_LIBRARY,) = tomllib.loads((PLACE / "waiters.toml").read_text(encoding="utf-8"))["rule"]


@pytest.mark.parametrize("row", ANY_LIBRARY["waiter"], ids=lambda row: row["library"])
def test_every_row_of_the_table(row: dict[str, Any], tmp_path: Path) -> None:
    """Its line is told as a wait of its rank for what the row says; the near miss is not."""
    report = judged(tmp_path / "a.log", f"[rank3]: {row['fires']}\n".encode())
    assert report.status == "insufficient"
    assert f"rank 3 waited in vain for {row['waited_for']}" in report.summary
    assert any(anchor in row["fires"] for anchor in row["anchors"])
    rule = rule_of(ANY_LIBRARY["code"])
    assert rule
    assert rule.search(row["spares"]) is None


@pytest.mark.parametrize("rule", [r for r in RULES if r.waits], ids=lambda r: r.code)
def test_no_waiter_is_a_cause(rule: LogRule) -> None:
    """A rule whose writer waited names nobody, and asks for no change of a program."""
    assert (rule.role, rule.kind.helps) == ("observation", Remedy.LOOK)


@pytest.mark.parametrize(
    "line",
    [
        "DeepEP timeout for dispatch receivers, rank 3, responsible_channel = 2",
        "DeepEP combine forwarder (RDMA check) timeout, channel: 3, RDMA: 0, nvl: 1",
        "RuntimeError: DeepEP error: timeout (dispatch CPU)",
        "RuntimeError: NPU function error: aclrtSynchronizeStreamWithTimeout, error code is 507048",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "TimeoutError: RPC call to execute_model timed out.",
        "TimeoutError: Timed out waiting for engine core processes to start.",
        "RuntimeError: Worker failed with 'x', check the trace above for the root cause",
    ],
)
def test_the_printing_rank_is_not_blamed(tmp_path: Path, line: str) -> None:
    """In a traceback of its own, as these are printed."""
    data = (
        "[rank5]: Traceback (most recent call last):\n"
        '[rank5]:   File "/app/train.py", line 240, in step\n'
        "[rank5]:     run()\n"
        f"[rank5]: {line}\n"
    )
    report = judged(tmp_path / "a.log", data.encode())
    assert (report.status, report.culprits) == ("insufficient", NOBODY)
    assert "UH793" not in {finding.code for finding in report.findings}


def test_the_peer_that_did_not_answer_is_told(tmp_path: Path) -> None:
    """DeepEP's number of a thread is that of the peer whose signal lacks."""
    line = "DeepEP timeout check failed: rank = 0, thread = 5, value = 1024)\n"
    assert "(number 5 did not answer)" in judged(tmp_path / "a.log", line.encode()).summary


def test_a_fault_of_the_device_is_no_wait(tmp_path: Path) -> None:
    """An exception of the AI core is its own rank's: no peer was awaited."""
    line = "[rank1]: RuntimeError: ACL stream synchronize failed, error code:507015\n"
    report = judged(tmp_path / "a.log", line.encode())
    assert "UH7077" not in {finding.code for finding in report.findings}


def test_torch_2_15_tells_who_printed_nothing(tmp_path: Path) -> None:
    """The lines of its new backend, as a rank of four stood still: three waited."""
    lines = "".join(
        f"[rank{rank}]:[E1127 15:57:23.555234814 WorkNCCL.cpp:372] [TC][rank={rank}][name=0] "
        f"Operation timed out after 1297{rank} ms\n"
        f"[rank{rank}]:[E1127 15:57:23.555417666 FlightRecorderHook.cpp:600] FlightRecorderHook: "
        "dumping trace on collective failure\n"
        f"[rank{rank}]:[E1127 15:57:23.556512980 ProcessGroupNCCL.cpp:638] [TC][rank={rank}]"
        f"[name=0] Aborting process on rank {rank} due to timeout - timeout watchdog detected "
        "operation timeout\n"
        f"[rank{rank}]:[E1127 15:57:23.556528204 ProcessGroupNCCL.cpp:643] [TC][rank={rank}]"
        "[name=0] Waiting 15000ms for health check and flight recorder dump before aborting\n"
        for rank in (0, 1, 3)
    )
    report = judged(tmp_path / "a.log", lines.encode())
    assert report.status == "insufficient"
    assert "ranks 0-1,3 waited in vain for the other ranks of a collective" in report.summary
    assert "rank 2 printed no such line" in report.summary
    assert {f.code for f in report.findings} == {"UH901", "UH701", "UH7067", "UH706"}


# ------------------------------------------------------------------ aborts


ABORT = "Fatal Python error: Aborted"


@pytest.mark.parametrize("path", sorted(DATA.glob("*.log")), ids=lambda path: path.stem)
def test_an_abort_changes_no_verdict(tmp_path: Path, path: Path) -> None:
    """It is what a watchdog or an exception of C++ does: the line above it is the evidence."""
    data = path.read_bytes().rstrip(b"\n") + b"\n"
    told = re.search(rb"\[rank(\d+)\]:|\[default(\d+)\]:|\[Rank (\d+)\]", data)
    rank = int(next(filter(None, told.groups()))) if told else 0
    before = judged(tmp_path / "a.log", data)
    after = judged(tmp_path / "b.log", data + f"[rank{rank}]: {ABORT}\n".encode())
    firsts = [report.findings[0] if report.findings else None for report in (before, after)]
    codes, culprits = ([getattr(f, key, ()) for f in firsts] for key in ("code", "culprits"))
    assert (before.status, culprits[0]) == (after.status, culprits[1])
    assert before.status == "insufficient" or codes[0] == codes[1]


def test_the_line_above_an_abort_is_told(tmp_path: Path) -> None:
    """No rule knows it, and it is the reason."""
    data = f"step 1 loss 2.0\nstep 2 loss 1.9\nlibfoo: the ring is corrupt at slot 7\n{ABORT}\n"
    report = judged(tmp_path / "a.log", data.encode())
    assert (report.status, report.culprits) == ("insufficient", NOBODY)
    assert "above it: libfoo: the ring is corrupt at slot 7" in report.summary


@pytest.mark.parametrize(
    "line",
    [
        "free(): invalid pointer",
        "double free or corruption (!prev)",
        "malloc(): corrupted top size",
    ],
)
def test_an_abort_of_glibc_is_a_crash(tmp_path: Path, line: str) -> None:
    """Its own words say what was wrong in that process."""
    data = f"[rank2]: step 1 loss 2.0\n[rank2]: {line}\n[rank2]: {ABORT}\n"
    first = judged(tmp_path / "a.log", data.encode()).findings[0]
    assert (first.code, first.culprits) == ("UH782", (2,))


# ------------------------------------------------------------------ serving engines


def stat(clock: str, rate: float, running: int, engine: int = 0, waiting: int = 0) -> str:
    """A report of vLLM."""
    return (
        f"(APIServer pid=9) INFO 06-22 {clock} [metrics/loggers.py:273] Engine {engine:03}: "
        f"Avg prompt throughput: 0.0 tok/s, Avg generation throughput: {rate} tokens/s, Running: "
        f"{running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: 1.3%\n"
    )


BLOCK = (
    "(EngineCore pid=280) INFO 08-12 03:{:02}:43 [shm_broadcast.py:802] No available shared memory "
    "broadcast block found in 60 seconds.\n"
)
STANDS = stat("17:39:49", 0.0, 1) + stat("17:39:59", 0.0, 1)
MOVES = stat("17:39:39", 31.5, 2)


@pytest.mark.parametrize(
    ("data", "stands"),
    [
        (STANDS, True),
        (MOVES + STANDS, True),
        (
            MOVES + STANDS + '(APIServer pid=1) INFO: 1.2.3.4:5 - "GET /health HTTP/1.1" 200 OK\n',
            True,
        ),
        (MOVES + stat("17:40:00", 0.0, 0, waiting=3) * 2, True),
        (stat("17:39:39", 9.0, 1, 1) + STANDS + stat("17:40:00", 9.0, 1, 1), True),
        (STANDS + MOVES, False),
        (MOVES + stat("17:39:49", 0.0, 1), False),
        (MOVES + stat("17:39:49", 0.0, 0) * 3, False),
        (MOVES + "".join(map(BLOCK.format, (1, 2, 3))), True),
        (BLOCK.format(1) + MOVES, False),
    ],
)
def test_an_engine_that_makes_no_token(tmp_path: Path, data: str, *, stands: bool) -> None:
    """Zeros up to the end while requests are there show that it stands; one zero does not."""
    report = judged(tmp_path / "a.log", data.encode())
    assert (report.status, report.culprits) == ("insufficient", NOBODY)
    assert (report.summary == LEFT_OPEN) != stands


def test_since_when_it_stands_is_told(tmp_path: Path) -> None:
    """With the number of its requests."""
    summary = judged(tmp_path / "a.log", (MOVES + STANDS).encode()).summary
    assert "produced no token since 06-22 17:39:49, with 1 request running" in summary
    waits = judged(tmp_path / "b.log", (MOVES + BLOCK.format(1) * 2).encode()).summary
    assert "has waited since 08-12 03:01:43 for a worker that reads no messages" in waits


@pytest.mark.parametrize(
    "line",
    [
        "INFO: throughput: 0.0 samples/s",
        "INFO: 0.00 it/s",
        "INFO: gen throughput (token/s): 0.00, #queue-req: 4",
        "INFO: 0 tokens per second",
        'INFO: 1.2.3.4:5 - "GET /v1/models HTTP/1.1" 200 OK',
    ],
)
def test_a_rate_of_zero_is_no_progress(tmp_path: Path, line: str) -> None:
    """Nothing tells that such a job ever got on."""
    assert judged(tmp_path / "a.log", f"{line}\n".encode()).status == "insufficient"


# ------------------------------------------------------------------ causes that were not told


@pytest.mark.parametrize(
    ("line", "code", "who"),
    [
        ("NCCL WARN NET/IB : mlx5_3:1 Got non-fatal async event: port error(10)", "UH7006", (1,)),
        (
            "EJ0003: [PID: 1] 2025-06-17-06:11:32 Failed to bind the IP port. Reason: bound",
            "UH7036",
            (1,),
        ),
        ("ur_die: urEventWait must not be called for an internal event", "UH781", (1,)),
        (
            "[/g/gloo/transport/tcp/pair.cc:799] connect [10.0.0.2]:26: Connection refused",
            "UH7301",
            NOBODY,
        ),
        (
            "NVRM: NVLink fabric state cached by the driver is out of sync (0x00000087)",
            "UH748",
            (1,),
        ),
    ],
)
def test_what_says_why(tmp_path: Path, line: str, code: str, who: tuple[int, ...]) -> None:
    """The line that tells the reason leads, also with an abort behind it."""
    first = judged(tmp_path / "a.log", f"[rank1]: {line}\n[rank1]: {ABORT}\n".encode()).findings[0]
    assert (first.code, first.culprits) == (code, who)
    known = rule_of(code)
    assert known is not None
    assert known.role == "cause"


def test_ranks_that_horovod_lists(tmp_path: Path) -> None:
    """Each with the tensors that it lacks, below the line that says that others wait."""
    data = (
        "[1,0]<stderr>:[2019-10-09 15:36:43.594972: W horovod/common/stall_inspector.cc:105] "
        "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of "
        "ranks and are waiting for remainder of ranks for more than 60 seconds.\n"
        "[1,0]<stderr>:Stalled ranks:\n"
        "[1,0]<stderr>:6: [horovod_allreduce.0, horovod_allreduce.1 ...]\n"
        "[1,0]<stderr>:7: [horovod_allreduce.0]\n"
    )
    assert judged(tmp_path / "a.log", data.encode()).findings[0].culprits == (6, 7)


def test_deepeps_barrier_names_the_member_that_has_not_come(tmp_path: Path) -> None:
    """It prints a line a member: the value of those who came is 0."""
    lines = [(6, 0, 0), (6, 4, 0), (6, 5, 1024), (6, 6, 0)]
    text = "".join(
        f"DeepEP timeout check failed: rank = {rank}, thread = {thread}, value = {value})\n"
        for rank, thread, value in lines
    )
    log = tmp_path / "train.log"
    log.write_text(text)
    found = scan_logs([LogSource(str(log))])
    assert [e.fields.get("peer1") or e.fields.get("peer2") for e in found.events] == ["5"]


def test_a_worker_that_died_after_a_watchdogs_time_out_is_a_consequence(tmp_path: Path) -> None:
    """The watchdog aborts its process; before the time-out the death is the cause."""
    died = "(raylet) A worker died or was killed while executing a task by an unexpected error.\n"
    waited = (
        "[rank3]:[E1023 02:44:30.94 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=26, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=1200000) ran for 1200007 milliseconds before timing out.\n"
    )
    log = tmp_path / "train.log"
    for text, role in ((waited + died, "consequence"), (died + waited, "cause")):
        log.write_text(text)
        events = settled(scan_logs([LogSource(str(log))]).events)
        assert [e.role for e in events if e.code == WORKER_DIED.code] == [role]


EI0002 = (
    "EI0002: The Notify register has not received the Notify record from remote rank: [24]. "
    "task information: [notify id:[0x213], stage:[0], remote rank:[24]]. group information: "
    "[group:[{}], rankSize[{}], rankId[25 24]]\n"
)


@pytest.mark.parametrize(
    ("group", "size", "named"), [("hccl_world_group", 64, (24,)), ("group_name_7", 32, NOBODY)]
)
def test_a_member_of_a_group_is_no_rank_of_the_job(
    tmp_path: Path, group: str, size: int, named: tuple[int, ...]
) -> None:
    """HCCL counts in the group of the call: only that of all ranks counts as the job does."""
    report = judged(tmp_path / "a.log", EI0002.format(group, size).encode())
    assert (report.status, report.culprits) == ("problem", named)


WORK = "WorkNCCL(SeqNum=80, OpType=ALLREDUCE, NumelIn={1}, NumelOut={1}, Timeout(ms)=600000)"
CAUGHT = (
    "[rank{0}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective "
    f"operation timeout: {WORK} ran for 600020 milliseconds before timing out.\n"
)
DETECTED = (
    "[rank{0}]:[E626 06:24:45.9 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) "
    "Rank {0}] Exception (either an error or timeout) detected by watchdog at work: 80, last "
    "enqueued NCCL work: 83, last completed NCCL work: 79.\n"
)


def test_a_rank_whose_counters_were_cut_off_timed_out_in_the_same_call(tmp_path: Path) -> None:
    """All ranks that timed out are counted; another size may be that of another group."""
    both = "".join(CAUGHT.format(r, 9) + DETECTED.format(r) for r in (0, 1))
    report = judged(tmp_path / "a.log", (both + CAUGHT.format(2, 9)).encode())
    assert report.summary.startswith("All 3 ranks that timed out were in the same call #80")
    report = judged(tmp_path / "b.log", (both + CAUGHT.format(2, 7)).encode())
    assert report.summary.startswith("Both ranks that timed out")


def test_a_rank_whose_time_out_was_cut_off_did_print_a_line(tmp_path: Path) -> None:
    """Its counters tell that it timed out too: only the rank without any line may be absent."""
    text = CAUGHT.format(0, 9) + CAUGHT.format(3, 9) + DETECTED.format(2).replace(" GUID 0", "")
    assert "ranks 0,2-3 waited" in judged(tmp_path / "a.log", text.encode()).summary
    assert "rank 1 printed no such line" in judged(tmp_path / "b.log", text.encode()).summary


@pytest.mark.parametrize(("code", "died"), [("-9", True), ("-6", False), ("0", False)])
def test_a_scheduler_that_a_signal_ended(tmp_path: Path, code: str, *, died: bool) -> None:
    """SGLang prints the exit code below; an abort follows from something else."""
    text = f"[12-16 14:27:08] Rank 0 scheduler is dead.\n[12-16 14:27:10] Exit code: {code}\n"
    report = judged(tmp_path / "a.log", text.encode())
    codes = [finding.code for finding in report.findings if finding.role == "cause"]
    assert (WORKER_DIED.code in codes) is died
