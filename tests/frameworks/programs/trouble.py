"""What goes wrong in the jobs beside this file: one rank, in one step, in one way.

A line that ends in "# here" is where the culprit stands; `mismatch` is told by its call.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

import unhang

ODD, AT, STEPS = 1, 12, 30
PAUSE_S = float(os.environ.get("PAUSE_S", "20"))


def read_shard() -> bytes:
    """Read from a pipe into which nobody writes."""
    reader, _ = os.pipe()
    return os.read(reader, 1)  # stuck: here


def evaluate() -> None:
    """Work for a while, alone, and say so."""
    unhang.phase("evaluation")
    model = torch.nn.Linear(64, 64)
    until = time.monotonic() + PAUSE_S
    while time.monotonic() < until:  # pause: here
        model(torch.randn(64, 64))  # pause: here
    unhang.phase("")


def save() -> None:
    """Write checkpoints for a while, alone."""
    state = {"weight": torch.randn(1000, 1000)}
    until = time.monotonic() + PAUSE_S
    while time.monotonic() < until:  # saves: here
        torch.save(state, "checkpoint.pt")  # saves: here


def strike(fault: str, rank: int, step: int) -> None:
    """Between two steps: be what the fault says, if this is the rank and the step."""
    time.sleep(0.03)
    if step != AT:
        return
    if fault in ("pause", "saves"):
        if rank == 0:
            (evaluate if fault == "pause" else save)()
        return
    if fault == "mismatch":
        dist.all_reduce(torch.ones(160 if rank == ODD else 256))  # mismatch: here
    if rank == ODD:
        be_odd(fault)


def be_odd(fault: str) -> None:
    """Hang, or leave."""
    if fault == "stuck":
        read_shard()
    if fault == "leaves":
        sys.exit(0)  # leaves: here
    if fault == "fails":
        sys.exit(1)  # fails: here
    if fault == "drops":
        os._exit(0)  # drops: here
