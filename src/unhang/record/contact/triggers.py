"""The recorder's thread: listens on a socket and a pipe, and beats once a second.

Descriptors are the job's: the pipe that others write to wakes the thread as well, and where few are
left the thread only beats.

Both are of mode 0600 in a directory of mode 0700, and the socket checks its peer's user id too.
Requests are small, one a line; the protocol is in docs/recorder.md. Whatever a peer sends, the
worst it can get is a reply that says no.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from unhang.record.calls import rpc
from unhang.record.calls.groups import channels, named, note_groups
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.sites import line_of, main_site, program_frames
from unhang.record.contact import sockets
from unhang.record.contact.beatlayout import TICK_S, GroupBeat, Word
from unhang.record.contact.runtime_dir import safe_name
from unhang.record.dumps import torchfr
from unhang.record.dumps.dumpfile import THREAD_NAME
from unhang.record.dumps.taking import REASONS, TakenDumps, take
from unhang.record.unsignalled import unsignalled

MAX_REQUEST_BYTES: Final = 64 * 1024
PEER_TIMEOUT_S: Final = 2.0
REPLY_TIMEOUT_S: Final = 10.0
_WAKE: Final = b"\0"


class TriggerThread:
    """The thread and its file descriptors; one a process."""

    def __init__(self, recorder: Recorder, paths: tuple[Path, Path] | None) -> None:
        """Open socket and pipe.

        Args:
            recorder: Ours.
            paths: Of socket and pipe; None to open nothing and only beat.

        Raises:
            OSError: One of them cannot be made.
        """
        self.recorder = recorder
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._last: TakenDumps | None = None
        self._news = threading.Event()
        self._listener: socket.socket | None = None
        self._fifo = self._signal_read = self._signal_write = -1
        if paths is not None:
            self._open(*paths)
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

    def _open(self, socket_path: Path, fifo_path: Path) -> None:
        try:
            self._listener = _listen(socket_path)
            self._fifo = _open_fifo(fifo_path)
            if self.recorder.state.settings.signal:
                pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
                self._signal_read, self._signal_write = pipe
        except OSError:
            self.close()
            raise

    def start(self) -> None:
        """Begin to listen.

        Raises:
            RuntimeError: There is no room for a thread; the descriptors are closed again.
        """
        try:
            with unsignalled():
                self._thread.start()
        except RuntimeError:
            self.close()
            raise

    @property
    def signal_fd(self) -> int:
        """A descriptor that takes the numbers of signals; -1 where none was asked for."""
        return self._signal_write

    def later(self, job: Callable[[], None]) -> None:
        """Run something in the thread."""
        self._jobs.put(job)
        self._news.set()
        if self._fifo >= 0:
            with contextlib.suppress(OSError):
                os.write(self._fifo, _WAKE)

    def stop(self, wait_s: float) -> None:
        """Let the thread finish what it was asked for, for at most `wait_s` seconds, and end."""
        self._stopping = True
        self.later(lambda: None)
        self._thread.join(wait_s)

    def close(self) -> None:
        """Let go of the descriptors (after fork: the thread is not here, and they are shared)."""
        if self._listener is not None:
            self._listener.close()
        for descriptor in (self._fifo, self._signal_read, self._signal_write):
            if descriptor >= 0:
                os.close(descriptor)
        self._listener = None
        self._fifo = self._signal_read = self._signal_write = -1

    # -------------------------------------------------------------- the thread

    def _run(self) -> None:
        self.recorder.beat.set(Word.THREAD, threading.get_native_id())
        poll = select.poll()
        # Questions come last: their answers tell of what was triggered before them.
        listening = self._listener.fileno() if self._listener is not None else -1
        descriptors = [fd for fd in (self._signal_read, self._fifo, listening) if fd >= 0]
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor in self._ready(poll, descriptors):
                self._guarded(lambda fd=descriptor: self._serve(fd))  # type: ignore[misc]
            while not self._jobs.empty():
                self._guarded(self._jobs.get())
            self._guarded(self.tick)
            if self._stopping:
                return

    def _ready(self, poll: select.poll, descriptors: list[int]) -> list[int]:
        """Wait for something to do, for one tick at most."""
        if not descriptors:
            self._news.wait(TICK_S)
            self._news.clear()
            return []
        ready = {descriptor for descriptor, _ in poll.poll(TICK_S * 1000)}
        return [descriptor for descriptor in descriptors if descriptor in ready]

    def _guarded(self, work: Callable[[], None]) -> None:
        """The thread outlives whatever happens in it."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - reported, and the job goes on
            self.recorder.state.failures.add("recorder's thread", error)

    def _serve(self, descriptor: int) -> None:
        if descriptor == self._signal_read:
            self._signalled(os.read(descriptor, 512))
        elif descriptor == self._fifo:
            self._piped(os.read(descriptor, 4096).replace(_WAKE, b""))
        elif self._listener is not None:
            connection, _ = self._listener.accept()
            with connection:
                self._talk(connection)

    def tick(self) -> None:
        """Beat: counters of all groups, from torch's recorders and from ours."""
        beats: list[GroupBeat] = []
        for source in torchfr.recorders(hooked=self.recorder.state.hooked):
            beats += named(torchfr.counters(source), self.recorder.state)
        beats += [
            GroupBeat(
                "unhang",
                channel.pg_id,
                channel.last_enqueued,
                -1,
                channel.last_completed,
                channel.name,
                channel.description,
            )
            for channel in channels()
            if channel.last_enqueued >= 0
        ]
        if (asked := rpc.counts())[0]:  # no group; but waits that begin and end
            beats.append(GroupBeat("other", 0, asked[0], -1, asked[1]))
        self.recorder.followed.ask_all()
        ring = self.recorder.state.ring
        self.recorder.beat.tick(beats, ring.total, ring.dropped)
        innermost, site = program_frames()
        if site is not None:
            self.recorder.beat.seen(site, innermost)

    def _signalled(self, data: bytes) -> None:
        number = self.recorder.state.settings.signal
        if number and number in data:
            take(self.recorder, "signal").add_stacks(self.recorder)

    def _piped(self, data: bytes) -> None:
        """A line names the incident; an empty one lets us name it."""
        if not data:
            return
        line = data.decode("utf-8", "replace").splitlines()[0] if data.strip() else ""
        incident = safe_name(line) if line else ""
        take(self.recorder, "pipe", incident=incident).add_stacks(self.recorder)

    # -------------------------------------------------------------- the socket

    def _talk(self, connection: socket.socket) -> None:
        if sockets.peer_uid(connection) not in (0, os.geteuid()):
            return
        connection.settimeout(PEER_TIMEOUT_S)
        request = _read_request(connection)
        connection.settimeout(REPLY_TIMEOUT_S)
        for reply in self._answers(request):
            if isinstance(request, dict) and "id" in request:
                reply["id"] = request["id"]
            connection.sendall(json.dumps(reply).encode() + b"\n")

    def _answers(self, request: object) -> Any:  # noqa: ANN401 - an iterator of replies
        asked = request.get("do") if isinstance(request, dict) else None
        if asked == "ping":
            state = self.recorder.state
            yield {"ok": True, "pid": state.pid, "rank": state.rank}
        elif asked == "status":
            yield self.status()
        elif asked == "dump" and isinstance(request, dict):
            yield from self._dump(request)
        elif asked == "stacks":
            yield from self._add_stacks()
        else:
            yield {"ok": False, "error": "a request is JSON: ping, status, dump or stacks"}

    def _dump(self, request: dict[str, Any]) -> Any:  # noqa: ANN401 - an iterator of replies
        directory, reason = request.get("dir"), request.get("reason", "asked")
        incident = request.get("incident", "")
        if not isinstance(incident, str) or not isinstance(reason, str) or reason not in REASONS:
            yield {"ok": False, "error": "incident is a text, reason one that is documented"}
            return
        if directory is not None and not (
            isinstance(directory, str) and Path(directory).is_absolute()
        ):
            yield {"ok": False, "error": "dir is an absolute path"}
            return
        taken = take(
            self.recorder,
            reason,
            incident=safe_name(incident) if incident else "",
            directory=Path(directory) if directory else None,
        )
        self._last = taken
        yield _reply("entries", taken)
        if request.get("stacks", True):
            yield from self._add_stacks()

    def _add_stacks(self) -> Any:  # noqa: ANN401 - an iterator of replies
        """The second stage of the last dump that was asked for."""
        taken = self._last
        if taken is None or not taken.files:
            return
        taken.add_stacks(self.recorder)
        yield _reply("stacks", taken)

    def status(self) -> dict[str, Any]:
        """Who this process is and how far it has come; cheap, without entries."""
        state = self.recorder.state
        note_groups(state)
        site = main_site()
        return {
            "ok": True,
            "pid": state.pid,
            "rank": state.rank,
            "world_size": state.world_size,
            "role": state.role,
            "phase": state.phase.name.lower(),
            "job_id": state.job_id,
            "step": state.step,
            "calls": state.beat.words[Word.CALLS],
            "pending": [entry.name for entry in self.recorder.pending()][:100],
            "dropped": state.ring.dropped,
            "failures": list(state.failures.texts()),
            "main_thread": None
            if site is None
            else {
                "file": site.f_code.co_filename,
                "line": line_of(site.f_code, site.f_lasti),
                "function": site.f_code.co_name,
            },
            "groups": [
                {"name": group.name, "description": group.description, "ranks": list(group.ranks),
                 "backend": group.backend, "timeout_ms": group.timeout_ms}
                for group in list(state.groups.values())
            ],
            "counters": {
                source.backend: {
                    str(group.pg_id): [
                        group.last_enqueued, group.last_started, group.last_completed,
                    ]
                    for group in torchfr.counters(source)
                }
                for source in torchfr.recorders(hooked=state.hooked)
            },
        }  # fmt: skip


def _reply(stage: str, taken: TakenDumps) -> dict[str, Any]:
    return {
        "ok": bool(taken.files),
        "stage": stage,
        "incident": taken.name,
        "files": [str(path) for path in taken.files],
        "failures": taken.failures,
    }


def _read_request(connection: socket.socket) -> object:
    """One line of JSON; None where the peer sends something else, too much, or nothing in time."""
    data = b""
    with contextlib.suppress(OSError):
        while b"\n" not in data and len(data) < MAX_REQUEST_BYTES:
            chunk = connection.recv(4096)
            if not chunk:
                break
            data += chunk
    try:
        parsed: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return parsed


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with sockets.short(path) as name:
            listener.bind(name)
        path.chmod(0o600)
        listener.listen(16)
    except OSError:
        listener.close()
        raise
    return listener


def _open_fifo(path: Path) -> int:
    """Make and open the pipe for both directions, so that it never reads as ended."""
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
