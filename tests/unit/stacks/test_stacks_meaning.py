from __future__ import annotations

from dataclasses import replace

import pytest

from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.stacks.meaning import (
    Meaning,
    awaited_thread,
    main_thread,
    meaning_of,
    meaning_of_frames,
    thread_matters,
)
from unhang.stacks.ownership import is_library, is_native, shown_frame, user_frame
from unhang.stacks.roles import role_of_stack
from unhang.stacks.rules import CHANNELS, FALLBACKS, IDLE, KINDS, RULES

SITE = "/opt/venv/lib/python3.11/site-packages"
STDLIB = "/usr/lib/python3.11"
TRAIN = Frame("train", "/home/user/train.py", 88)
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
LOADER = f"{SITE}/torch/utils/data/dataloader.py"


def process(
    *frames: Frame, state: str = "S", wait_channel: str = "", **thread: object
) -> ProcessSample:
    """A process with just a main thread."""
    stack = ThreadStack("MainThread", 1, tuple(frames), is_main=True, **thread)  # type: ignore[arg-type]  # fields of ThreadStack
    return ProcessSample(3, "node01", 1, (stack,), state=state, wait_channel=wait_channel)


@pytest.mark.parametrize(
    ("frames", "kind", "says"),
    [
        ([Frame("all_reduce", C10D, 3245), TRAIN], "collective", "waiting in all_reduce"),
        ([Frame("barrier", "torch/distributed/distributed_c10d.py", 1)], "collective",
         "waiting in barrier"),
        ([Frame("get", f"{SITE}/ray/_private/worker.py", 3009),
          Frame("TrainContext._sync_checkpoint_dir_name_across_ranks",
                f"{SITE}/ray/train/v2/_internal/execution/context.py", 254), TRAIN],
         "collective", "waiting for all ranks in ray.train.report"),
        ([Frame("get", f"{SITE}/ray/_private/worker.py", 3009), TRAIN], "process",
         "waiting for tasks or actors of Ray (get)"),
        ([Frame("new_group", C10D, 9)], "init", "setting up process groups (new_group)"),
        ([Frame("destroy_process_group", C10D, 9)], "teardown", "destroying its process group"),
        ([Frame("Thread.join", f"{STDLIB}/threading.py", 1119),
          Frame("Queue._finalize_join", f"{STDLIB}/multiprocessing/queues.py", 199),
          Frame("_exit_function", f"{STDLIB}/multiprocessing/util.py", 360)], "teardown",
         "waiting at its exit for a reader of a multiprocessing queue (_finalize_join)"),
        ([Frame("Event.wait", f"{STDLIB}/threading.py", 629),
          Frame("_MultiProcessingDataLoaderIter._try_get_data", LOADER, 5), TRAIN],
         "data-loader", "waiting for data (_try_get_data)"),
        ([Frame("FakeLoader.__next__", "/home/user/data.py", 31), TRAIN], "data-loader",
         "waiting for data (__next__)"),
        ([Frame("ncclAllReduce", "/usr/lib/libnccl.so.2", 0), TRAIN], "collective",
         "waiting in ncclAllReduce"),
        ([Frame("cudaStreamSynchronize", "/usr/lib/libcudart.so", 0), TRAIN], "device-sync",
         "waiting for its device (cudaStreamSynchronize)"),
        ([Frame("synchronize", f"{SITE}/torch/cuda/__init__.py", 0), TRAIN], "device-sync",
         "waiting for its device (synchronize)"),
        ([Frame("wait", f"{SITE}/torch/utils/file_baton.py", 42), TRAIN], "compilation",
         "waiting for another process's build of an extension (a stale lock file?)"),
        ([Frame("interaction", f"{STDLIB}/pdb.py", 1), TRAIN], "prompt",
         "waiting at a debugger's prompt"),
        ([Frame("Condition.wait", f"{STDLIB}/threading.py", 327), TRAIN], "lock",
         "waiting for a lock or an event"),
        ([Frame("Popen._wait", f"{STDLIB}/subprocess.py", 1), TRAIN], "process",
         "waiting for a child process (_wait)"),
        ([Frame("SSLSocket.read", f"{STDLIB}/ssl.py", 1), Frame("get", f"{SITE}/s3fs/core.py", 1)],
         "file-system", "reading or writing remote storage (get)"),
        ([Frame("take_gil", "Python/ceval_gil.h", 1), TRAIN], "gil", "waiting for the GIL"),
        ([TRAIN], "user-code", "in user code"),
        ([], "unknown", "without a Python frame"),
        ([Frame("mystery", "/usr/lib/libfoo.so", 0)], "native", "in mystery"),
    ],
)  # fmt: skip
def test_frames_have_meanings(frames: list[Frame], kind: str, says: str) -> None:
    """The innermost frame that the table knows decides; bare waiting is the last resort."""
    meaning = meaning_of_frames(tuple(frames))
    assert (meaning.kind, meaning.says) == (kind, says)


def test_a_collective_within_a_checkpoint_says_both() -> None:
    """What it waits in comes first, what that is part of second, and the user's own line."""
    save = Frame("save", f"{SITE}/torch/distributed/checkpoint/state_dict_saver.py", 7)
    gather = Frame("all_gather_object", C10D, 9)
    assert meaning_of_frames((gather, save, TRAIN)) == Meaning(
        "collective",
        "waiting in all_gather_object",
        op="all_gather_object",
        frame=gather,
        site=TRAIN,
        within="saving or loading a checkpoint (save)",
    )


def test_an_evaluation_is_told_as_what_it_is() -> None:
    """By the name of the program's function, or of a framework's, around what is seen."""
    forward = Frame("forward", "/job/model.py", 9)
    library = Frame("linear", "/usr/lib/python3/site-packages/torch/nn/functional.py", 2)
    loop = Frame("evaluation_loop", "/usr/lib/python3/site-packages/transformers/trainer.py", 4000)
    meaning = meaning_of_frames((library, forward, Frame("evaluate", "/job/train.py", 5), TRAIN))
    assert (meaning.kind, meaning.within) == ("user-code", "evaluating (evaluate)")
    meaning = meaning_of_frames((library, forward, loop, TRAIN))
    assert meaning.within == "evaluating (evaluation_loop)"
    assert meaning_of_frames((library, forward, TRAIN)).within == ""


def test_user_code_called_by_a_library_is_user_code() -> None:
    """A hook that hangs inside backward is the user's; a data set's code stays the loader's."""
    hook = Frame("hook", "/home/user/hooks.py", 3)
    backward = Frame("_engine_run_backward", f"{SITE}/torch/autograd/graph.py", 1)
    assert meaning_of_frames((hook, backward, TRAIN)).within == "in the backward pass"
    assert meaning_of_frames((hook, backward, TRAIN)).kind == "user-code"
    fetch = Frame("fetch", f"{SITE}/torch/utils/data/_utils/fetch.py", 1)
    read = Frame("read", "/home/user/data.py", 31)
    meaning = meaning_of_frames((read, fetch, TRAIN))
    assert (meaning.kind, meaning.site) == ("data-loader", read)


@pytest.mark.parametrize(
    ("sample", "kind", "part"),
    [
        (process(TRAIN, state="T"), "stopped", "stopped by a signal"),
        (process(TRAIN, state="Z"), "dead", "zombie"),
        (process(TRAIN, state="D", wait_channel="nfs_wait_bit"), "uninterruptible", "NFS"),
        (process(TRAIN, state="D"), "uninterruptible", "unknown wait channel"),
        (process(TRAIN, wait_channel="hrtimer_nanosleep"), "sleep", "sleeping"),
        (process(TRAIN, wait_channel="futex_wait_queue"), "lock", "native code"),
        (process(TRAIN, state="R"), "user-code", "running"),
        (process(TRAIN, holds_gil=True, active=False), "gil", "holding the GIL in native code"),
        (process(TRAIN, holds_gil=True, active=True), "user-code", "in user code"),
        (process(TRAIN, holds_gil=True), "user-code", "in user code"),
        (ProcessSample(3, "node01", 1, error="no permission"), "unknown", "no permission"),
    ],
)  # fmt: skip
def test_state_kernel_and_gil_say_what_frames_cannot(
    sample: ProcessSample, kind: str, part: str
) -> None:
    """A stopped process is stopped, whatever its frames; the kernel tells sleep from a lock."""
    meaning = meaning_of(sample)
    assert meaning.kind == kind
    assert part in meaning.says


def test_who_waits_for_the_gil_names_its_holder() -> None:
    """The main thread is held up by the thread that keeps the GIL in C."""
    holder = ThreadStack(
        "writer", 2, (Frame("flush", "/home/user/w.py", 5),), holds_gil=True, active=False
    )
    main = ThreadStack("MainThread", 1, (TRAIN,), is_main=True, holds_gil=False)
    meaning = meaning_of(ProcessSample(0, "node01", 1, (main, holder)))
    assert meaning.says == "waiting for the GIL, which thread writer holds in flush"
    assert meaning.site == TRAIN


def test_helper_threads_that_wait_do_not_matter() -> None:
    """A pin-memory thread waits for work; one in a collective, or with the GIL, is worth a line."""
    pin = Frame("_pin_memory_loop", f"{SITE}/torch/utils/data/_utils/pin_memory.py", 1)
    wait = Frame("wait", f"{STDLIB}/threading.py", 1)
    assert not thread_matters(ThreadStack("pin", 2, (wait, pin)))
    assert thread_matters(ThreadStack("pin", 2, (wait, pin), holds_gil=True))
    assert not thread_matters(ThreadStack("t", 2, (wait, TRAIN)))
    assert thread_matters(ThreadStack("t", 2, (Frame("broadcast", C10D, 1), TRAIN)))
    assert thread_matters(ThreadStack("MainThread", 1, (), is_main=True))


def test_the_main_thread_is_found() -> None:
    """The marked one, or a single one; of several unmarked ones without a frame none."""
    one, two = ThreadStack("a", 1, ()), ThreadStack("b", 2, ())
    main = ThreadStack("m", 3, (), is_main=True)
    assert main_thread(ProcessSample(0, "", 1, (one, main))) == main
    assert main_thread(ProcessSample(0, "", 1, (one,))) == one
    assert main_thread(ProcessSample(0, "", 1, (one, two))) is None


def test_the_thread_whose_result_is_waited_for_is_found() -> None:
    """As that of an asynchronous checkpoint; of several that may be meant, none."""
    waits = (
        Frame("Condition.wait", "/usr/lib/python3.11/threading.py", 327),
        Frame("Future.result", "/usr/lib/python3.11/concurrent/futures/_base.py", 451),
        TRAIN,
    )
    main = ThreadStack("MainThread", 1, waits, is_main=True)
    writes = ThreadStack("AsyncCheckpointExecutor_0", 2, (waits[0], TRAIN))
    idle = ThreadStack("pool_0", 3, waits[:1])
    assert awaited_thread(ProcessSample(0, "", 1, (main, writes, idle))) == writes
    assert main_thread(ProcessSample(0, "", 1, (main, writes, idle))) == main
    assert awaited_thread(ProcessSample(0, "", 1, (main, writes, replace(writes, tid=4)))) is None
    assert awaited_thread(ProcessSample(0, "", 1, (replace(main, frames=(TRAIN,)), writes))) is None


def test_a_thread_that_the_end_of_the_program_waits_for_is_told_as_that() -> None:
    """As an uploader that is no daemon, when the rank's `main` has returned."""
    gets = (
        Frame("Condition.wait", f"{STDLIB}/threading.py", 327),
        Frame("Queue.get", f"{STDLIB}/queue.py", 171),
        TRAIN,
    )
    left = ThreadStack("uploader", 2, gets)
    ends = ThreadStack("MainThread", 1, (Frame("_shutdown", f"{STDLIB}/threading.py", 1590),))
    ends = replace(ends, is_main=True)
    says = "waiting for a lock or an event"
    told = meaning_of(ProcessSample(0, "", 1, (ends, left)))
    assert (told.says, told.site) == (f"{says} in a thread that outlives its program", TRAIN)
    joins = replace(ends, frames=(Frame("Thread.join", f"{STDLIB}/threading.py", 1112), TRAIN))
    assert meaning_of(ProcessSample(0, "", 1, (joins, left))).says == says


def test_every_rule_is_of_a_kind_that_is_documented() -> None:
    """The table is open, its kinds are not; a rule says by what it knows a frame."""
    for rule in (*RULES, *FALLBACKS, *IDLE):
        assert rule.kind in KINDS
        assert rule.paths or rule.native or rule.names
    assert {kind for _, kind, _ in CHANNELS} <= set(KINDS)


@pytest.mark.parametrize(
    ("path", "library"),
    [
        ("/src/unhang/record/wrap.py", True),
        (f"{SITE}/numpy/core.py", True),
        (f"{STDLIB}/threading.py", True),
        ("/usr/lib/python3/dist-packages/yaml.py", True),
        ("threading.py", True),
        ("multiprocessing/spawn.py", True),
        ("torch/nn/modules/module.py", True),
        ("<frozen runpy>", True),
        ("libc.so.6", True),
        ("./Modules/timemodule.c", True),
        ("/home/user/src/unhang/record/wrap.py", True),
        ("/home/user/pytorch/torch/distributed/distributed_c10d.py", True),
        ("/home/user/torch/train.py", False),
        ("/home/user/train.py", False),
        ("train.py", False),
        ("myproject/torch.py", False),
        ("<ipython-input-1>", False),
    ],
)
def test_whose_code_it_is(path: str, library: bool) -> None:  # noqa: FBT001 - a table of expectations
    """With or without directories, the interpreter's and installed code is told from the user's."""
    assert is_library(Frame("f", path, 1)) is library


def test_our_recorder_is_no_place_to_show() -> None:
    """A thread of torch's alone has no frame of the user's: then its own is shown."""
    ours = Frame("allgather", "/opt/unhang/record/calls/wrap.py", 266)
    torchs = Frame("all_gather", "torch/distributed/distributed_c10d.py", 4280)
    assert shown_frame([ours, torchs]) == torchs
    assert shown_frame([ours]) == ours
    assert shown_frame([]) is None


def test_the_users_frame_is_the_innermost_of_their_own() -> None:
    """Library frames around it do not count; native frames are never the user's."""
    assert (
        user_frame((Frame("all_reduce", C10D, 1), TRAIN, Frame("main", "/home/user/m.py", 2)))
        == TRAIN
    )
    assert user_frame((Frame("f", "libc.so.6", 0),)) is None
    assert is_native(Frame("f", "", 0))


@pytest.mark.parametrize(
    ("frame", "role"),
    [
        (Frame("launch_agent", f"{SITE}/torch/distributed/launcher/api.py", 7), "launcher"),
        (Frame("_worker_loop", "torch/utils/data/_utils/worker.py", 30), "data-loader"),
        (Frame("main", f"{STDLIB}/multiprocessing/resource_tracker.py", 1), "helper"),
        (TRAIN, "unknown"),
    ],
)
def test_a_stack_gives_its_process_away(frame: Frame, role: str) -> None:
    """Launchers and loaders are told from ranks by their outer frames."""
    assert role_of_stack(process(TRAIN, frame)) == role
