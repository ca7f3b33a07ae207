"""Lines that people pasted into public threads: what they are judged, and never more than that."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from log_fuzz import DONE, fuzz, judged, mutated

from unhang.logs import keeping, telling
from unhang.logs.files import find_logs
from unhang.logs.scan import scan_logs

DATA = Path(__file__).parents[2] / "data" / "logs"

NOBODY: tuple[int, ...] = ()
THREADS = (
    # name, status, a code that must be told, who is named first, where it was pasted
    ("assert_megads_207", "problem", "UH779", NOBODY, "Megatron-DeepSpeed#207"),
    ("async_sys_149984", "insufficient", "UH773", NOBODY, "pytorch#149984"),
    ("bs_scancel_n16", "insufficient", "UH784", NOBODY, "bigscience gpt2-meg 1809577.out"),
    ("bus_nccl_megatron_516", "problem", "UH782", NOBODY, "Megatron-LM#516"),
    ("busy_nccl_1410_cudafail", "insufficient", "UH722", NOBODY, "nccl#1410"),
    ("eacces_timellm_158", "problem", "UH735", NOBODY, "Time-LLM#158"),
    ("ecc_kohya_1434", "problem", "UH770", (1,), "sd-scripts#1434"),
    ("gloo_preamble_prime_68", "problem", "UH762", NOBODY, "prime-diloco#68"),
    ("hb_deim_105", "insufficient", "UH705", NOBODY, "DEIM#105"),
    ("hccl_ei0002_3413", "problem", "UH7035", NOBODY, "vllm-ascend#3413"),
    ("healthy_ignored_lhydra_175", "insufficient", "", NOBODY, "lightning-hydra-template#175"),
    ("healthy_rocm_iommu", "insufficient", "UH775", NOBODY, "rocm-systems#10609"),
    ("ib12_nccl_426_nopeer", "problem", "UH755", NOBODY, "nccl#426"),
    ("invalid_usage_swav_61", "insufficient", "UH794", NOBODY, "swav#61"),
    ("mismatch_inconsistent_old_78022", "problem", "UH719", NOBODY, "pytorch#78022"),
    ("mismatch_opendde_23", "problem", "UH719", NOBODY, "OpenDDE#23"),
    ("nccl_abort_swca_166", "insufficient", "UH741", NOBODY, "nccl-tests#166"),
    ("nccl_linklocal_wenet_1891", "insufficient", "UH741", NOBODY, "wenet#1891"),
    ("nccl_oom_enqueue_opensora_386", "problem", "UH754", NOBODY, "Open-Sora-Plan#386"),
    ("nccl_reset_1920", "insufficient", "UH901", NOBODY, "nccl#1920"),
    ("noib_then_watchdog", "problem", "UH401", NOBODY, "BasicSR#737"),
    ("rccl_hipipc_8178", "problem", "UH781", NOBODY, "rocm-systems#8178"),
    ("shm_attach_1589", "insufficient", "UH743", NOBODY, "nccl#1589"),
    ("slurm_requeue_submitit_1708", "insufficient", "UH784", NOBODY, "submitit#1708"),
    ("table_all_exit1_121209", "insufficient", "UH723", NOBODY, "pytorch#121209"),
    ("wan_kill9_table_amvur_2", "problem", "UH720", (2,), "AMVUR#2"),
    ("wd_old_wrapped_414", "insufficient", "UH901", NOBODY, "ml-engineering debug/pytorch.md"),
    ("xla_unhealthy_1690", "problem", "UH768", NOBODY, "xla#1690"),
)


@pytest.mark.parametrize(
    ("name", "status", "code", "who"), [row[:4] for row in THREADS], ids=[row[4] for row in THREADS]
)
def test_what_people_pasted(
    tmp_path: Path, name: str, status: str, code: str, who: tuple[int, ...]
) -> None:
    """No failure is healthy, no start-up line is a cause, and nobody is named on a guess."""
    report = judged(tmp_path / "job.log", (DATA / f"{name}.log").read_bytes())
    assert report.status == status
    assert not code or code in {finding.code for finding in report.findings}
    assert (report.findings[0].culprits if report.findings else NOBODY) == who


def test_every_paste_is_in_the_table() -> None:
    """A file without a row would be tested by nothing."""
    assert {path.stem for path in DATA.glob("*.log")} == {row[0] for row in THREADS}


def test_both_sides_of_a_mismatch_are_shown_whole(tmp_path: Path) -> None:
    """The evidence reaches the other rank's shape, and the printer is not blamed."""
    data = (DATA / "mismatch_opendde_23.log").read_bytes()
    first = judged(tmp_path / "job.log", data).findings[0]
    assert "TensorShape=[359, 1, 1436, 16]" in first.evidence[0]
    assert (first.culprits, first.confidence) == ((), "medium")


@pytest.mark.parametrize(
    "line",
    [
        "node01:11:42 [0] misc/none.cc:7 NCCL WARN Never heard of this before",
        "[rank3]:[E626 05:14:36.39 ProcessGroupNCCL.cpp:1743] [Rank 3] Never heard of this before",
        "[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank 1] Never heard of this before",
        "slurmstepd: error: never heard of this before",
        "2025-01-01 10:00:00 ERROR never heard of this before",
        "CRITICAL:root:never heard of this before",
        "terminate called after throwing an instance of 'int'",
        "  what():  [never heard of this before]",
        "kernel: python3[812]: segfault at 7f3 ip 00007f sp 00007f error 4 in libx.so",
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    f()\nsome.Odd: end',
        "Process 812 exited with code 3",
        "Last error:\nerror: never heard of this before",
    ],
)
def test_a_mark_of_an_error_is_never_healthy(tmp_path: Path, line: str) -> None:
    """An error of which no rule knows the words is shown, until the job counts further steps."""
    steps = "".join(f"step {number} loss 0.5\n" for number in range(5))
    report = judged(tmp_path / "a.log", f"{steps}{line}\n".encode())
    assert (report.status, report.findings[0].code) == ("insufficient", "UH901")
    assert report.findings[0].evidence[0].startswith(f"{tmp_path}/a.log:")
    went_on = judged(tmp_path / "b.log", f"{line}\n{steps}{DONE}".encode())
    assert went_on.status == "healthy"
    assert "further steps" in went_on.notes[-1].text
    again = judged(tmp_path / "c.log", f"{line}\n{steps}{line}\n".encode())
    assert again.status == "insufficient"


@pytest.mark.parametrize(
    ("wrapper", "code"),
    [
        ("watchdog thread terminated with exception: CUDA error: uncorrectable ECC error", "UH770"),
        ("  what():  ValueError: batch 812 has no labels", "UH793"),
        ("Last error:\n[rank2]: Failed to CUDA calloc async 608 bytes", "UH754"),
        ('{"message": {"message": "KeyError: \'loss\'", "extraInfo": {}}}', "UH793"),
        ("raised the following async exception: CUDA error: device-side assert trigg", "UH781"),
        ("  what():    what():  CUDA error: an illegal memory access was encountered", "UH778"),
        ("n:1:2 [0] init.cc:204 NCCL WARN Cuda failure 'an illegal memory access was e'", "UH781"),
        ("n:1:2 [0] init.cc:204 NCCL WARN Cuda failure 719 'unspecified launch failure'", "UH781"),
        ("failed. Last log entry (may be unrelated) 'Cuda failure 2 'out of memory''.", "UH754"),
        (r'{"py_callstack": "Traceback (most recent call last):\nKeyError: 3\n"}', "UH793"),
        ("Scheduler hit an exception: RuntimeError: CUDA error: unknown error", "UH781"),
        ("  what():  Native API failed. Native API returns: -999 (Unknown PI error)", "UH7079"),
    ],
)
def test_a_wrapper_does_not_hide_what_it_wraps(tmp_path: Path, wrapper: str, code: str) -> None:
    """The wrapped text is the failure, whatever its wrapper's own rule says."""
    report = judged(tmp_path / "a.log", f"[rank2]: {wrapper}\n[rank1]: step 1\n".encode())
    assert (report.findings[0].code, report.findings[0].culprits) == (code, (2,))


def steps(ranks: Iterable[int], first: int, number: int = 6) -> str:
    """Steps that ranks count."""
    return "".join(
        f"[rank{rank}]: step {step} loss 0.5\n"
        for step in range(first, first + number)
        for rank in ranks
    )


NOISE = (DATA / "public" / "noise.txt").read_text()


def test_what_sound_jobs_write_is_no_alarm(tmp_path: Path) -> None:
    """Retries and noise at the start, and a socket that closes at the end, of a job with steps."""
    closed = next(line for line in NOISE.splitlines() if "SocketImpl" in line)
    report = judged(tmp_path / "a.log", f"{NOISE}{steps(range(4), 1)}{closed}\n{DONE}".encode())
    assert (report.status, report.culprits) == ("healthy", ())


def test_who_misses_the_barrier_is_named_and_not_who_says_so(tmp_path: Path) -> None:
    """MonitoredBarrier names the absent ranks; the rank that prints it only waited."""
    line = b"[rank0]: RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 4000 ms\n"
    assert judged(tmp_path / "a.log", line).findings[0].culprits == (2,)


@pytest.mark.parametrize("data", [b"Once upon a time.\nThe end.\n", b"%PDF-1.4\n1 0 obj\nendobj\n"])
def test_what_is_no_log_is_not_healthy(tmp_path: Path, data: bytes) -> None:
    """Where nothing could have been seen, nothing is said to be well."""
    report = judged(tmp_path / "a.log", data)
    assert report.status == "insufficient"
    assert "nothing here looks like the log of a job" in report.summary


def test_a_log_that_could_not_be_read_is_not_healthy(tmp_path: Path) -> None:
    """One good log does not speak for another one that is lost."""
    (tmp_path / "good.log").write_text("step 1\nstep 2\n")
    (tmp_path / "lost.log.gz").write_bytes(b"not gzip")
    report = scanning_verdict(tmp_path)
    assert report == ("insufficient", True)


def scanning_verdict(folder: Path) -> tuple[str, bool]:
    """The status of all logs of a folder, and whether the summary says that one was lost."""
    from unhang.analysis import diagnose
    from unhang.casebuilder import case_of_logs

    report = diagnose(case_of_logs(scan_logs(find_logs(folder))))
    return report.status, "could not be read" in report.summary


def test_ranks_have_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further ranks belong to nobody, and a note says so."""
    monkeypatch.setattr(telling, "MAX_RANKS", 3)
    path = tmp_path / "a.log"
    path.write_text("".join(f"[rank{rank}]: RuntimeError: boom\n" for rank in range(9)))
    found = scan_logs(find_logs(path))
    assert found.ranks == {0, 1, 2}
    assert [(event.rank, event.count) for event in found.events] == [
        (0, 1),
        (1, 1),
        (2, 1),
        (-1, 6),
    ]
    assert [note.text for note in found.notes] == [
        "more than 3 ranks: lines of the others belong to no rank"
    ]


def test_unexplained_errors_have_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones are kept, and always the newest: a log is judged by how it ends."""
    monkeypatch.setattr(keeping, "MAX_UNEXPLAINED", 3)
    path = tmp_path / "a.log"
    path.write_text("".join(f"ERROR: {word}\n" for word in "abcdefgh"))
    found = scan_logs(find_logs(path))
    assert [event.text for event in found.events] == ["ERROR: a", "ERROR: b", "ERROR: h"]
    assert [note.level for note in found.notes] == ["warning"]


def test_stamps_of_glog_with_a_short_month(tmp_path: Path) -> None:
    """Torch writes the 26th of June as E626."""
    path = tmp_path / "a.log"
    path.write_text("[E626 05:14:36.393067540 a.cpp:1] [Rank 7] never heard of\n")
    event = scan_logs(find_logs(path)).events[0]
    assert (event.time_ns > 0, event.rank) == (True, 7)


def test_mutated_logs_are_judged() -> None:
    """No mutation of a real log raises or takes seconds; `log_fuzz.py` runs many more."""
    seeds = [path.read_bytes() for path in sorted(DATA.glob("*.log"))]
    assert list(fuzz(seeds, 400)) == []
    assert mutated(random.Random(3), seeds) == mutated(random.Random(3), seeds)  # noqa: S311


RAISED = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "train.py", line 7, in load\n'
    "[rank1]:     read(shard)\n"
    "[rank1]: ValueError: shard 7 is broken\n"
)


@pytest.mark.parametrize(
    ("log", "status", "who"),
    [
        (RAISED + steps(range(4), 8) + DONE, "healthy", NOBODY),
        (steps(range(4), 1) + RAISED, "problem", (1,)),
        (steps(range(4), 1) + RAISED + steps((0, 2, 3), 8), "problem", (1,)),
        (RAISED + steps(range(4), 8) + RAISED, "problem", (1,)),
        (RAISED.replace("[rank1]: ", "") + steps((0,), 8), "problem", NOBODY),
        (RAISED.replace("[rank1]: ", "") + steps((0,), 8, 20) + DONE, "healthy", NOBODY),
        (
            RAISED + steps(range(4), 8) + "[rank2]: RuntimeError: CUDA out of memory\n",
            "problem",
            (2,),
        ),
    ],
    ids=["handled", "at the end", "others go on", "again", "of nobody", "long ago", "then another"],
)
def test_a_failure_that_its_rank_outlived_is_no_cause(
    tmp_path: Path, log: str, status: str, who: tuple[int, ...]
) -> None:
    """Further steps of the same rank take a failure back; those of other ranks do not."""
    report = judged(tmp_path / "a.log", log.encode())
    assert (report.status, report.findings[0].culprits if report.findings else ()) == (status, who)


def test_an_old_fault_in_the_kernels_log_is_another_story(tmp_path: Path) -> None:
    """Of Xids days apart the newest incident counts; one that follows another leads to it."""
    log = (
        "[Wed Jul 31 23:14:18 2024] NVRM: Xid (PCI:0000:00:05): 43, pid=104, Ch 00000008\n"
        "[Fri Aug  9 13:32:56 2024] NVRM: Xid (PCI:0000:00:08): 94, pid='<unknown>', Contained\n"
        "[Fri Aug  9 13:32:57 2024] NVRM: Xid (PCI:0000:00:08): 45, pid=105, Ch 00000008\n"
    )
    report = judged(tmp_path / "dmesg.log", log.encode())
    assert "PCI:0000:00:08): 94" in report.findings[0].evidence[0]
    assert "the device at PCI 0000:00:08" in report.summary
    led = b"kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=1, Ch 00000001 caused by previous Xid 149\n"
    first = judged(tmp_path / "dmesg.log", led).findings[0]
    assert any("Xid 149: an NVLink error" in sentence for sentence in first.evidence)


def test_who_says_nothing_of_a_time_out_is_told(tmp_path: Path) -> None:
    """Of ranks below the highest, those without a time-out may be absent from the call."""
    log = "".join(
        f"[rank{rank}]:[E120 05:06:30.1 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, "
        "Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
        for rank in (0, 1, 3, 4)
    )
    first = judged(tmp_path / "a.log", log.encode()).findings[0]
    assert first.alternatives == ("Rank 2 printed no such line, and may be absent from the call.",)


@pytest.mark.parametrize(
    ("prefix", "who"),
    [
        ("[rank3]: ", (3,)),
        ("[default3]:", (3,)),
        ("[5:3]: ", (3,)),
        ("3: ", (3,)),
        ("[3] ", (3,)),
        ("[1,3]<stderr>:", (3,)),
        ("Fri Sep 25 16:52:53 2020[3]<stderr>:", (3,)),
        ("(RayTrainWorker pid=81, ip=10.0.0.7) ", NOBODY),
        ("(VllmWorker rank=3 pid=81) ERROR 04-02 06:21:57 [core.py:1099] ", (3,)),
        ("worker-0  | [rank3]: ", (3,)),
        ("worker-0 | ", NOBODY),
        ("[pod/trainer-3/main] [rank3]: ", (3,)),
        ("2025-09-22T14:00:00.250000000Z stderr F [rank3]: ", (3,)),
        ("2025-09-22T14:00:00Z ", NOBODY),
        ("gpu004: [rank3]: ", (3,)),
        ("job-worker-1: ", NOBODY),
        ("[2025-09-22 14:00:00 TP3] ", (3,)),
        ("1: [default3]:[rank11]: ", (11,)),
        ("stderr: ", NOBODY),
        ("> > > [rank3]: ", (3,)),
        ("[2024-02-27T21:35:28.726901Z] fa88a9df [rank=3] || ", (3,)),
        ("Fri Jan  1 10:00:00 2021[1,3]<stderr>:", (3,)),
        ("[1,3]<stderr>:[rank3]: ", (3,)),
        ("[node02:3]: ", (3,)),
        ("(WorkerDict pid=81) [rank3]: ", (3,)),
        ("stderr: [rank3]: ", (3,)),
    ],
)
def test_no_prefix_hides_a_traceback(tmp_path: Path, prefix: str, who: tuple[int, ...]) -> None:
    """Behind each prefix a traceback is one: its exception, its place, and its rank if told."""
    trace = RAISED.replace("[rank1]: ", "")
    log = "".join(f"{prefix}{line}\n" for line in trace.splitlines())
    first = judged(tmp_path / "a.log", log.encode()).findings[0]
    assert (first.code, first.culprits) == ("UH793", who)
    assert [(site.file, site.line) for site in first.sites] == [("train.py", 7)]
