"""Run the processes of one live job, look into them from outside, and end them whatever happens.

It knows nothing of faults or truth. Nothing that it starts outlives it: ranks are killed on the way
out, and die with this process if it is killed itself (see `side/sitecustomize.py`).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO, Any

from unhang.errors import ToolError
from unhang.record import HOOK_DIR

SIDE = Path(__file__).parent / "side"
ARMED_BY = "UNHANG_LAB_HOOK"

_SILENCED = ("TORCH_FR_", "TORCH_NCCL_", "TORCHELASTIC_", "TORCH_DISTRIBUTED_", "GLOO_", "UNHANG_")
_LOG_TAIL = 600


@dataclass(frozen=True, slots=True)
class RankState:
    """Where one rank is at this moment.

    Attributes:
        life: "running", "stopped" or "ended".
        line, step: Where its main thread stands in the script, or where it raised; -1 if nowhere.
        waits: torch's recorder holds an unfinished call.
        raised: The exception that ended its main thread, or "".
        exit_code: Once ended, as `subprocess` gives it.
    """

    life: str
    line: int = -1
    step: int = -1
    waits: bool = False
    raised: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class RankProcess:
    """One rank: its process, the two ends of its pipes, its log."""

    rank: int
    process: subprocess.Popen[bytes]
    requests: FileIO
    answers: IO[str]
    log: Path

    def life(self) -> str:
        """Whether it is running, stopped or ended."""
        if self.process.poll() is not None:
            return "ended"
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        except OSError:  # gone in this moment, or a system without /proc
            return "running"
        return "stopped" if stat.rpartition(")")[2].split()[0] == "T" else "running"

    def send(self, request: str) -> None:
        """Put one question."""
        try:
            self.requests.write(f"{request}\n".encode())
        except BrokenPipeError:  # it ended: whoever reads the answer finds out
            return

    def receive(self, deadline: float) -> dict[str, Any] | None:
        """Wait for the answer; None if the process ended or was stopped instead.

        Raises:
            ToolError: There is no answer until `deadline` (on time.monotonic's clock).
        """
        while self.life() == "running":
            if select.select([self.answers], [], [], 0.1)[0]:
                line = self.answers.readline()
                return _checked(self.rank, json.loads(line)) if line else None
            if time.monotonic() > deadline:
                raise ToolError(
                    f"the job did not get stuck in time: rank {self.rank} does not answer",
                    self.tail(),
                )
        return None

    def tail(self) -> str:
        """The end of its output, as a hint."""
        text = self.log.read_text(encoding="utf-8", errors="replace").strip()
        return f"Its output ends with: {text[-_LOG_TAIL:]}" if text else "It printed nothing."


def _checked(rank: int, answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise ToolError(f"rank {rank} cannot say where it is: {answer['error']}")
    return answer


@dataclass(frozen=True, slots=True)
class Job:
    """All ranks of one running job."""

    ranks: tuple[RankProcess, ...]
    deadline: float

    def states(self) -> tuple[RankState, ...]:
        """Where each rank is now."""
        answers = self.ask({one.rank: "state" for one in self.ranks if one.life() == "running"})
        return tuple(self._state(one, answers.get(one.rank)) for one in self.ranks)

    def _state(self, one: RankProcess, answer: dict[str, Any] | None) -> RankState:
        if answer is None:
            return RankState(one.life(), exit_code=one.process.poll())
        return RankState("running", **answer)

    def ask(self, requests: Mapping[int, str]) -> dict[int, dict[str, Any]]:
        """Put a question to some ranks at once; ranks that end or stop meanwhile have no answer."""
        asked = [self.ranks[rank] for rank in requests]
        for one in asked:
            one.send(requests[one.rank])
        answers = {one.rank: one.receive(self.deadline) for one in asked}
        return {rank: answer for rank, answer in answers.items() if answer is not None}


def armed_environ(scratch: Path) -> dict[str, str]:
    """What arms our own recorder in a job, with all that it writes kept in one directory."""
    places = {"UNHANG_RUNTIME_DIR": str(scratch), "UNHANG_DIR": str(scratch)}
    return {ARMED_BY: str(HOOK_DIR), "UNHANG_ARM": "1", "UNHANG_JOB": "lab", **places}


@contextmanager
def started(
    script: Path, world: int, environ: Mapping[str, str], logs: Path, timeout_s: float
) -> Iterator[Job]:
    """Start a job of `world` processes on this machine; end it on the way out.

    Args:
        script: What each rank runs.
        world: Number of ranks.
        environ: Variables for all ranks, on top of what a launcher sets.
        logs: A directory for the ranks' output.
        timeout_s: The job's answers are awaited that long, from now on.
    """
    with ExitStack() as stack:
        shared = {**_clean_environ(), **environ, **_rendezvous(world)}
        hooks = [shared.pop(ARMED_BY, ""), str(SIDE), shared.get("PYTHONPATH", "")]
        shared["PYTHONPATH"] = os.pathsep.join(filter(None, hooks))
        shared["UNHANG_LAB_SCRIPT"] = str(script)
        ranks = [_start(script, rank, shared, logs, stack) for rank in range(world)]
        yield Job(tuple(ranks), time.monotonic() + timeout_s)


def _start(
    script: Path, rank: int, shared: Mapping[str, str], logs: Path, stack: ExitStack
) -> RankProcess:
    there, requests = os.pipe()
    answers, back = os.pipe()
    # Without a buffer: one that a dead rank left unread would be written again when it is closed.
    outgoing = stack.enter_context(FileIO(requests, "w"))
    incoming = stack.enter_context(os.fdopen(answers))
    environ = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
    environ["UNHANG_LAB_PIPES"] = f"{there},{back}"
    path = logs / f"rank_{rank}.log"
    command: Sequence[str] = (sys.executable, str(script))
    try:
        with path.open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - our own script, this interpreter
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environ,
                pass_fds=(there, back),
                start_new_session=True,
            )
    finally:
        os.close(there)
        os.close(back)
    stack.callback(_end, process)
    return RankProcess(rank, process, outgoing, incoming, path)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _clean_environ() -> dict[str, str]:
    """This process' environment without what would change the recorder or the transport."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_SILENCED)}


def _rendezvous(world: int) -> dict[str, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    return {
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": loopback,
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
