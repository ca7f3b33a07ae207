"""One text taken apart: what is a log, what are stacks, what RAS printed."""

from __future__ import annotations

import pytest

from unhang.pasted import paste_of
from unhang.pasted.slicing import LOG, RAS, STACKS, cleaned, parts_of

LOGGED = "[rank1]:[E810 03:04:11.061727749 ProcessGroupNCCL.cpp:683] [Rank 1] Watchdog caught"
PYSPY = """\
Process 300: VLLM::Worker_TP0
Python v3.12.3 (/usr/bin/python3.12)

Thread 300 (idle): "MainThread"
    poll (zmq/sugar/poll.py:106)
    worker_busy_loop (vllm/v1/executor/multiproc_executor.py:973)
"""
GDB = """\
Thread 1 (Thread 0x7f32517fd001 (LWP 4001) "python"):
#0  0x00001 in sched_yield () from /lib/libc.so.6
#1  0x00003 in cudaStreamSynchronize(CUstream_st*) ()
   from /lib/libcudart.so
"""
FAULTHANDLER = """\
Thread 0x00007ff406132180 (most recent call first):
  File "torch/distributed/distributed_c10d.py", line 2477 in barrier
  File "train.py", line 838 in main
"""
LLDB = """\
* thread #16, name = 'python', stop reason = signal SIGSTOP
  frame #0: 0x00007fb0b7f0792d libc.so.6`syscall + 29
"""
PYSTACK = """\
Traceback for thread 4002 (python) [] (most recent call last):
    (Python) File "/home/user/train.py", line 12, in main
    (C) File "???", line 0, in sem_wait (/lib/libc.so.6)
"""
BY_HAND = """\
DP0,3: broadcast (torch/distributed/distributed_c10d.py:2841)
DP1:   step (train.py:12)
"""
TRACEBACK = """\
Traceback (most recent call last):
  File "/home/user/train.py", line 340, in main
    loss.backward()
RuntimeError: CUDA out of memory
"""
OF_RAS = """\
NCCL version 2.28.3 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============
"""


def kinds(text: str) -> list[tuple[str, tuple[tuple[int, int], ...]]]:
    """Kinds and lines of the parts of a text."""
    return [(part.kind, part.spans) for part in parts_of(cleaned(text))]


@pytest.mark.parametrize("stack", [PYSPY, GDB, FAULTHANDLER, LLDB, PYSTACK, BY_HAND])
def test_a_stack_below_a_log_is_a_part_of_its_own(stack: str) -> None:
    """Whatever tool wrote it; lines keep their numbers."""
    last = 1 + stack.count("\n")
    assert kinds(f"{LOGGED}\n{stack}") == [(LOG, ((1, 1),)), (STACKS, ((2, last),))]
    assert kinds(f"{stack}{LOGGED}\n")[0] == (LOG, ((last, last),))


def test_a_traceback_is_of_the_log() -> None:
    """Python's tracebacks look much like faulthandler's frames, and mean an error."""
    assert kinds(TRACEBACK) == [(LOG, ((1, 4),))]


def test_c10s_frames_are_of_the_log() -> None:
    """They stand below an exception, and tell where it was made."""
    line = "frame #0: c10::Error::Error(c10::SourceLocation) + 0x57 (0x7f6 in /x/libc10.so)"
    assert kinds(f"{LOGGED}\n{line}\n") == [(LOG, ((1, 2),))]


def test_what_ras_printed_is_a_part_of_its_own() -> None:
    """Between a log and a stack."""
    found = dict(kinds(f"{LOGGED}\n{OF_RAS}\n{PYSPY}"))
    assert list(found) == [LOG, STACKS, RAS]
    assert found[RAS][0][0] == 2


@pytest.mark.parametrize(
    "wrapped",
    [
        "\n".join(f"> {line}" for line in PYSPY.splitlines()),
        f"```text\n{PYSPY}```",
        f"<details><summary>Stack</summary>\n\n<pre>{PYSPY}</pre></details>",
        PYSPY.replace('"', "&quot;").replace("    ", "\xa0\xa0\xa0\xa0"),
        "\n".join(f"# MAGIC {line}" for line in PYSPY.splitlines()),
        "\n".join(f"sglang-1  | {line}" for line in PYSPY.splitlines()),
        "\n".join(
            f"[2022-05-31T14:29:44.164170Z] dc5b74e6 [rank=0] || {line}"
            for line in PYSPY.splitlines()
        ),
    ],
)
def test_what_pages_and_launchers_put_around_a_stack_does_not_matter(wrapped: str) -> None:
    """The main thread is read."""
    samples = paste_of({"issue.md": wrapped.encode()}).case.samples
    assert [thread.name for sample in samples for thread in sample.threads] == ["MainThread"]
    assert len(samples[0].threads[0].frames) == 2


def test_a_heading_above_a_stack_tells_whose_it_is() -> None:
    """Whether it is in a fence or out of it."""
    stack = PYSPY.replace("VLLM::Worker_TP0", "python train.py")
    text = "\n".join(f"The stack for rank{n}:\n```\n{stack}```\n" for n in (0, 1))
    assert [sample.rank for sample in paste_of({"a": text.encode()}).case.samples] == [0, 1]
