"""How processes ended, as parents and launchers tell it: whose end it was, and what follows."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_fuzz import DONE, judged

from unhang.analysis.words.quiet import A_START, LEFT_OPEN
from unhang.logs.files import find_logs
from unhang.logs.lines.ending import speaks_of_trouble
from unhang.logs.scan import scan_logs

START = "2025-01-01 10:00:00 INFO loss 2.1\n"
SPAWN = """\
Traceback (most recent call last):
  File "/home/user/train.py", line 10, in <module>
    mp.spawn(main, nprocs=8)
  File "torch/multiprocessing/spawn.py", line 158, in start_processes
    while not context.join():
"""
CHILD = """\

-- Process 5 terminated with the following error:
Traceback (most recent call last):
  File "torch/multiprocessing/spawn.py", line 59, in _wrap
    fn(i, *args)
  File "/home/user/train.py", line 7, in main
    raise ValueError("bad batch")
ValueError: bad batch
"""
SUMMARY = """\
train.py FAILED
Root Cause (first observed failure):
[0]:
  time      : 2023-09-15_08:38:11
  host      : node01
  rank      : 6 (local_rank: 2)
  exitcode  : -7 (pid: 5063)
  error_file: <N/A>
  traceback : Signal 7 (SIGBUS) received by PID 5063
"""


@pytest.mark.parametrize(
    "passed_on", ["torch.multiprocessing.spawn.ProcessRaisedException: ", "Exception:"]
)
def test_what_a_parent_passes_on_is_the_failure_of_its_child(
    passed_on: str, tmp_path: Path
) -> None:
    """Not the parent's own exception, which only says that there was one."""
    report = judged(tmp_path / "a.log", f"{START}{SPAWN}{passed_on}\n{CHILD}".encode())
    first = report.findings[0]
    assert (first.code, first.culprits) == ("UH793", (5,))
    assert "ValueError: bad batch" in report.summary
    assert [site.function for site in first.sites] == ["main"]


@pytest.mark.parametrize(
    ("exception", "signal", "told"),
    [
        ("Exception", "SIGKILL", ("problem", "UH720", (3,))),
        (
            "torch.multiprocessing.spawn.ProcessExitedException",
            "SIGBUS",
            ("problem", "UH721", (3,)),
        ),
        ("Exception", "SIGABRT", ("insufficient", "UH901", ())),
    ],
)
def test_a_signal_that_ended_a_spawned_process(
    exception: str, signal: str, told: tuple[str, str, tuple[int, ...]], tmp_path: Path
) -> None:
    """It is that of the process, and where its parent waited is not where it ended."""
    line = f"{exception}: process 3 terminated with signal {signal}\n"
    report = judged(tmp_path / "a.log", f"{START}{SPAWN}{line}".encode())
    first = report.findings[0]
    assert (report.status, first.code, first.culprits) == told
    assert not first.sites


def test_a_summary_with_an_empty_line_after_each(tmp_path: Path) -> None:
    """Web pages put them in; whose failure it was stands in it all the same."""
    path = tmp_path / "a.log"
    for text in (SUMMARY, SUMMARY.replace("\n", "\n\n")):
        path.write_text(text)
        crashes = [event for event in scan_logs(find_logs(path)).events if event.code == "UH721"]
        assert {(event.rank, event.host, event.time_ns > 0) for event in crashes} == {
            (6, "node01", True)
        }


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("[INFO] [launch.py:319:sigkill_handler] Killing subprocess 16", "insufficient"),
        ("Killing subprocess 16", "insufficient"),
        ("[INFO] Killing subprocess 16 of the pool, as asked", "healthy"),
        ("[INFO] [warn][worker-30][status_update][Running to Failed][{}]", "insufficient"),
        ("[INFO] [info][worker-30][status_update][Pending to Running][{}]", "healthy"),
        ("WARNING:torch:Sending process 4 closing signal SIG", "insufficient"),
        (
            "NCCL error in: /pytorch/c10d/ProcessGroupNCCL.cpp:825, unhandled system error",
            "insufficient",
        ),
        ("[INFO] NCCL error in: the name of a test", "healthy"),
    ],
)
def test_a_launcher_that_ends_its_processes_is_no_sound_end(
    line: str, status: str, tmp_path: Path
) -> None:
    """They do so after a failure or a signal alone; a lost store proves nothing."""
    lost = "[rank7]:[W729 10:15:18.604 TCPStore.cpp:106] sendBytes failed on SocketImpl(fd=76)"
    text = f"{START}{lost}\n[2025-07-29 10:15:18,868] {line}\n{DONE}"
    report = judged(tmp_path / "a.log", text.encode())
    assert report.status == status


@pytest.mark.parametrize(
    ("line", "trouble"),
    [
        (b"2025-01-01 10:00:00 WARNING worker.py:1404 -- The head node died", True),
        (b"WARNING: ran out of memory with exception: CUDA", True),
        (b"| WARNING | the server exited unexpectedly, terminated with 3", True),
        (b"WARNING: a request failed", False),
        (b"WARNING: worker 3 died, retrying", False),
        (b"WARNING: no worker died", False),
        (b"INFO: the old worker died", False),
    ],
)
def test_grave_words_count_where_a_line_only_warns(line: bytes, *, trouble: bool) -> None:
    """A library's warning that something died is not passed over; one that it tries again is."""
    assert speaks_of_trouble(line) is trouble


def test_who_was_named_by_somebody_else_stands_in_the_summary(tmp_path: Path) -> None:
    """The launcher has no rank, and names one."""
    line = (
        b"mpirun noticed that process rank 6 with PID 0 on node n1 exited on signal 9 (Killed).\n"
    )
    report = judged(tmp_path / "a.log", START.encode() + line)
    assert report.culprits == (6,)
    assert report.summary.startswith("The first failure in the logs comes from rank 6: ")


MESSAGES = """\
UH755 [x1000c5s2b1n0:83417:0:83417]  ud_ep.c:263  Fatal: UD endpoint 0x20c1da0 to <no debug data>: \
unhandled timeout error
UH7024 2022-11-02 02:42:14,808 WARNING worker.py:1849 -- Raylet is terminated: ip=172.29.58.133, \
id=6ad361. Termination is unexpected. Possible reasons include: (1) SIGKILL
UH7074 AssertionError: loss log variables are different across GPUs!
UH7074 Exception: Unable to unpickle data from other workers. all_gather_list requires all workers \
to enter the function together, so this error usually indicates
UH7047 919/50025 [1:46:14<94:36:57,  6.94s/it, avr_loss=0.318]Could not load library \
libnvrtc.so.12. Error: libnvrtc.so.12: cannot open shared object file: No such file or directory
UH7075 RuntimeError: Timed out initializing process group in store based barrier on rank: 1, \
for key: store_based_barrier_key:1 (world_size=8, worker_count=16, timeout=0:30:00)
UH7075 RuntimeError: Timed out initializing process group in store based barrier on rank: 1, \
for key: store_based_barrier_key:1 (world_size=9, num_workers_joined=10, timeout=0:30:00)
UH734 RuntimeError: Timed out initializing process group in store based barrier on rank: 1, \
for key: store_based_barrier_key:1 (world_size=16, worker_count=8, timeout=0:30:00)
UH771 [Sun Apr 14 12:48:42 2024] NVRM: GPU 0000:81:00.0: RmInitAdapter failed! (0x25:0x40:1470)
UH793 Exception: ("((' gsutil cat gs://data/v3/train/20.tar',), {'shell': True}): exit 1 (read)
"""


@pytest.mark.parametrize("message", MESSAGES.splitlines())
def test_messages_of_public_threads(message: str, tmp_path: Path) -> None:
    """Each as somebody pasted it."""
    code, _, line = message.partition(" ")
    report = judged(tmp_path / "a.log", f"{line}\n".encode())
    assert (report.status, report.findings[0].code) == ("problem", code)


@pytest.mark.parametrize(
    "line",
    [
        "2025-01-01 10:00:00 INFO ud_ep.c:93 UD endpoint 0x20c1da0: handled timeout",
        "2025-01-01 10:00:00 INFO Raylet is terminated: ip=1.2.3.4. It was drained",
        "2025-01-01 10:00:00 INFO NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
    ],
)
def test_what_only_looks_like_them_is_no_alarm(line: str, tmp_path: Path) -> None:
    """A near miss."""
    assert judged(tmp_path / "a.log", f"{START}{line}\n{DONE}".encode()).status == "healthy"


def test_too_many_are_told_from_too_few_line_by_line(tmp_path: Path) -> None:
    """Lines that differ in their digits alone are not taken for the same here."""
    wait = (
        "[rank1]: Waiting in store based barrier to initialize process group for rank: 1, key: k "
    )
    counts = "".join(f"{wait}(world_size=8, worker_count={n}, timeout=1)\n" for n in range(2, 10))
    report = judged(tmp_path / "a.log", counts.encode())
    assert (report.status, report.findings[0].code) == ("problem", "UH7075")
    few = "".join(f"{wait}(world_size=8, worker_count=7, timeout={n})\n" for n in range(9))
    assert judged(tmp_path / "b.log", few.encode()).status != "problem"


RAY = """\
(RayTrainWorker pid=1317) Error in training function:
(RayTrainWorker pid=1317) Traceback (most recent call last):
(RayTrainWorker pid=1317)   File "/home/user/train.py", line 216, in loop
(RayTrainWorker pid=1317)     sys.exit(0)
(RayTrainWorker pid=1317) SystemExit: 0
(TrainController pid=1192) [FailurePolicy] RAISE
(TrainController pid=1192) Error: Training failed due to worker errors:
(TrainController pid=1192) [Rank 1 Error Snippet]:
Traceback (most recent call last):
  File "/home/user/train.py", line 238, in <module>
    ).fit()
ray.train.WorkerGroupError: Training failed due to worker errors:
[Rank 1 Error Snippet]:
Traceback (most recent call last):
  File "/home/user/train.py", line 216, in loop
    sys.exit(0)
SystemExit: 0
"""  # Ray 2.60, three ranks of which one leaves, shortened


def test_what_ray_train_passes_on_is_of_the_rank_that_it_names(tmp_path: Path) -> None:
    """The controller's own error is no failure; who leaves the loop by sys.exit has failed."""
    finding = judged(tmp_path / "ray.log", RAY.encode()).findings[0]
    assert (finding.slug, finding.culprits) == ("unhandled-exception", (1,))
    assert [(site.file, site.line) for site in finding.sites] == [("/home/user/train.py", 216)]
    assert "SystemExit: 0" in finding.summary


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("rank0: NCCL INFO Init COMPLETE\n", A_START),
        ("INFO: starting epoch 0\nINFO: saving checkpoints every 100 steps\n", A_START),
        ("INFO: step 1\nINFO: step 2\nINFO: step 3\n", LEFT_OPEN),
        (
            "INFO: start\nLoading safetensors shards: 100% Completed | 1/1 [00:00<?,  2.76it/s]\n",
            A_START,
        ),
        (
            "INFO: start\nMap (num_proc=8): 40%|#  | 40/100 [00:10<00:15,  4.00it/s]\n",
            A_START,
        ),
        ("Train Epoch: 1 [52480/60000 (87%)]\tLoss: 0.449658\n", LEFT_OPEN),
        ("steps:   2%|#   | 919/50025 [1:46:14<94:36:57,  6.94s/it]\n", LEFT_OPEN),
        ("INFO: `Trainer.fit` stopped: `max_epochs=3` reached.\n", ""),
        ("# Avg bus bandwidth    : 187.2\n", ""),
        ('INFO:  10.0.0.1:5 - "POST /v1/chat HTTP/1.1" 200 OK\n', LEFT_OPEN),
    ],
)
def test_a_start_or_steps_alone_are_no_health(tmp_path: Path, lines: str, told: str) -> None:
    """A job that hangs at its start prints nothing but the start, a later one nothing but steps."""
    report = judged(tmp_path / "a.log", lines.encode())
    assert report.status == ("insufficient" if told else "healthy")
    assert not told or report.summary == told


THREAD = """\
Exception in thread Thread-7 (prefetch):
Traceback (most recent call last):
  File "/usr/lib/python3.11/threading.py", line 1045, in _bootstrap_inner
    self.run()
  File "/usr/lib/python3.11/threading.py", line 982, in run
    self._target(*self._args, **self._kwargs)
  File "/home/user/train.py", line 7, in prefetch
    raise ValueError("bad shard")
ValueError: bad shard
"""


@pytest.mark.parametrize("cut", [0, 1], ids=["whole", "without its first line"])
def test_an_exception_of_a_thread_ends_no_rank(cut: int, tmp_path: Path) -> None:
    """It may be why the rank waits for ever, which is less sure than that it ended."""
    lines = [f"[rank1]: {line}" for line in THREAD.splitlines()[cut:]]
    report = judged(tmp_path / "a.log", "\n".join([START, *lines, ""]).encode())
    first = report.findings[0]
    assert (first.code, first.culprits, first.confidence) == ("UH793", (1,), "medium")
    assert "comes from a thread of rank 1: ValueError: bad shard" in report.summary
    (event,) = scan_logs(find_logs(tmp_path)).events
    assert event.fields["thread"] == ("?" if cut else "Thread-7 (prefetch)")
    assert event.fields["function"] == "prefetch"


@pytest.mark.parametrize(
    "line",
    [
        "[ERROR] ['/x/python3', 'a.py', '--local_rank=7'] exits with return code = -9",
        "Error: Command '['python', 'a.py', '--local_rank=7']' died with <Signals.SIGKILL",
    ],
)
def test_the_command_that_a_launcher_prints_names_no_rank(line: str, tmp_path: Path) -> None:
    """DeepSpeed and torch's old launcher print the last one that they started, whoever ended."""
    assert judged(tmp_path / "a.log", f"{START}{line}\n".encode()).culprits == ()
