"""The rehearsal as processes: ranks are started, heard and ended, until nothing moves any more."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from unhang.errors import InputError
from unhang.rehearse.commandline import RehearsedJob
from unhang.rehearse.matching.referee import Referee, RehearsalEnd
from unhang.rehearse.matching.talking import Foreign, decoded, encoded
from unhang.rehearse.wishes import RehearsalWishes

_NURSERY: Final = Path(__file__).parent / "inside" / "nursery.py"
_LOOK_S: Final = 0.5
_QUIET_S: Final = 3.0
"""How long nothing must be said before ranks that poll, or have other threads, count as waiting."""


@dataclass(slots=True)
class _Line:
    """A connection of a rank."""

    number: int
    peer: socket.socket
    buffer: bytearray = field(default_factory=bytearray)


def rehearse(
    job: RehearsedJob, folder: Path, logs: Path, wishes: RehearsalWishes,
    progress: Callable[[Referee, float], None],
) -> RehearsalEnd:  # fmt: skip
    """Run a job to its end state.

    Args:
        job: What to run.
        folder: For values, the socket and the plan; fast, and removed by the caller.
        logs: Where each rank's output goes.
        wishes: How to run it.
        progress: Called now and then.

    Raises:
        InputError: The ranks cannot be started.
    """
    path = folder / "referee"
    plan = {
        "socket": str(path), "values": str(folder), "logs": str(logs.absolute()),
        "script": job.script if job.is_module else str(Path(job.script).absolute()),
        "words": job.words, "module": job.is_module, "ranks": job.ranks or 1, "nodes": job.nodes,
        "steps": wishes.steps, "stacks": str((logs.parent / "stacks").absolute()),
        "alone": not job.ranks, "run": job.running or list(range(job.ranks or 1)),
        "instead": dict(wishes.instead), "shapes": wishes.shapes,
    }  # fmt: skip
    (folder / "plan.json").write_text(json.dumps(plan))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(str(path))
        door.listen(512)
        try:
            nursery = subprocess.Popen(  # noqa: S603 - the user's own command
                [job.python, str(_NURSERY), str(folder / "plan.json")],
                stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"{job.python} cannot be started: {error.strerror}") from error
        try:
            return _Hall(door, nursery, job, folder).go(wishes.limit_s, progress)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(nursery.pid, signal.SIGKILL)
            nursery.wait()
            if nursery.stdout:
                nursery.stdout.close()


class _Hall:
    """All connections of a rehearsal, and the referee who hears them."""

    def __init__(
        self, door: socket.socket, nursery: subprocess.Popen[bytes], job: RehearsedJob, folder: Path
    ) -> None:
        self.door, self.nursery, self.job, self.folder = door, nursery, job, folder
        self.referee = Referee(job.ranks or 1, job.running)
        self.outcome = RehearsalEnd(self.referee, "")
        self.lines: dict[int, _Line] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(door, selectors.EVENT_READ, self._enter)
        self.selector.register(nursery.stdout, selectors.EVENT_READ, self._nursed)  # type: ignore[arg-type] # it is a pipe
        self.started = self.heard = time.monotonic()
        self.text = b""
        self.gone = False

    def go(self, limit_s: float, progress: Callable[[Referee, float], None]) -> RehearsalEnd:
        """Hear ranks until the end."""
        with self.selector:
            while not self.outcome.end:
                for key, _ in self.selector.select(_LOOK_S):
                    key.data(key.fileobj)
                self._look(limit_s)
                progress(self.referee, time.monotonic() - self.started)
        self.outcome.seconds = time.monotonic() - self.started
        self._ask_stacks()
        for line in self.lines.values():
            line.peer.close()
        return self.outcome

    def _look(self, limit_s: float) -> None:
        now = time.monotonic()
        quiet = now - self.heard > _QUIET_S
        if self.referee.is_over or (self.gone and quiet):
            self.outcome.end = "over"
        elif self.referee.is_stuck and (quiet or not self.referee.needs_quiet):
            self.outcome.end = "stuck"
        elif now - self.started > limit_s:
            self.outcome.end = "late"

    def _ask_stacks(self) -> None:
        """Let ranks that wait in no call write where they are."""
        busy = [p for p in self.referee.ranks.values() if p.code is None and not p.waits]
        for process in busy:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGUSR2)
        if busy:
            time.sleep(_LOOK_S)

    def _enter(self, _: object) -> None:
        peer, _address = self.door.accept()
        line = _Line(len(self.lines), peer)
        self.lines[line.number] = line
        self.selector.register(peer, selectors.EVENT_READ, lambda _: self._hear(line))

    def _hear(self, line: _Line) -> None:
        try:
            data = line.peer.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(line.peer)
            line.peer.close()
            self.referee.lost(line.number)
            return
        line.buffer += data
        while (message := decoded(line.buffer)) is not None:
            self.referee.hear(line.number, message)
            if not self.referee.asks_again(line.number):
                self.heard = time.monotonic()
        self._answer()

    def _answer(self) -> None:
        for number, message in self.referee.answers:
            with contextlib.suppress(OSError):
                self.lines[number].peer.sendall(encoded(message))
        self.referee.answers.clear()
        for rank, number, tensors in self.referee.spent:
            for index in range(tensors):
                (self.folder / f"{rank}_{number}_{index}").unlink(missing_ok=True)
        self.referee.spent.clear()

    def _nursed(self, pipe: Foreign) -> None:
        """What the nursery says: that it is there, and how ranks ended."""
        data = os.read(pipe.fileno(), 1 << 16)
        if not data:
            self.selector.unregister(pipe)
            self.gone = True
            return
        *lines, self.text = (self.text + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "failed" in told:
                raise InputError(told["failed"], f"It was asked for by {self.job.python}.")
            self.outcome.torch = told.get("torch", self.outcome.torch)
            if "pid" in told:
                self.heard = time.monotonic()
                self.referee.exited(told["pid"], told["code"])
