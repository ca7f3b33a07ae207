"""Stacks in the forms in which people paste them: retyped, cut, headed by hand, of several tools.

Whatever was pasted, what is said of it is never that there are no stacks; and who only has helper
threads here, or waits for an engine's next message, is not blamed.
"""

from __future__ import annotations

from textwrap import dedent

import pytest

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.report import Report
from unhang.stacks.reading import Reading, is_stacks, parse_stacks

WAITS = "all_reduce (torch/distributed/distributed_c10d.py:3068)\n    step (train.py:31)"
LOADS = "__next__ (fairseq/data/iterators.py:648)\n    step (train.py:12)"


def read(text: str) -> Reading:
    """The stacks of a text, as it stands in a file whose name tells nothing."""
    return parse_stacks(dedent(text).encode(), "paste.txt")


def judged(text: str) -> Report:
    """What is said of a paste; never that there are no stacks."""
    reading = read(text)
    report = diagnose(Case(samples=reading.samples, notes=reading.notes))
    assert "no dumps, stacks" not in report.summary
    assert "no rank's stack" not in report.summary
    return report


HEADINGS = (
    "========rank{}=================",
    "rank{}",
    "Rank {}:",
    "### rank {}",
    "The stack for rank{}:",
    "This is the backtrace of rank {}",
    "**rank-{}**",
)


@pytest.mark.parametrize("heading", HEADINGS)
def test_headings_by_hand(heading: str) -> None:
    """Whatever people write above a stack, it is of that rank; fences are no part of it."""
    thread = 'Thread {} (idle): "MainThread"\n    {}\n'
    text = "".join(
        f"{heading.format(rank)}\n```\n{thread.format(400 + rank, frames)}```\n"
        for rank, frames in enumerate((WAITS, LOADS, WAITS))
    )
    assert is_stacks(text.encode())
    report = judged(text)
    assert (report.status, report.culprits) == ("problem", (1,))


@pytest.mark.parametrize(
    "line", ["rank 3 of 8 has come to the barrier", "step (rank3.py:1)", "rank: 3 (local_rank: 3)"]
)
def test_what_is_no_heading(line: str) -> None:
    """A sentence or a frame that speaks of a rank parts nothing."""
    text = f'Thread 12 (idle): "MainThread"\n    {WAITS}\n{line}\n    main (train.py:40)\n'
    (sample,) = read(text).samples
    assert sample.rank == -1


def test_gdb_of_several_processes() -> None:
    """A debugger attaches again, or a thread's number comes again."""
    one = 'Thread 1 (Thread 0x7f{0} (LWP {0}) "python"):\n#0  0x01 in {1} () from /lib/libc.so.6\n'
    attached = "".join(
        f"Attaching to process {pid}\n(gdb) thread apply all bt\n{one.format(pid, function)}"
        for pid, function in ((4001, "ncclAllReduce"), (5001, "__libc_read"))
    )
    bare = one.format(4001, "ncclAllReduce") + one.format(5001, "__libc_read")
    for text in (attached, bare):
        assert [sample.pid for sample in read(text).samples] == [4001, 5001]
    text = f"====rank0====\n{one.format(1, 'MPI_Bcast')}====rank1====\n{one.format(2, 'x')}"
    assert [sample.rank for sample in read(text).samples] == [0, 1]


def test_headings_that_share_a_stack() -> None:
    """All of them stand above one stack, below "4 in:"."""
    text = f"""\
3 in:

Thread 510 (active): "MainThread"
Thread 511 (active): "MainThread"
Thread 512 (active): "MainThread"
    {WAITS}
    <module> (train.py:249)

1 in:

Thread 514 (idle): "MainThread"
    {LOADS}
    <module> (train.py:249)
"""
    reading = read(text)
    assert [sample.pid for sample in reading.samples] == [510, 511, 512, 514]
    report = judged(text)
    assert report.status == "problem"
    assert [subject.pid for subject in report.causes[0].subjects] == [514]


@pytest.mark.parametrize(
    "heading",
    [
        'Thread (idle) "MainThread"',
        'Thread (idle): "MainThread"',
        'Thread 0x7FA6E7C01740 (idle): "MainThread"',
        "decode pid=951 (MainThread active+gil):",
    ],
)
@pytest.mark.parametrize("indent", ["    ", "  ", "\t"])
def test_headings_of_py_spy_by_hand(heading: str, indent: str) -> None:
    """Without a number, without a colon, with other spaces."""
    report = judged(f"{heading}\n{indent}" + WAITS.replace("    ", indent) + "\n")
    assert report.status == "insufficient"
    assert "waiting in all_reduce at step (train.py:31)" in report.summary


def test_a_line_a_rank() -> None:
    """As people and agents sum up what they saw."""
    report = judged(
        """\
        DP0,3,5-7: broadcast              (torch/distributed/distributed_c10d.py:2841)
        DP2,4:     all_gather_into_tensor (torch/distributed/distributed_c10d.py:4056)
        DP1:       init_metadata  (backend.py:746)   <- .max().item(), a sync
                     prepare_for_extend (worker.py:163)
        """
    )
    assert (report.status, report.culprits) == ("problem", (1,))
    assert len(report.ranks) == 8


def test_frames_without_a_heading() -> None:
    """One stack of nobody knows whom; two lines may be anything."""
    frames = "all_reduce (torch/distributed/distributed_c10d.py:3068)\nstep (train.py:3)\n"
    assert "waiting in all_reduce" in judged(f"{frames}main (train.py:9)\n").summary
    assert not read(frames).samples
    assert not read(f"{frames}main (train.py:9)\n" + "and so on\n" * 9).samples


LLDB = """\
* thread #16, name = 'python', stop reason = signal SIGSTOP
  * frame #0: 0x00007fb0b7f0792d libc.so.6`syscall + 29
    frame #1: 0x00007fb090db0b85 libtorch_cuda.so`c10d::ProcessGroupNCCL::abort() + 664
    frame #2: 0x00007fb090db0b86 python`main(argc=1) at main.c:12:4 [opt]
"""


def test_lldb() -> None:
    """Libraries stand before the function; the process tears its groups down."""
    (sample,) = read(LLDB).samples
    frames = sample.threads[0].frames
    assert [frame.function for frame in frames] == [
        "syscall",
        "c10d::ProcessGroupNCCL::abort",
        "main",
    ]
    assert (frames[2].file, frames[2].line) == ("main.c", 12)
    assert "aborts its communicators" in judged(LLDB).summary


HELPERS = """\
This is the backtrace of rank 1
#0  0x01 in __GI___poll (fds=0x7f, nfds=65, timeout=500) at ../poll.c:29
#1  0x02 in ncclProxyService (_args=0x56) at proxy.cc:1437
#2  0x03 in start_thread () at pthread_create.c:477

Thread 8 (Thread 0x7f97c0b5c640 (LWP 153573) "python3"):
#0  0x04 in __GI_ppoll (fds=0x0) at ../ppoll.c:39
#1  0x05 in clone3 () at ../clone3.S:81
"""


def test_helper_threads_alone() -> None:
    """They say nothing of the rank: it is said what is here, and what is not."""
    report = judged(HELPERS)
    assert (report.status, report.culprits) == ("insufficient", ())
    assert "only helper threads of rank 1 were captured" in report.summary


def test_without_a_main_thread_the_one_that_says_most_is_judged() -> None:
    """A paste that was cut at the top: not the compiler's reader, which stands first."""
    report = judged(
        """\
            run_scheduler_process (scheduler.py:2612)
            <module> (<string>:1)
        Thread 423 (idle): "Thread-1 (_read_thread)"
            _recv_msg (torch/_inductor/compile_worker/subproc_pool.py:61)
            run (threading.py:1012)
        Thread 894 (idle): "Thread-2 (forward_thread_func)"
            ncclCommWindowRegister (pynccl_wrapper.py:540)
            forward (model_runner.py:1902)
        """
    )
    assert report.status == "insufficient"
    assert "waiting in ncclCommWindowRegister" in report.summary


# ------------------------------------------------------------------ engines

IDLE = """\
    poll (zmq/sugar/poll.py:106)
    acquire_read (vllm/distributed/device_communicators/shm_broadcast.py:698)
    dequeue (vllm/distributed/device_communicators/shm_broadcast.py:779)
    worker_busy_loop (vllm/v1/executor/multiproc_executor.py:973)
"""
STEP = """\
    synchronize (torch/cuda/streams.py:231)
    get_output (vllm/v1/worker/gpu_model_runner.py:260)
    worker_busy_loop (vllm/v1/executor/multiproc_executor.py:985)
"""
COLLECTIVE = """\
    all_reduce (torch/distributed/distributed_c10d.py:3068)
    worker_busy_loop (vllm/v1/executor/multiproc_executor.py:985)
"""
ENGINE = """\
    recv (vllm/distributed/device_communicators/shm_broadcast.py:802)
    get_response (vllm/v1/executor/multiproc_executor.py:387)
    run_engine_core (vllm/v1/engine/core.py:1110)
"""


def engine(*workers: str, where: str = "_TP{}") -> str:
    """An engine and its workers, as py-spy shows them by their titles."""
    title = 'Process {}: {}\nPython v3.12.3 (/usr/bin/python3)\n\nThread {} (idle): "MainThread"\n'
    parts = [title.format(280, "VLLM::EngineCore", 280) + ENGINE]
    for rank, frames in enumerate(workers):
        parts.append(
            title.format(300 + rank, f"VLLM::Worker{where.format(rank)}", 300 + rank) + frames
        )
    return "\n".join(parts)


@pytest.mark.parametrize(
    ("workers", "status", "culprits"),
    [
        ((IDLE, IDLE, STEP, IDLE), "problem", (2,)),
        ((IDLE, IDLE, IDLE, IDLE), "insufficient", ()),
        ((IDLE, STEP, STEP, STEP), "insufficient", ()),
        ((IDLE, IDLE, COLLECTIVE, IDLE), "insufficient", ()),
    ],
)
def test_workers_of_an_engine(
    workers: tuple[str, ...], status: str, culprits: tuple[int, ...]
) -> None:
    """The few in a step keep the others waiting; who waits for a message is not blamed."""
    report = judged(engine(*workers))
    assert (report.status, report.culprits) == (status, culprits)
    assert len(report.ranks) == len(workers)


def test_what_the_engine_does_is_told_beside_workers_that_wait_for_it() -> None:
    """No worker is named for it: it is the engine that stands, in whatever it does."""
    core = 'Process 30: VLLM::EngineCore\nThread 30 (idle): "MainThread"\n    {}\n'
    asleep = "schedule (vllm/v1/core/sched/scheduler.py:180)"
    report = judged(engine(IDLE, IDLE) + "\n" + core.format(asleep))
    assert (report.status, report.culprits) == ("insufficient", ())
    assert "ranks 0-1 are waiting for the engine's next message" in report.summary
    assert "the engine (process 30) is in schedule" in report.summary
    waits = "_process_input_queue (vllm/v1/engine/core.py:1170)"
    report = judged(engine(IDLE, IDLE) + "\n" + core.format(waits))
    assert "the engine (process 30) is waiting for requests" in report.summary


def test_titles_with_two_coordinates_are_no_ranks() -> None:
    """How they are counted nothing tells; the number of experts beside tensors is the same one."""
    ranks = {sample.rank for sample in read(engine(IDLE, STEP, where="_DP0_TP{}")).samples}
    assert ranks == {-1}
    ranks = {sample.rank for sample in read(engine(IDLE, STEP, where="_TP{0}_EP{0}")).samples}
    assert ranks == {-1, 0, 1}


@pytest.mark.parametrize(
    ("heading", "frames"),
    [
        ('Thread <pid> (active): "MainThread"', "    {:40} ({})"),
        ('Thread XXXX (idle): "MainThread"', "    {} ({})   <-- blocked here"),
        ("", "{:20} ({})   # hangs"),
    ],
)
def test_a_stack_that_was_lined_up_and_remarked_upon(heading: str, frames: str) -> None:
    """A number that was taken away, columns and arrows hide no frame."""
    calls = (
        ("synchronize", "torch/cuda/streams.py:231"),
        ("step", "train.py:31"),
        ("<module>", "train.py:60"),
    )
    lines = (frames.format(name, place) for name, place in calls)
    (sample,) = read("\n".join([heading, *lines])).samples
    assert [(f.function, f.line) for f in sample.threads[0].frames] == [
        ("synchronize", 231),
        ("step", 31),
        ("<module>", 60),
    ]


def test_two_frames_down_to_the_program_are_a_stack() -> None:
    """Of an actor of Ray without a task there is no more; two frames of anything may be prose."""
    ends = "    main_loop (ray/_private/worker.py:935)\n    <module> (default_worker.py:297)\n"
    assert is_stacks(ends.encode())
    assert not is_stacks(ends.replace("<module>", "see").encode())


BACKWARD = """\
Process {0}: python train.py
Thread {0} (idle): "MainThread"
    backward (torch/autograd/__init__.py:266)
    step (train.py:41)
Thread 2{0} (idle): "Thread-1 (report)"
    report (train.py:90)
    _bootstrap_inner (threading.py:1073)
{1}
"""
HOOK = """\
Thread 9{0} (active)
    all_gather_into_tensor (torch/distributed/distributed_c10d.py:2709)
    allgather_fn (deepspeed/comm/comm.py:305)
"""


def test_the_backward_pass_goes_on_in_a_thread_of_torch() -> None:
    """A hook that gathers there makes the rank wait for its peers: who loads data is named."""
    text = "\n".join(
        [
            *(f"rank{r}\n" + BACKWARD.format(500 + r, HOOK.format(500 + r)) for r in (0, 1)),
            f'rank2\nProcess 502: python train.py\nThread 502 (idle): "MainThread"\n    {LOADS}',
        ]
    )
    report = judged(text)
    assert (report.status, report.culprits) == ("problem", (2,))
    alone = judged(BACKWARD.format(500, HOOK.format(500)))
    assert "waiting in all_gather_into_tensor at step (train.py:41)" in alone.summary
    assert "in the backward pass at step" in judged(BACKWARD.format(500, "")).summary
