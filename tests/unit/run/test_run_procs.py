"""How processes ended that are not our children, as far as the kernel tells."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from unhang.activity.looks import ProcessLook
from unhang.collect.processes import Process, ProcessTable, read_processes
from unhang.run.watching.procs import (
    exit_status,
    ray_tasks_s,
    reaped_status,
    work_of,
)
from unhang.run.watching.traffic import bytes_of, tcp_bytes


def tells_of_the_reaped() -> bool:
    """Whether this kernel keeps the exit status for holders of a pidfd (6.15)."""
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= (6, 15)


def test_the_status_can_be_read_until_it_is_waited_for_and_by_a_pidfd_after() -> None:
    """First /proc knows it, then only a descriptor that was opened before."""
    child = subprocess.Popen(["sleep", "1000"])
    descriptor = os.pidfd_open(child.pid)
    try:
        assert (exit_status(child.pid), reaped_status(descriptor)) == (None, None)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert exit_status(child.pid) == 128 + signal.SIGKILL
        child.wait()
        assert exit_status(child.pid) is None
        later = reaped_status(descriptor)
        assert later == (128 + signal.SIGKILL if tells_of_the_reaped() else None)
    finally:
        os.close(descriptor)


def test_what_rpc_polls_for_is_no_work_of_a_worker() -> None:
    """TensorPipe's reactor spins while a worker does nothing; it has a name of its own."""
    done, over = threading.Event(), threading.Event()

    def poll() -> None:
        Path("/proc/thread-self/comm").write_text("TP_SHM_reactor", encoding="ascii")
        while time.thread_time() < 0.3:
            pass
        done.set()
        over.wait()

    thread = threading.Thread(target=poll)
    before = work_of(os.getpid(), read_processes(), 0.0).cpu_s
    thread.start()
    try:
        done.wait()
        table = read_processes()
        spent = work_of(os.getpid(), table, 0.0).cpu_s - before
        own = work_of(os.getpid(), table, 0.0, rpc=True).cpu_s - before
        assert spent >= 0.25
        assert own <= spent - 0.25
    finally:
        over.set()
        thread.join()


def test_what_our_own_thread_does_is_no_work_of_the_program() -> None:
    """A thread burns and reads; without it, nothing was done meanwhile."""
    ready, done, over = (threading.Event() for _ in range(3))
    told: list[int] = []

    def burn() -> None:
        told.append(threading.get_native_id())
        ready.wait()
        while time.thread_time() < 0.3:
            Path(__file__).read_bytes()
        done.set()
        over.wait()

    thread = threading.Thread(target=burn, daemon=True)
    thread.start()
    pid = os.getpid()

    def seen(ours: int) -> ProcessLook:
        return work_of(pid, read_processes(), 0.0, ours)

    while not told:
        time.sleep(0.01)
    before = [seen(0), seen(told[0])]
    ready.set()
    done.wait()
    after = [seen(0), seen(told[0])]
    over.set()
    burnt, left = (late.cpu_s - early.cpu_s for early, late in zip(before, after, strict=True))
    assert burnt - left > 0.25
    read, rest = (late.moved - early.moved for early, late in zip(before, after, strict=True))
    assert read - rest > 0.5 * read


def test_who_prints_has_written_something() -> None:
    """Its main thread alone: what helpers write to wake each other says nothing of the program."""
    pipe = subprocess.PIPE
    code = "print('503, trying again', flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        # The kernel counts when the write has come back.
        while work_of(child.pid, read_processes(), 0.0).said != len(line):
            time.sleep(0.01)
        child.communicate("\n")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_what_is_received_from_sockets_is_counted(address: str) -> None:
    """recv(2) shows in no counter of the process."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    pid = os.getpid()
    with socket.create_server((address, 0), family=family) as server:
        near = socket.create_connection(server.getsockname()[:2])
        far, _ = server.accept()
    with near, far:
        before = work_of(pid, read_processes(), 0.0, sockets=tcp_bytes()).traffic
        far.sendall(bytes(100_000))
        got = 0
        while got < 100_000:
            got += len(near.recv(1 << 16))
        known = tcp_bytes()
        assert bytes_of([pid], known) >= 100_000
        assert work_of(pid, read_processes(), 0.0, sockets=known).traffic - before >= 100_000
    assert bytes_of([pid], {}) == 0


def test_tasks_of_ray_are_found_beside_the_rank_that_they_work_for() -> None:
    """Raylet's other children that name themselves after what they run; ranks are none."""
    table = ProcessTable.of(
        [
            Process(10, ppid=1, command="raylet"),
            Process(11, ppid=10, command="ray::TrainWorker.train", cpu_s=9.0),
            Process(12, ppid=10, command="ray::TrainWorker.train", cpu_s=9.0),
            Process(13, ppid=10, command="ray::preprocess", cpu_s=2.0),
            Process(14, ppid=13, command="tar xf shard.tar", cpu_s=0.5),
            Process(15, ppid=10, command="python dashboard_agent.py", cpu_s=5.0),
        ]
    )
    assert ray_tasks_s(11, table, {11, 12}) == 2.5
    assert ray_tasks_s(10, table, {11, 12}) == -1.0
    assert ray_tasks_s(99, table, {11, 12}) == -1.0
