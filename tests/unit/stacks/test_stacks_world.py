"""Frames of serving engines, of other accelerators and of transports; threads that say little."""

from __future__ import annotations

import pytest

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.model import Frame
from unhang.report import Report
from unhang.stacks.meaning import meaning_of_frames
from unhang.stacks.reading import parse_stacks

ENGINE = """\
Process 280: VLLM::EngineCore
Python v3.12.3 (/usr/bin/python3.12)

Thread 280 (idle): "MainThread"
    poll (zmq/sugar/poll.py:106)
    recv (vllm/distributed/device_communicators/shm_broadcast.py:802)
    dequeue (vllm/distributed/device_communicators/shm_broadcast.py:794)
    get_response (vllm/v1/executor/multiproc_executor.py:387)
    step_with_batch_queue (vllm/v1/engine/core.py:598)
"""
WAITS = """\
Process 4001: python train.py
Thread 4001 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    <module> (train.py:28)
"""
HELPER = """\
Process 4002: python train.py
Thread 4102 (idle): "Thread-2 (report)"
    report (train.py:90)
    run (threading.py:1010)
    _bootstrap_inner (threading.py:1073)
    _bootstrap (threading.py:1030)
"""


def verdict(text: str) -> Report:
    """The verdict over a text."""
    reading = parse_stacks(text.encode(), "pasted.txt")
    return diagnose(Case(samples=reading.samples, notes=reading.notes))


def kind(*frames: tuple[str, str]) -> str:
    """The kind of a stack of (function, file), innermost first."""
    return meaning_of_frames(tuple(Frame(name, file, 9) for name, file in frames)).kind


@pytest.mark.parametrize(
    ("wanted", "frames"),
    [
        ("device-sync", [("sched_yield", "libc.so"), ("cudaLaunchKernel", "libcudart.so.12")]),
        ("device-sync", [("aclrtSynchronizeStreamWithTimeout", "libascendcl.so")]),
        ("device-sync", [("zeEventHostSynchronize", "libze_loader.so.1")]),
        ("init", [("usleep", "libc.so"), ("pncclCommInitRankConfig", "libnccl.so.2")]),
        ("init", [("bootstrapNetAccept", "bootstrap.cc")]),
        ("init", [("c10d::ProcessGroupNCCL::initNCCLComm", "libtorch_cuda.so")]),
        ("collective", [("pncclAllReduce", "libnccl.so.2")]),
        ("collective", [("HcclAllReduce", "libhccl.so")]),
        ("collective", [("nvshmemx_barrier_all_on_stream", "libnvshmem_host.so.3")]),
        ("collective", [("ccl_executor::wait", "libccl.so.1")]),
        ("collective", [("internode_dispatch", "deep_ep/buffer.py")]),
        (
            "collective",
            [("_communicate", "megatron/core/pipeline_parallel/p2p_communication.py")],
        ),
        ("network", [("ucp_worker_progress", "libucp.so.0")]),
        ("network", [("retrieve", "lmcache/v1/cache_engine.py")]),
        ("idle", [("get", "queue.py"), ("_process_input_queue", "vllm/v1/engine/core.py")]),
        ("process", [("poll", "zmq/poll.py"), ("wait_for_engine_startup", "vllm/v1/utils.py")]),
    ],
)
def test_frames_of_the_world(wanted: str, frames: list[tuple[str, str]]) -> None:
    """What they mean, whatever lies further in."""
    assert kind(*frames) == wanted


def test_the_same_queue_means_two_things() -> None:
    """An engine that waits for an answer is not idle; a worker that waits for orders is."""
    queue = ("dequeue", "vllm/distributed/device_communicators/shm_broadcast.py")
    executor = "vllm/v1/executor/multiproc_executor.py"
    assert kind(queue, ("get_response", executor)) == "process"
    assert kind(queue, ("worker_busy_loop", executor)) == "idle"


def test_an_engine_alone_is_told_as_what_it_is() -> None:
    """There are stacks: it would be false to say that there are none."""
    report = verdict(ENGINE)
    assert report.status == "insufficient"
    assert "process 280 is waiting for a worker's answer" in report.summary


def test_a_thread_beside_the_main_one_accuses_nobody() -> None:
    """Of a process whose main thread is not in the paste nothing is known."""
    assert verdict(WAITS + HELPER).status == "insufficient"
    whole = HELPER.replace("run (threading", "main (train").replace("_bootstrap", "start")
    assert verdict(WAITS + whole).status == "problem"


def test_a_workers_title_tells_where_it_is() -> None:
    """Two coordinates make no rank; they are said beside the process."""
    text = WAITS.replace("python train.py", "sglang::scheduler_PP2_TP1")
    assert "process 4001 (PP2 TP1) is waiting in all_reduce" in verdict(text).summary


def test_gdb_gives_types_where_it_has_no_symbols() -> None:
    """They are no part of the name."""
    text = (
        "Thread 1 (LWP 7):\n"
        "#0  0x00007f in c10d::NCCLComm::create(int, int, ncclUniqueId) () from /x/libtorch.so\n"
        "#1  0x00007f in std::function<void (int)>::operator()(int) const (this=0x1) at f.h:9\n"
    )
    frames = parse_stacks(text.encode(), "x").samples[0].threads[0].frames
    assert [frame.function for frame in frames] == [
        "c10d::NCCLComm::create",
        "std::function<void (int)>::operator()(int) const",
    ]


PYTEST_TIMEOUT = """\
+++++++++++++++++++++ Timeout +++++++++++++++++++++
~~~~~~~~~~~~~~ Stack of IO loop (1401308) ~~~~~~~~~~~~~~
  File "/usr/lib64/python3.6/threading.py", line 884, in _bootstrap
    self._bootstrap_inner()
  File "/home/user/utils.py", line 428, in run_loop
    loop.start()
~~~~~~~~~~~~~~ Stack of MainThread (1401307) ~~~~~~~~~~~~~~
  File "/home/user/test_it.py", line 4, in test_it
    dist.barrier()
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 4159, in barrier
    work.wait()
"""
RECIPE = """\
# ThreadID: 1401307
File: "/home/user/train.py", line 4, in main
  dist.barrier()
File: "/x/site-packages/torch/distributed/distributed_c10d.py", line 4159, in barrier
  work.wait()
"""


@pytest.mark.parametrize("text", [PYTEST_TIMEOUT, RECIPE])
def test_stacks_that_python_printed(text: str) -> None:
    """The innermost frame stands last, and the main thread is the one that is judged."""
    assert "waiting in barrier" in verdict(text).summary


NO_HEADING = """\
  File "/x/torch/distributed/distributed_c10d.py", line 2050 in barrier
  File "/home/user/train.py", line 24 in main
"""
NO_FRAME_0 = """\
#10 0x00007f1a4dfb3609 in ?? () from /usr/lib/libnvinfer.so.10
#11 0x00007f1a9cf433a4 in tensorrt_llm::Runtime::step(std::vector<int,
std::allocator<int> > const&) () from
/home/user/libtensorrt_llm.so
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (NO_HEADING, "waiting in barrier at main (train.py:24)"),
        (NO_FRAME_0, "in tensorrt_llm::Runtime::step,"),
    ],
)
def test_a_stack_whose_beginning_is_cut_off(text: str, says: str) -> None:
    """Nobody copies all of it; long names are wrapped."""
    assert says in verdict(text).summary
