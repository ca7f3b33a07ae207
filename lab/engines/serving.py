"""The processes of an engine, or of a trainer with a server: what `faults` starts.

    python serving.py FOLDER front|core|worker|scheduler|trainer …

Each process takes the title that its model has. FOLDER holds `world` below site-packages, the
fault as JSON, and gets a file `hung` once the fault is reached. It imports nothing of unhang.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
sys.path.insert(0, str(FOLDER / "site-packages"))
FAULT: dict[str, Any] = json.loads((FOLDER / "fault.json").read_text())
WORKERS = 2
WARN_S = 5.0
HEALTHY_STEPS = 3
_ARG_START, _ARG_END = 45, 46
_PR_SET_NAME = 15


def entitle(title: str) -> None:
    """Take a title, as setproctitle does: over the words of the command line."""
    words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(words[_ARG_START]), int(words[_ARG_END])
    ctypes.CDLL(None).prctl(_PR_SET_NAME, title.encode())
    ctypes.memmove(start, title.encode()[: end - start - 1].ljust(end - start, b"\0"), end - start)


def log(who: str, level: str, place: str, text: str) -> None:
    """A line as vLLM writes it."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    sys.stdout.write(f"({who} pid={os.getpid()}) {level} {stamp} [{place}] {text}\n")
    sys.stdout.flush()


def hung() -> None:
    """Tell that the fault is reached."""
    (FOLDER / "hung").touch()


def at(place: str, number: int = 0) -> bool:
    """Whether the fault is here."""
    return bool(FAULT["at"] == place and FAULT.get("number", 0) == number)


def stuck(place: str, number: int = 0) -> None:
    """Stand still where the fault says so; die where it says that."""
    if not at(place, number) or len(STEPS) < HEALTHY_STEPS:
        return
    hung()
    if FAULT.get("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    loops("vllm.v1.worker.gpu_worker").stand_still()


def loops(name: str) -> Any:  # noqa: ANN401 - a module of the copied world
    """One of the copied modules."""
    return importlib.import_module(name)


STEPS: list[float] = []
"""When this process began each of its steps."""


# ------------------------------------------------------------------ vLLM


def worker(rank: int, orders: int, answers: int) -> None:
    """A worker of one tensor-parallel group."""
    from torch import distributed as dist
    from torch import ones

    entitle(f"VLLM::Worker_TP{rank}")
    meet = f"tcp://127.0.0.1:{FAULT['port']}"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=WORKERS)
    queue, step = loops("vllm.distributed.device_communicators.shm_broadcast"), ones(4)
    runner = loops("vllm.v1.worker.gpu_worker")

    def prepare() -> None:
        stuck("step", rank)
        stuck("no-reader", rank)

    def execute(_: str) -> str:
        STEPS.append(time.monotonic())
        return str(runner.execute_model(prepare, lambda: dist.all_reduce(step)))

    def answer(text: str) -> None:
        os.write(answers, text.ljust(16).encode())

    executor = loops("vllm.v1.executor.multiproc_executor")
    executor.worker_busy_loop(lambda: queue.dequeue(orders, lambda: None, 60), execute, answer)


def core(requests: int) -> None:
    """The engine: it starts its workers, and gives them an order a request."""
    entitle("VLLM::EngineCore")
    queue = loops("vllm.distributed.device_communicators.shm_broadcast")
    executor, engine = loops("vllm.v1.executor.multiproc_executor"), loops("vllm.v1.engine.core")
    lines = [(pipe(), pipe()) for _ in range(WORKERS)]
    children = [
        child("worker", rank, orders[0], answers[1]) for rank, (orders, answers) in enumerate(lines)
    ]

    def warn() -> None:
        text = "No available shared memory broadcast block found in 60 seconds. This typically "
        more = "happens when some processes are hanging or doing some time-consuming work."
        log("EngineCore", "INFO", "shm_broadcast.py:681", text + more)

    def order(method: str) -> None:
        for rank, (orders, _) in enumerate(lines):
            if at("order", rank) and len(STEPS) >= HEALTHY_STEPS:
                hung()
            else:
                queue.enqueue(orders[1], method, warn, WARN_S)

    def step() -> object:
        STEPS.append(time.monotonic())
        took = [lambda a=answers: queue.dequeue(a[0], warn, WARN_S) for _, answers in lines]
        while FAULT["at"] == "no-reader" and len(STEPS) >= HEALTHY_STEPS:
            order("execute_model")
        done = executor.collective_rpc("execute_model", order, took, limited=at("time-out"))
        if len(STEPS) >= HEALTHY_STEPS:
            (FOLDER / "stepped").touch()
        return done

    def schedule() -> None:
        if len(STEPS) >= HEALTHY_STEPS:
            end(children)
        stuck("schedule")

    engine.run_busy_loop(lambda: os.read(requests, 16).decode().strip(), schedule, step)


def end(children: list[subprocess.Popen[bytes]]) -> None:
    """End where the fault says so: with the workers, or as an engine whose call timed out."""
    if FAULT.get("dies") and at("schedule"):
        for each in children:
            each.kill()
    if not at("time-out"):
        return
    log("EngineCore", "ERROR", "core.py:1138", "EngineCore encountered a fatal error.")
    log("EngineCore", "ERROR", "core.py:1138", "TimeoutError: RPC call to execute_model timed out.")
    log("Worker_TP1", "ERROR", "multiproc_executor.py:921", "RuntimeError: cancelled")
    hung()
    sys.exit(1)


def front(port: int) -> None:
    """The HTTP front: it starts the engine, gives it a request now and then, and reports rates."""
    requests = pipe()
    engine = child("core", requests[0])
    made = 0

    class Answers(BaseHTTPRequestHandler):
        """Answers every request, whatever the engine does."""

        def do_GET(self) -> None:
            """Answer."""
            if FAULT.get("mute") and (FOLDER / "hung").exists():
                time.sleep(3_600)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", port), Answers)
    server.timeout = 0.3
    while True:
        server.handle_request()
        if FAULT["at"] == "idle" and made >= HEALTHY_STEPS:
            if (FOLDER / "stepped").exists():
                hung()
            continue
        if engine.poll() is not None:
            hung()
            continue
        if made < HEALTHY_STEPS + 3:
            os.write(requests[1], b"step".ljust(16))
            made += 1
        rate = "0.0" if (FOLDER / "hung").exists() else "41.5"
        report = f"Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {rate} tokens/s"
        log(
            "APIServer",
            "INFO",
            "loggers.py:259",
            f"Engine 000: {report}, Running: 1 reqs, Waiting: 0 reqs",
        )


# ------------------------------------------------------------------ SGLang


def scheduler(rank: int, requests: int) -> None:
    """One rank of SGLang: rank 0 reads requests, all others get them by a broadcast."""
    from torch import distributed as dist
    from torch import ones

    entitle(f"sglang::scheduler_TP{rank}")
    meet = f"tcp://127.0.0.1:{FAULT['port']}"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=WORKERS)
    step = ones(4)

    def recv() -> str:
        if rank == 0:
            os.read(requests, 16)
        dist.broadcast(step, src=0)
        return "batch"

    def run(_: str) -> None:
        STEPS.append(time.monotonic())
        dist.all_reduce(step)

    loop = loops("sglang.srt.managers.scheduler")
    loop.event_loop_normal(recv, lambda: stuck("batch", rank), run)


def sglang_front() -> None:
    """What starts the schedulers, and gives rank 0 requests."""
    requests = pipe()
    for rank in range(WORKERS):
        child("scheduler", rank, requests[0])
    for _ in range(HEALTHY_STEPS + 3):
        time.sleep(0.3)
        os.write(requests[1], b"step".ljust(16))
    while True:
        time.sleep(60)


# ------------------------------------------------------------------ a trainer with a server


def meet_trainer(rank: int) -> None:
    """Take new weights: a broadcast of the trainer, in a group of its own."""
    from datetime import timedelta

    from torch import distributed as dist
    from torch import ones

    store = dist.TCPStore("127.0.0.1", FAULT["sync_port"], WORKERS + 1, rank == 0)
    group = dist.ProcessGroupGloo(store, rank, WORKERS + 1, timedelta(hours=1))
    group.broadcast([ones(4)], dist.BroadcastOptions()).wait()


def generate(port: int) -> None:
    """Ask the server, as a trainer does for its rollouts."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/generate", timeout=3_600):
        pass


def trainer(port: int) -> None:
    """A trainer of two ranks: rank 0 asks the server, all step together."""
    from torch import distributed as dist
    from torch import ones

    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    for number in range(1_000):
        if rank == 0:
            generate(port)
            (FOLDER / "asked").touch()
        dist.all_reduce(ones(4))
        if number == HEALTHY_STEPS and FAULT["at"] == "trainer":
            hung()
            os.kill(os.getpid(), signal.SIGKILL)
        if number == HEALTHY_STEPS and FAULT["at"] == "sync" and rank == 0:
            hung()
            meet_trainer(0)
        time.sleep(0.2)


def pipe() -> tuple[int, int]:
    """A pipe that the children have, too."""
    ends = os.pipe()
    for end in ends:
        os.set_inheritable(end, True)  # noqa: FBT003 - as Python has it
    return ends


def child(*words: object) -> subprocess.Popen[bytes]:
    """Start another part; it has our pipes, and dies with us only where a real one does."""
    command = [sys.executable, __file__, str(FOLDER), *map(str, words)]
    return subprocess.Popen(command, close_fds=False, env=os.environ)  # noqa: S603 - our own


PARTS: dict[str, Callable[..., None]] = {
    "front": front,
    "core": core,
    "worker": worker,
    "scheduler": scheduler,
    "sglang": sglang_front,
    "trainer": trainer,
}

if __name__ == "__main__":
    PARTS[sys.argv[2]](*map(int, sys.argv[3:]))
