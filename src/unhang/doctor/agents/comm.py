"""One rank of the communication test: every collective with known values, then timings.

Needs torch, nothing of unhang. Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and, as
its argument, {"backend", "timeout", "start", "sizes", "pairs", "allocate"}. Prints one JSON object
a line: where it is, so that a reader of all ranks knows who stands where although no process
answers.

Before each step the ranks meet in the store, over TCP: a rank that does not come there is missing,
while a step that all have entered and none leaves is a matter of what carries the data.
"""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

ROUNDS = 3


def tell(event: str, step: str, **more: Any) -> None:  # noqa: ANN401 - JSON
    """Print one line, whole."""
    sys.stdout.write(json.dumps({"event": event, "step": step, **more}) + "\n")
    sys.stdout.flush()


class Test:
    """The steps of one rank; each checks the values that it gets."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Choose the device; nothing is connected yet."""
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.backend, self.timeout = order["backend"], float(order["timeout"])
        self.start = float(order["start"])
        self.device = "cpu"
        if self.backend == "nccl":
            index = int(os.environ["LOCAL_RANK"]) % max(torch.cuda.device_count(), 1)
            torch.cuda.set_device(index)
            self.device = f"cuda:{index}"
        self.store: Any = None

    def connect(self) -> str:
        """Reach the first rank's store, which every collective's set-up needs."""
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        first = self.rank == 0
        limit = timedelta(seconds=self.start)
        self.store = self.dist.TCPStore(
            address, port, self.size, first, limit, wait_for_workers=False
        )
        return ""

    def leave(self) -> None:
        """The first rank's store serves the others to the end: it is the last to go."""
        if self.rank == 0:
            self.store.wait(["unhang/left"], timedelta(seconds=self.timeout))
        elif self.store.add("unhang/leaving", 1) == self.size - 1:
            self.store.set("unhang/left", "1")

    def arrive(self, name: str, limit: float) -> None:
        """Wait in the store until every rank has come to this step."""
        if self.store.add(f"unhang/{name}", 1) == self.size:
            self.store.set(f"unhang/{name}/all", "1")
        self.store.wait([f"unhang/{name}/all"], timedelta(seconds=limit))

    def init(self) -> str:
        """Make the group on the store in which all have met."""
        self.dist.init_process_group(
            self.backend,
            store=self.store,
            rank=self.rank,
            world_size=self.size,
            timeout=timedelta(seconds=self.timeout * 3),  # ours comes first
        )
        return ""

    def allocate(self, count: int) -> str:
        """Fill this rank's own device memory and read it back."""
        pattern = self.torch.arange(1 << 20, device=self.device, dtype=self.torch.int32)
        held = [pattern + index for index in range(max(count >> 22, 1))]
        wrong = sum(int((block - index != pattern).sum()) for index, block in enumerate(held))
        return f"{wrong} of {len(held) << 20} words read back wrong" if wrong else ""

    def ramp(self, count: int, value: float) -> Any:  # noqa: ANN401 - a tensor
        """`count` floats of one value."""
        return self.torch.full((count,), float(value), device=self.device)

    def expect(self, got: Any, value: float) -> str:  # noqa: ANN401 - a tensor
        """Say what is wrong with a tensor that should hold one value, or ""."""
        wrong = int((got != value).sum())
        return f"{wrong} of {got.numel()} values are not {value}" if wrong else ""

    def barrier(self) -> str:
        """All ranks come."""
        self.dist.barrier()
        return ""

    def all_reduce(self) -> str:
        """Sum of rank + 1."""
        data = self.ramp(4096, self.rank + 1)
        self.dist.all_reduce(data)
        return self.expect(data, self.size * (self.size + 1) / 2)

    def reduce(self) -> str:
        """Sum of rank + 1, at the last rank."""
        data = self.ramp(4096, self.rank + 1)
        self.dist.reduce(data, dst=self.size - 1)
        last = self.rank == self.size - 1
        return self.expect(data, self.size * (self.size + 1) / 2) if last else ""

    def broadcast(self) -> str:
        """From the last rank."""
        data = self.ramp(4096, self.rank)
        self.dist.broadcast(data, src=self.size - 1)
        return self.expect(data, self.size - 1)

    def gather(self) -> str:
        """Each rank's own number, at rank 0."""
        parts = [self.ramp(512, -1) for _ in range(self.size)] if self.rank == 0 else None
        self.dist.gather(self.ramp(512, self.rank), parts, dst=0)
        return self.first_wrong(parts or [])

    def scatter(self) -> str:
        """Each rank's own number, from rank 0."""
        parts = [self.ramp(512, rank) for rank in range(self.size)] if self.rank == 0 else None
        data = self.ramp(512, -1)
        self.dist.scatter(data, parts, src=0)
        return self.expect(data, self.rank)

    def all_gather(self) -> str:
        """Each rank's own number at its place."""
        parts = [self.ramp(512, -1) for _ in range(self.size)]
        self.dist.all_gather(parts, self.ramp(512, self.rank))
        return self.first_wrong(parts)

    def first_wrong(self, parts: list[Any]) -> str:
        """What is wrong with tensors that should hold their own index."""
        return next((said for i, part in enumerate(parts) if (said := self.expect(part, i))), "")

    def reduce_scatter(self) -> str:
        """Sum of all ranks' parts."""
        data = self.ramp(512, 0)
        self.dist.reduce_scatter(data, [self.ramp(512, self.rank) for _ in range(self.size)])
        return self.expect(data, self.size * (self.size - 1) / 2)

    def all_to_all(self) -> str:
        """Rank r gets r from all ranks."""
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

    def sync(self) -> None:
        """Wait for the device, where there is one."""
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def timed(self, work: Callable[[], Any]) -> float:
        """Seconds that a call takes: the mean of some rounds behind a first one."""
        work()
        self.sync()
        start = time.perf_counter()
        for _ in range(ROUNDS):
            work()
        self.sync()
        return (time.perf_counter() - start) / ROUNDS

    def bandwidth(self, name: str, size: int) -> dict[str, Any]:
        """Time a collective of `size` bytes, as nccl-tests counts them (its PERFORMANCE.md).

        Algorithm bandwidth is size over time; bus bandwidth is that times what each link must
        carry: 2(n-1)/n for all_reduce, (n-1)/n where every rank ends with or gives all parts.
        """
        n = self.size
        count = max(size // 4 // n, 1)
        whole, part = self.ramp(count * n, 1), self.ramp(count, 1)
        calls: dict[str, tuple[Callable[[], Any], float]] = {
            "all_reduce": (lambda: self.dist.all_reduce(whole), 2 * (n - 1) / n),
            "all_gather": (lambda: self.dist.all_gather(list(whole.chunk(n)), part), (n - 1) / n),
            "reduce_scatter": (
                lambda: self.dist.reduce_scatter(part, list(whole.chunk(n))), (n - 1) / n),
            "all_to_all": (
                lambda: self.dist.all_to_all_single(self.torch.empty_like(whole), whole),
                (n - 1) / n),
            "broadcast": (lambda: self.dist.broadcast(whole, 0), 1.0),
        }  # fmt: skip
        work, factor = calls[name]
        seconds = self.timed(work)
        sent = count * n * 4
        algorithm = sent / seconds / 1e9
        return {"op": name, "bytes": sent, "us": seconds * 1e6, "algbw": algorithm,
                "busbw": algorithm * factor}  # fmt: skip

    def pair(self, a: int, b: int) -> dict[str, Any] | None:
        """Round trips between two ranks: the best of some; None for those that only watch."""
        if self.rank not in (a, b):
            return None
        best = []
        for count in (1, 1 << 18):
            data = self.ramp(count, 1)
            laps = []
            for _ in range(ROUNDS + 1):  # the first one connects
                start = time.perf_counter()
                for sender in (a, b):
                    if self.rank == sender:
                        self.dist.send(data, a + b - sender)
                    else:
                        self.dist.recv(data, sender)
                self.sync()
                laps.append(time.perf_counter() - start)
            best.append(min(laps))
        small, large = best
        return {"a": a, "b": b, "us": small / 2 * 1e6, "ms": large * 1e3}


STEPS = ("init", "barrier", "all_reduce", "reduce", "broadcast", "gather", "scatter", "all_gather",
         "reduce_scatter", "all_to_all", "p2p_ring")  # fmt: skip
TIMED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
MAX_PAIRS_AMONG = 64


def step(
    name: str,
    limit: float,
    work: Callable[[], Any],
    arrive: Callable[[str, float], None] = lambda _name, _limit: None,
) -> Any:  # noqa: ANN401 - whatever the step gives
    """Run one step; it ends the process when it takes too long, even while C++ holds the GIL."""
    tell("enter", name)
    faulthandler.dump_traceback_later(limit, exit=True, file=sys.stdout)
    try:
        arrive(name, limit * 2)
        tell("inside", name)
        result = work()
    except Exception as error:  # noqa: BLE001 - whatever torch raises is what we report
        tell("error", name, text=f"{type(error).__name__}: {error}"[:400])
        os._exit(4)
    faulthandler.cancel_dump_traceback_later()
    return result


def tournament(size: int) -> list[list[tuple[int, int]]]:
    """Rounds in which every rank meets every other once, all at the same time (circle method)."""
    ring: list[int] = [*range(size), *([-1] if size % 2 else [])]
    rounds = []
    for _ in range(len(ring) - 1):
        ends = zip(ring[: len(ring) // 2], reversed(ring[len(ring) // 2 :]), strict=True)
        rounds.append([(min(p), max(p)) for p in ends if -1 not in p])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds


def measure(test: Test, order: dict[str, Any]) -> None:
    """Tables of all collectives by size, and of all pairs."""
    for name in TIMED:
        for size in order.get("sizes", ()):
            what = f"{name} of {size} bytes"
            row = step(what, test.timeout, partial(test.bandwidth, name, size), test.arrive)
            if test.rank == 0:
                tell("bandwidth", what, **row)
    if not order.get("pairs") or test.size > MAX_PAIRS_AMONG:
        return
    for number, pairs in enumerate(tournament(test.size)):
        a, b = next((pair for pair in pairs if test.rank in pair), (-1, -1))
        row = step(f"pairs {number}", test.timeout, partial(test.pair, a, b), test.arrive)
        if row is not None and test.rank == a:
            tell("pair", "pair", **row)


def main() -> None:
    """Run all steps of this rank."""
    order = json.loads(sys.argv[1])
    tell("start", "load", host=socket.gethostname(), pid=os.getpid())
    test = step("load", float(order["start"]), lambda: Test(order))
    tell("done", "load", text="")
    text = step("allocate", test.timeout, lambda: test.allocate(int(order["allocate"])))
    tell("done", "allocate", text=text)
    tell("done", "connect", text=step("connect", test.start, test.connect))
    # Here the ranks wait for one that is still loading torch.
    tell("done", "meet", text=step("meet", test.start, lambda: "", test.arrive))
    for name in STEPS:
        tell("done", name, text=step(name, test.timeout, getattr(test, name), test.arrive))
    measure(test, order)
    step("end", test.timeout, lambda: None, test.arrive)
    tell("end", "end")
    if test.size > 1:
        with suppress(RuntimeError):  # a rank that is gone has said that it ended
            test.leave()
    os._exit(0)


if __name__ == "__main__":
    main()
