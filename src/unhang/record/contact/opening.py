"""Opens what others may learn from, and ask, a process through: heartbeat, socket, worker server.

Each part can fail by itself; `arm` notes the failure, and the job goes on without that part.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from time import time

from unhang.rankenv import neighbours_of
from unhang.record import process
from unhang.record.calls.recorder import Recorder
from unhang.record.contact import marks, worker
from unhang.record.contact.beat import Beat
from unhang.record.contact.triggers import TriggerThread
from unhang.record.crash import CrashWatch
from unhang.record.headroom import few_threads


def open_heartbeat(recorder: Recorder) -> None:
    """Beat into a file from now on.

    Raises:
        OSError: It cannot be made.
    """
    state = recorder.state
    path = state.private_path("beat")
    if path is not None:
        path.unlink(missing_ok=True)  # of a process of this pid that is no more
        state.beat = Beat(path, pid=state.pid, start_ticks=marks.start_ticks())
        recorder.beat = state.beat


def open_socket(recorder: Recorder) -> TriggerThread | None:
    """Listen on the trigger socket and the pipe; None without a runtime directory.

    Raises:
        OSError: One of them cannot be made.
        RuntimeError: There is no room for a thread.
    """
    state = recorder.state
    socket_path, fifo_path = state.private_path("sock"), state.private_path("fifo")
    if socket_path is None or fifo_path is None:
        return None
    watcher = TriggerThread(recorder, None if state.limited else (socket_path, fifo_path))
    watcher.start()
    if not state.limited:
        state.socket, state.fifo = str(socket_path), str(fifo_path)
    if process.env_local_rank() in (None, 0) and state.directory is not None:
        root = state.directory.parent
        watcher.later(lambda: _tidy(root))
    return watcher


def _tidy(root: Path) -> None:
    """One process of a node removes what jobs of other days have left."""
    marks.remove_stale_jobs(root, time())


def open_faults(recorder: Recorder, crash: CrashWatch) -> None:
    """Let fatal signals write all stacks into a file, unless the job has its own faulthandler.

    Raises:
        OSError: The file cannot be made.
    """
    path = recorder.state.private_path("faults")
    if path is not None:
        recorder.state.faults = crash.enable_faulthandler(path)


def open_worker(recorder: Recorder) -> None:
    """Start torch's worker server, where this torch has one and there is room for its threads."""
    state = recorder.state
    path = state.private_path("http")
    if path is None or state.worker_socket:
        return
    if few := few_threads(len(neighbours_of(os.environ))):
        state.failures.add(f"torch's worker server is not started: {few}")
    elif worker.start(path):
        state.worker_socket = str(path)


def take_signal(recorder: Recorder, crash: CrashWatch, watcher: TriggerThread) -> None:
    """Take the signal that UNHANG_SIGNAL names, if it names one."""
    number = recorder.state.settings.signal
    if not number or watcher.signal_fd < 0:
        return
    if threading.current_thread() is not threading.main_thread():
        recorder.state.failures.add("UNHANG_SIGNAL: not armed in the main thread")
        return
    problem = crash.take_signal(number, watcher.signal_fd)
    if problem:
        recorder.state.failures.add("UNHANG_SIGNAL", problem)
