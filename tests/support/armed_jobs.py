"""Start small torch jobs whose processes the start-up hook arms, and wait for what they say."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from types import TracebackType
from typing import TYPE_CHECKING

from ports import free_port

from unhang.record import HOOK_DIR
from unhang.record.contact.marks import Mark, read_marks

if TYPE_CHECKING:
    from typing_extensions import Self

PATIENCE_S = 600
PROGRAMS = Path(__file__).parents[1] / "integration" / "programs"
SOURCE = Path(__file__).parents[2] / "src"


@dataclass
class ArmedJob:
    """Ranks as plain Python processes, with RANK and so on set as a launcher would.

    Each line that a rank prints is a word to the test; `wait_for` waits for one, for as long as the
    rank lives.
    """

    program: str
    world_size: int
    place: Path
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    hook: bool = True
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    said: list[list[str]] = field(default_factory=list)
    stdins: list[int] = field(default_factory=list)
    _queues: list[Queue[str | None]] = field(default_factory=list)

    @property
    def runtime(self) -> Path:
        """The runtime directory of this job alone."""
        return self.place / "runtime"

    @property
    def cases(self) -> Path:
        """Where its dumps go."""
        return self.place / "cases"

    def __enter__(self) -> Self:
        port = free_port()
        for rank in range(self.world_size):
            self._start(rank, port)
        return self

    def _start(self, rank: int, port: int) -> None:
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HOOK_DIR)] * self.hook + [str(SOURCE)]),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self.world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "UNHANG_JOB": "job",
            "UNHANG_DIR": str(self.cases),
            "UNHANG_RUNTIME_DIR": str(self.runtime),
            **self.env,
        }
        read_end, write_end = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-u", str(PROGRAMS / self.program), *self.arguments],
            env=env,
            stdin=read_end,
            stdout=subprocess.PIPE,
            stderr=os.open(self.place / f"stderr_{rank}", os.O_WRONLY | os.O_CREAT, 0o600),
            text=True,
            start_new_session=True,
        )
        os.close(read_end)
        self.stdins.append(write_end)
        queue: Queue[str | None] = Queue()
        self.processes.append(process)
        self.said.append([])
        self._queues.append(queue)
        threading.Thread(target=_read_lines, args=(process, queue), daemon=True).start()

    def wait_for(self, rank: int, word: str) -> str:
        """The rest of the line that starts with `word`."""
        while True:
            line = self._queues[rank].get(timeout=PATIENCE_S)
            if line is None:
                raise AssertionError(f"rank {rank} ended before {word!r}: {self.stderr(rank)}")
            self.said[rank].append(line)
            if line.startswith(word):
                return line[len(word) :].strip()

    def wait_end(self, rank: int) -> int:
        """The exit code of a rank."""
        return self.processes[rank].wait(PATIENCE_S)

    def stderr(self, rank: int) -> str:
        """What a rank wrote to stderr so far."""
        return (self.place / f"stderr_{rank}").read_text(encoding="utf-8")

    def marks(self) -> list[Mark]:
        """The marks of this job."""
        return read_marks("job", self.runtime)

    def mark(self, rank: int) -> Mark:
        """The mark of one rank."""
        return next(mark for mark in self.marks() if mark.rank == rank)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the rank, and what it has forked
            process.wait(PATIENCE_S)
            if process.stdout:
                process.stdout.close()
        for descriptor in self.stdins:
            os.close(descriptor)


def _read_lines(process: subprocess.Popen[str], queue: Queue[str | None]) -> None:
    if process.stdout:
        try:
            for line in process.stdout:
                queue.put(line.rstrip("\n"))
        except ValueError:  # closed by __exit__
            pass
    queue.put(None)
