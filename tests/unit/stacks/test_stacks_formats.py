from __future__ import annotations

import json

import pytest
from mutants import mutants

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.stacks.formats import format_of
from unhang.stacks.formats.saved import dump_samples
from unhang.stacks.reading import parse_stacks

PYSPY_TEXT = """\
Process 6937: python train.py --lr 1
Python v3.11.7 (/usr/bin/python3.11)

Thread 6937 (active+gil): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3245)
    main (train.py:88)
        Arguments:
            rank: 3
    <module> (train.py:90)
Thread 6941 (idle): "pin memory (x)"
    clock_nanosleep (libc.so.6)
    Event.wait (threading.py:629)
--------------------------------------------------------------------------------
Process 6950: python -c from multiprocessing.spawn import spawn_main
Python v3.11.7 (/usr/bin/python3.11)
Parent Process 6937: python train.py --lr 1

Thread 0x7F0B621AF6C0 (active)
    _worker_loop (torch/utils/data/_utils/worker.py:30)
"""

FAULTHANDLER = """\
Timeout (0:00:05)!
Thread 0x00007f44702fc6c0 (most recent call first):
  File "/home/user/job.py", line 2 in f
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f4470e44b80 (most recent call first):
  File "/home/user/job.py", line 5 in <module>
Fatal Python error: Segmentation fault

Current thread 0x00007f4470e44b80 [python] (most recent call first):
  File "/home/user/job.py", line ??? in g
  File "/home/user/job.py", line 6 in <module>

Current thread's C stack trace (most recent call first):
  Binary file "/usr/lib/libc.so.6", at raise+0x1 [0x7f]
"""

PYSTACK = """\
Traceback for thread 6941 (python) [] (most recent call last):
    (Python) File "/usr/lib/python3.11/threading.py", line 1002, in _bootstrap
        self._bootstrap_inner()
    (Python) File "/home/user/victim.py", line 4, in worker
        else: ev.wait()

Traceback for thread 6938 (python) [Garbage collecting,Has the GIL] (most recent call last):
    (C) File "Python/pythonrun.c", line 1710, in run_eval_code_obj (inlined) (/usr/lib/libpython.so)
    (Python) File "/home/user/victim.py", line 9, in hold
        ctypes.PyDLL(None).sleep(300)
    (C) File "???", line 0, in ffi_call (/usr/lib/libffi.so.8)
"""

GDB = """\
[New LWP 6941]
0x00007f0b624ed545 in __GI___clock_nanosleep () at clock_nanosleep.c:48
48	clock_nanosleep.c: No such file or directory.

Thread 2 (Thread 0x7f0b621af6c0 (LWP 6941) "pt_autograd_0"):
#0  0x00007f0b624a3f7b in std::function<void (int)>::operator()(int) const (this=0x1, s="a)") at \
./a.cc:139
#1  0x00007f in ncclAllReduce () from /usr/lib/libnccl.so.2
#2  <signal handler called>

Thread 1 (LWP 6937):
#0  time_sleep (self=<optimized out>,
    timeout=<optimized out>) at ./Modules/timemodule.c:383
"""


def only(text: str) -> ProcessSample:
    """The single sample of a text, by the format that claims it."""
    known = format_of(text)
    assert known is not None
    (sample,) = known.parse(text)
    return sample


def test_pyspy_text_keeps_frames_threads_and_processes() -> None:
    """Locals are left out, a native frame has no line, each process is a sample of its own."""
    known = format_of(PYSPY_TEXT)
    assert known is not None
    rank, worker = known.parse(PYSPY_TEXT)
    assert (rank.pid, rank.command, rank.tool) == (6937, "python train.py --lr 1", "py-spy")
    assert rank.threads == (
        ThreadStack(
            name="MainThread",
            tid=6937,
            frames=(
                Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3245),
                Frame("main", "train.py", 88),
                Frame("<module>", "train.py", 90),
            ),
            is_main=True,
            holds_gil=True,
            active=True,
        ),
        ThreadStack(
            name="pin memory (x)",
            tid=6941,
            frames=(
                Frame("clock_nanosleep", "libc.so.6", 0),
                Frame("Event.wait", "threading.py", 629),
            ),
            holds_gil=None,
            active=False,
            native=True,
        ),
    )
    assert worker.pid == 6950
    assert worker.threads[0].holds_gil is False


def test_pyspy_json_tells_who_holds_the_gil() -> None:
    """The JSON form says "owns_gil" of idle threads too; several arrays may follow each other."""
    thread = {
        "pid": 7,
        "thread_id": 140,
        "thread_name": "MainThread",
        "os_thread_id": 7,
        "active": False,
        "owns_gil": True,
        "frames": [{"name": "hold", "filename": "/home/user/v.py", "line": 9, "locals": None}],
        "process_info": None,
    }
    other = {**thread, "pid": 8, "os_thread_id": 9, "thread_name": None, "owns_gil": False}
    text = json.dumps([thread], indent=2) + "\n" + json.dumps([other])
    known = format_of(text)
    assert known is not None
    first, second = known.parse(text)
    assert first.threads == (
        ThreadStack(
            "MainThread",
            7,
            (Frame("hold", "/home/user/v.py", 9),),
            is_main=True,
            holds_gil=True,
            active=False,
        ),
    )
    assert (second.pid, second.threads[0].tid, second.threads[0].is_main) == (8, 9, False)


def test_faulthandler_numbers_repeated_dumps_and_finds_the_main_thread() -> None:
    """Every "Timeout" is a look of its own; a fatal error is kept; C stacks are no threads."""
    known = format_of(FAULTHANDLER)
    assert known is not None
    first, second = known.parse(FAULTHANDLER)
    assert [t.is_main for t in first.threads] == [True, False]
    assert first.threads[0].frames == (Frame("<module>", "/home/user/job.py", 5),)
    assert (second.sample, second.error) == (1, "Fatal Python error: Segmentation fault")
    assert len(second.threads) == 1
    assert second.threads[0].frames[0] == Frame("g", "/home/user/job.py", 0)


def test_pystack_is_turned_innermost_first() -> None:
    """The thread that is not begun by `threading` is the main one; the GIL's holder is told."""
    sample = only(PYSTACK)
    main, worker = sample.threads
    assert (main.tid, main.is_main, main.holds_gil, main.native) == (6938, True, True, True)
    assert main.frames == (
        Frame("ffi_call", "/usr/lib/libffi.so.8", 0),
        Frame("hold", "/home/user/victim.py", 9),
        Frame("run_eval_code_obj", "Python/pythonrun.c", 1710),
    )
    assert (worker.holds_gil, worker.native) == (False, False)
    assert worker.frames[0] == Frame("worker", "/home/user/victim.py", 4)


def test_gdb_names_end_before_their_arguments() -> None:
    """C++ names with brackets survive, wrapped lines are joined, libraries stand for files."""
    sample = only(GDB)
    assert sample.pid == 6937
    main, autograd = sample.threads
    assert main.frames == (Frame("time_sleep", "./Modules/timemodule.c", 383),)
    assert (autograd.name, autograd.native) == ("pt_autograd_0", True)
    assert [f.function for f in autograd.frames] == [
        "std::function<void (int)>::operator()(int) const",
        "ncclAllReduce",
        "<signal handler called>",
    ]
    assert [f.file for f in autograd.frames] == ["./a.cc", "/usr/lib/libnccl.so.2", ""]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "Error: Failed to get process executable name.\n\nCaused by:\n    0: No such file\n",
            "Failed to get process executable name.",
        ),
        ("💀 Engine error: Operation not permitted 💀\n", "Engine error: Operation not permitted"),
        ("ptrace: Operation not permitted.\n", "ptrace: Operation not permitted."),
    ],
)
def test_a_samplers_complaint_is_kept_as_such(text: str, error: str) -> None:
    """A rank whose stack could not be taken is a sample without threads, with the reason."""
    sample = only(text)
    assert (sample.threads, sample.error) == ((), error)


@pytest.mark.parametrize("text", ["", "hello\nworld", "[]x", "{}", "[1, 2]", "step 1 loss 0.3"])
def test_other_text_is_not_claimed(text: str) -> None:
    """Logs, empty files and foreign JSON are nobody's; `[]` is an empty answer of py-spy."""
    known = format_of(text)
    assert known is None or text.startswith("[]")


def test_mutants_of_every_format_are_read_or_left_out() -> None:
    """Nothing is raised, and what is read can be judged."""
    own = dump_samples([ProcessSample(0, "node01", 1)])
    for number, text in enumerate((PYSPY_TEXT, FAULTHANDLER, PYSTACK, GDB, own)):
        for data in mutants(text.encode(), 30, number):
            reading = parse_stacks(data, "saved")
            diagnose(Case(samples=reading.samples, notes=reading.notes))
