"""Judge the communication test: who did not arrive, what was wrong, and what is left by halving."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from unhang.doctor.launch import Trace, run_ranks
from unhang.doctor.results import Result
from unhang.report import Subject
from unhang.wording import fold_ranks, printable

__all__ = ["CommPlan", "Runner", "judge", "run_comm"]

SIZES = tuple(1 << power for power in range(8, 23, 2))
"""Floats per message of the bandwidth table: 1 KB to 16 MB."""
SLOW_PAIR = 6.0
MAX_ISOLATED = 16
Runner = Callable[[int, Mapping[str, Any], Mapping[str, str]], list[Trace]]
Say = Callable[[str], None]

# What can be switched off, and what it means if that makes the test pass.
VARIANTS: Mapping[str, tuple[tuple[dict[str, str], str], ...]] = {
    "nccl": (
        ({"NCCL_P2P_DISABLE": "1"}, "direct GPU-to-GPU transfers (P2P)"),
        ({"NCCL_SHM_DISABLE": "1"}, "shared memory between ranks of a node"),
        ({"NCCL_IB_DISABLE": "1"}, "InfiniBand or RoCE"),
        ({"NCCL_NET": "Socket"}, "the network plugin"),
        ({"NCCL_NVLS_ENABLE": "0"}, "NVLink SHARP"),
    ),
    "gloo": (({"GLOO_SOCKET_IFNAME": "lo"}, "the interface that Gloo chose"),),
}


@dataclass(frozen=True, slots=True)
class CommPlan:
    """How the test is run: ranks, backend (None: nccl where GPUs are), limit per step in s."""

    nproc: int = 2
    backend: str | None = None
    timeout: float = 60.0
    isolate: bool = True
    sizes: tuple[int, ...] = field(default=SIZES)


def default_backend() -> str:
    """NCCL where torch sees GPUs, else Gloo."""
    import torch

    return "nccl" if torch.cuda.is_available() and torch.distributed.is_nccl_available() else "gloo"


def run_comm(plan: CommPlan, say: Say = lambda _: None, runner: Runner = run_ranks) -> list[Result]:
    """Run the test, judge it, and on failure look for the smallest set that still fails."""
    try:
        backend = plan.backend or default_backend()
    except ImportError:
        return [Result("UH865", "skip", "torch is not installed here, so nothing can be tested.")]
    say(f"{plan.nproc} ranks on {backend}: every collective, then timings")
    order = {"backend": backend, "timeout": plan.timeout, "sizes": list(plan.sizes), "pairs": True}
    traces = runner(plan.nproc, order, {})
    results = judge(traces, backend)
    if plan.isolate and any(result.level == "fail" for result in results):
        say("a step failed: looking for what is left")
        results += list(_isolate(plan, backend, runner))
    return results


def judge(traces: Sequence[Trace], backend: str) -> list[Result]:
    """What the traces of all ranks say together."""
    silent = [trace for trace in traces if not trace.entered]
    if silent:
        return [_not_started(silent)]
    if all(trace.ended for trace in traces) and not any(trace.wrong for trace in traces):
        return [_passed(traces, backend), *_bandwidth(traces), *_slow_pairs(traces)]
    return [*_wrong(traces), *_stopped(traces)]


def _subjects(traces: Sequence[Trace]) -> tuple[Subject, ...]:
    return tuple(
        Subject("process", f"rank {t.rank} (pid {t.pid} on {t.host or 'this host'})", rank=t.rank,
                host=t.host or None, pid=t.pid if t.pid > 0 else None)
        for t in traces[:16]
    )  # fmt: skip


def _ranks(traces: Sequence[Trace]) -> str:
    return f"rank{'s' if len(traces) > 1 else ''} {fold_ranks(t.rank for t in traces)}"


def _not_started(silent: Sequence[Trace]) -> Result:
    evidence = tuple(
        f"rank {t.rank}: {printable(t.output.strip().splitlines()[-1], 300)}"
        for t in silent[:4]
        if t.output.strip()
    )
    seen = f"{_ranks(silent)} of the test did not start."
    ranks = tuple(t.rank for t in silent)
    return Result("UH865", "fail", seen, _subjects(silent), ranks, evidence)


def _passed(traces: Sequence[Trace], backend: str) -> Result:
    count = len(traces[0].done)
    return Result("UH860", "ok", f"{count} steps with {len(traces)} ranks on {backend} passed.")


def _wrong(traces: Sequence[Trace]) -> Iterator[Result]:
    bad = [trace for trace in traces if trace.wrong]
    if bad:
        steps = sorted({step for trace in bad for step in trace.wrong})
        evidence = tuple(f"rank {t.rank}, {s}: {w}" for t in bad[:8] for s, w in t.wrong.items())
        seen = f"{_ranks(bad)} got wrong values in {', '.join(steps)}."
        yield Result("UH861", "fail", seen, _subjects(bad), tuple(t.rank for t in bad), evidence)


def _stopped(traces: Sequence[Trace]) -> Iterator[Result]:
    """Who did not reach the step in which the others waited."""
    unfinished = [trace for trace in traces if not trace.ended]
    if not unfinished:
        return
    furthest = max(unfinished, key=lambda trace: len(trace.done))
    step = furthest.entered
    waiting = [t for t in unfinished if t.entered == step and len(t.done) == len(furthest.done)]
    behind = [t for t in unfinished if t not in waiting]
    if behind:
        yield _missing(step, waiting, behind)
        return
    mute = [t for t in waiting if not t.timed_out and not t.error]
    if mute and len(mute) < len(waiting):
        # It entered the step and then stopped answering, not even its own watch thread spoke.
        yield _missing(step, [t for t in waiting if t not in mute], mute)
        return
    errors = tuple(f"rank {t.rank}: {printable(t.error, 300)}" for t in waiting if t.error)[:8]
    seen = f"all {len(waiting)} ranks entered {step} and it did not finish."
    yield Result("UH862", "fail", seen, evidence=errors)


def _missing(step: str, waiting: Sequence[Trace], behind: Sequence[Trace]) -> Result:
    where = sorted({f"{t.host or 'this host'}: {t.entered}" for t in behind})
    seen = f"{_ranks(behind)} did not arrive in {step}, in which {_ranks(waiting)} waited."
    evidence = tuple(f"last heard from {_ranks(behind)} on {place}" for place in where[:8])
    return Result("UH860", "fail", seen, _subjects(behind), tuple(t.rank for t in behind), evidence)


def _bandwidth(traces: Sequence[Trace]) -> list[Result]:
    rows = [row for row in traces[0].rows if row.get("event") == "bandwidth"]
    if not rows:
        return []
    table = tuple(
        f"{row['bytes']:>10} bytes {row['us']:>12.1f} us {row['gb_per_s']:>9.3f} GB/s"
        for row in rows
    )
    best = max(row["gb_per_s"] for row in rows)
    seen = f"all_reduce reaches {best:.2f} GB/s (bus bandwidth as nccl-tests computes it)."
    return [Result("UH866", "info", seen, evidence=table, action="Compare with your other nodes.")]


def _slow_pairs(traces: Sequence[Trace]) -> list[Result]:
    rows = [row for trace in traces for row in trace.rows if row.get("event") == "pair"]
    if len(rows) < 3:  # noqa: PLR2004 - fewer have no median worth the name
        return []
    usual = statistics.median(row["ms"] for row in rows)
    slow = [row for row in rows if row["ms"] > usual * SLOW_PAIR and row["ms"] > 20]  # noqa: PLR2004 - ms
    return [
        Result(
            "UH864",
            "warn",
            f"ranks {row['a']} and {row['b']}: {row['ms']:.1f} ms for 1 MB there and back, "
            f"where the median pair takes {usual:.1f} ms.",
            (Subject("link", f"rank {row['a']} - rank {row['b']}"),),
            confidence="medium",
        )
        for row in slow[:8]
    ]


def _isolate(plan: CommPlan, backend: str, runner: Runner) -> Iterator[Result]:
    """Other transports first, then fewer ranks: say what is left as the only explanation."""
    order = {"backend": backend, "timeout": min(plan.timeout, 15.0), "sizes": [], "pairs": False}

    def fails(count: int, extra: Mapping[str, str]) -> bool:
        return any(r.level == "fail" for r in judge(runner(count, order, extra), backend))

    for settings, what in VARIANTS[backend]:
        if not fails(plan.nproc, settings):
            words = " ".join(f"{key}={value}" for key, value in settings.items())
            seen = f"with {words} the test passes: {what} is what is left."
            subjects = tuple(Subject("setting", word) for word in words.split())
            yield Result("UH863", "fail", seen, subjects, action=f"Run with {words} until mended.")
            return
    if plan.nproc == 1 or plan.nproc > MAX_ISOLATED:
        return
    if backend == "nccl":
        yield from _isolate_gpus(plan.nproc, fails)
    elif fails(1, {}):
        yield Result("UH863", "fail", "even one rank alone fails: not the network, this machine.")
    else:
        yield Result("UH863", "warn", "one rank alone passes: it is what connects the ranks.")


def _isolate_gpus(count: int, fails: Callable[[int, Mapping[str, str]], bool]) -> Iterator[Result]:
    """GPUs that fail alone; else the pairs that fail, and the GPU that all of them share."""
    alone = [gpu for gpu in range(count) if fails(1, {"CUDA_VISIBLE_DEVICES": str(gpu)})]
    if alone:
        subjects = tuple(Subject("gpu", f"gpu {gpu}") for gpu in alone)
        yield Result("UH863", "fail", f"GPU {fold_ranks(alone)} fails alone.", subjects)
        return
    bad = [pair for pair in combinations(range(count), 2)
           if fails(2, {"CUDA_VISIBLE_DEVICES": f"{pair[0]},{pair[1]}"})]  # fmt: skip
    shared = set.intersection(*map(set, bad)) if len(bad) > 1 else set()
    if len(shared) == 1:
        gpu = shared.pop()
        seen = f"every pair with GPU {gpu} fails and no other does."
        yield Result("UH863", "fail", seen, (Subject("gpu", f"gpu {gpu}"),))
    elif bad:
        subjects = tuple(Subject("link", f"gpu {a} - gpu {b}") for a, b in bad)
        pairs = ", ".join(f"{a}-{b}" for a, b in bad)
        yield Result("UH863", "fail", f"only these pairs of GPUs fail: {pairs}.", subjects)
