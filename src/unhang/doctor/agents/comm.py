"""One rank of the communication test: every collective with known values, then timings.

Needs torch, nothing of unhang. Reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and, as its
argument, {"backend", "timeout", "sizes", "steps"}. Prints one JSON object a line: where it is, so
that whoever reads all ranks knows who did not arrive although nobody answers any more.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

LINE = threading.Lock()


def tell(event: str, step: str, **more: Any) -> None:  # noqa: ANN401 - JSON
    """Print one line, whole."""
    line = json.dumps({"event": event, "step": step, "rank": int(os.environ["RANK"]), **more})
    with LINE:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Test:
    """The steps of one rank; each checks the values that it gets."""

    def __init__(self, backend: str, timeout: float) -> None:
        """Join the group; tensors live on the backend's device."""
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = "cpu"
        if backend == "nccl":
            index = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
            torch.cuda.set_device(index)
            self.device = f"cuda:{index}"
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout * 3))

    def ramp(self, count: int, value: float) -> Any:  # noqa: ANN401 - a tensor
        """`count` floats of one value."""
        return self.torch.full((count,), float(value), device=self.device)

    def expect(self, got: Any, value: float) -> str:  # noqa: ANN401 - a tensor
        """Say what is wrong with a tensor that should hold one value, or ""."""
        wrong = int((got != value).sum())
        return f"{wrong} of {got.numel()} values are not {value}" if wrong else ""

    def barrier(self) -> str:
        """Everybody comes."""
        self.dist.barrier()
        return ""

    def all_reduce(self) -> str:
        """Sum of rank + 1."""
        data = self.ramp(4096, self.rank + 1)
        self.dist.all_reduce(data)
        return self.expect(data, self.size * (self.size + 1) / 2)

    def broadcast(self) -> str:
        """From the last rank."""
        data = self.ramp(4096, self.rank)
        self.dist.broadcast(data, src=self.size - 1)
        return self.expect(data, self.size - 1)

    def all_gather(self) -> str:
        """Each rank's own number at its place."""
        parts = [self.ramp(512, -1) for _ in range(self.size)]
        self.dist.all_gather(parts, self.ramp(512, self.rank))
        return next((w for i, part in enumerate(parts) if (w := self.expect(part, i))), "")

    def reduce_scatter(self) -> str:
        """Sum of all ranks' parts."""
        data = self.ramp(512, 0)
        self.dist.reduce_scatter(data, [self.ramp(512, self.rank) for _ in range(self.size)])
        return self.expect(data, self.size * (self.size - 1) / 2)

    def all_to_all(self) -> str:
        """Rank r gets r from everybody."""
        data = self.torch.empty(self.size * 64, device=self.device)
        sent = self.torch.arange(self.size, device=self.device).repeat_interleave(64).float()
        self.dist.all_to_all_single(data, sent)
        return self.expect(data, self.rank)

    def p2p_ring(self) -> str:
        """Send to the right, receive from the left, at the same time."""
        if self.size == 1:
            return ""
        data = self.ramp(4096, -1)
        left, right = (self.rank - 1) % self.size, (self.rank + 1) % self.size
        ops = [
            self.dist.P2POp(self.dist.isend, self.ramp(4096, self.rank), right),
            self.dist.P2POp(self.dist.irecv, data, left),
        ]
        for work in self.dist.batch_isend_irecv(ops):
            work.wait()
        return self.expect(data, left)

    def bandwidth(self, count: int) -> dict[str, float]:
        """Time all_reduce of `count` floats; bus bandwidth as nccl-tests computes it."""
        data = self.ramp(count, 1)
        self.dist.all_reduce(data)
        start = time.perf_counter()
        rounds = 3
        for _ in range(rounds):
            self.dist.all_reduce(data)
        if self.device != "cpu":
            self.torch.cuda.synchronize()
        seconds = (time.perf_counter() - start) / rounds
        factor = 2 * (self.size - 1) / self.size
        return {
            "bytes": count * 4,
            "us": seconds * 1e6,
            "gb_per_s": count * 4 / seconds / 1e9 * factor,
        }

    def pair(self, a: int, b: int) -> dict[str, float] | None:
        """Round trip of 1 MB between two ranks; None for the ranks that only watch."""
        self.dist.barrier()
        if self.rank not in (a, b):
            return None
        data = self.ramp(1 << 18, 1)
        start = time.perf_counter()
        if self.rank == a:
            self.dist.send(data, b)
            self.dist.recv(data, b)
        else:
            self.dist.recv(data, a)
            self.dist.send(data, a)
        return {"a": a, "b": b, "ms": (time.perf_counter() - start) * 1000}


STEPS = ("barrier", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all",
         "p2p_ring")  # fmt: skip
MAX_PAIRS = 64


def step(name: str, timeout: float, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever the step gives
    """Run one step; a watch thread ends the process when it takes too long."""
    tell("enter", name)
    over = threading.Event()

    def watch() -> None:
        if not over.wait(timeout):
            tell("timeout", name)
            os._exit(3)

    threading.Thread(target=watch, daemon=True).start()
    try:
        result = work()
    except Exception as error:  # noqa: BLE001 - whatever torch raises is what we report
        tell("error", name, text=f"{type(error).__name__}: {error}"[:400])
        os._exit(4)
    over.set()
    return result


def main() -> None:
    """Run all steps of this rank."""
    order = json.loads(sys.argv[1])
    timeout = float(order["timeout"])
    tell("start", "init", host=socket.gethostname(), pid=os.getpid())
    test = step("init", timeout, lambda: Test(order["backend"], timeout))
    tell("done", "init", text="")
    for name in order.get("steps") or STEPS:
        tell("done", name, text=step(name, timeout, getattr(test, name)))
    for count in order.get("sizes", ()):
        row = step(f"bandwidth {count * 4}", timeout, partial(test.bandwidth, count))
        if test.rank == 0:
            tell("bandwidth", "bandwidth", **row)
    pairs = [(a, b) for a in range(test.size) for b in range(a + 1, test.size)]
    for a, b in pairs if order.get("pairs") and len(pairs) <= MAX_PAIRS else ():
        row = step(f"pair {a} {b}", timeout, partial(test.pair, a, b))
        if row is not None and test.rank == a:
            tell("pair", "pair", **row)
    test.dist.destroy_process_group()
    tell("end", "end")


if __name__ == "__main__":
    main()
