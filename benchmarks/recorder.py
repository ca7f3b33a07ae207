"""What the recorder adds to a job: time per call, share of a step, start-up, memory.

Differences of noisy runs prove nothing, so that costs are measured where nothing else is: wrapped
methods around an empty one, and the `fake` backend, which does no communication. Real Gloo calls
stand beside them for scale. Each measurement runs in processes of its own.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import tracemalloc
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Section, scratch
from unhang.record import HOOK_DIR

DEPTH = 15  # and five frames of the benchmark's own: stacks of 20
CALLS = 4000
ROUNDS = 9
Figures = dict[str, float]


# ------------------------------------------------------------------ inside the workers


def deep(levels: int, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever work returns
    """Call `work` below `levels` more frames."""
    return deep(levels - 1, work) if levels else work()


def spread(call: Callable[[], object], calls: int) -> tuple[float, float]:
    """Median and 99th percentile of one call's wall time, in µs.

    Times go into memory that is there already: a page fault costs more than a call.
    """
    clock = time.perf_counter_ns
    times = array("q", range(calls))
    for number in range(calls):
        begin = clock()
        call()
        times[number] = clock() - begin
    ordered = sorted(times)
    return ordered[calls // 2] / 1e3, ordered[calls * 99 // 100] / 1e3


def per_call(call: Callable[[], object]) -> float:
    """CPU time of one call in µs, in the quietest of several rounds: a busy machine only adds."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.thread_time_ns()
        for _ in range(CALLS):
            call()
        rounds.append((time.thread_time_ns() - begin) / CALLS / 1e3)
    return min(rounds)


def alone() -> Figures:
    """The wrappers around methods that do nothing: what torch itself does is not in it."""
    import torch
    import torch.distributed as dist

    from unhang.record import arm
    from unhang.record.calls import quick, wrap

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    world, tensors, options = dist.group.WORLD, [torch.ones(8)], dist.AllreduceOptions()

    class Done:
        def wait(self) -> bool:
            return True

        def is_completed(self) -> bool:
            return True

    done = Done()

    def nothing(*_: object) -> Done:
        return done

    library = quick.found()

    def wrapped(owner: type, method: str, kind: int, long: Callable[..., Any]) -> Any:  # noqa: ANN401
        if library is None:
            return long
        return library.wrap(owner, method, kind, method, (nothing, long))

    group, recording = dist.ProcessGroup, wrap._recording  # noqa: SLF001 - to measure it
    long = wrap.named(recording(nothing, "allreduce", "all_reduce"), "allreduce", nothing)
    collective = wrapped(group, "allreduce", quick.COLLECTIVE, long)
    long = wrap.named(recording(nothing, "send", "send"), "send", nothing)
    send = wrapped(group, "send", quick.SEND_OR_RECEIVE, long)
    wait = wrapped(Done, "wait", quick.WAIT, wrap.named(wrap.waiting(nothing), "wait", nothing))
    bare = per_call(lambda: nothing(world, tensors, options))
    armed = arm._armed  # noqa: SLF001 - same
    recorder = armed.recorder
    watcher = armed.watcher
    if recorder is None or watcher is None:
        raise RuntimeError("not armed")

    def tick() -> None:
        watcher.tick()

    def measure() -> Figures:
        return {
            "collective": per_call(lambda: collective(world, tensors, options)) - bare,
            "wait": per_call(lambda: wait(done)) - bare,
            "send": per_call(lambda: wait(send(world, tensors, 0, 0))) - 2 * bare,
            "tick": per_call(tick),
        }

    return deep(DEPTH, measure)


def gloo() -> Figures:
    """Real all_reduce on Gloo, one rank, with torch's own methods and with the wrapped ones."""
    import torch
    import torch.distributed as dist

    from unhang.record.calls import wrap

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    data = torch.ones(8)
    owners = {name: dist.Work if name == "wait" else dist.ProcessGroup for name in wrap.ORIGINALS}
    wrapped = {name: owner.__dict__[name] for name, owner in owners.items()}

    def use(methods: dict[str, Callable[..., Any]]) -> None:
        for name, owner in owners.items():
            setattr(owner, name, methods[name])

    samples: dict[str, list[tuple[float, float]]] = {"plain": [], "armed": []}
    for _ in range(ROUNDS):
        for kind, methods in (("plain", wrap.ORIGINALS), ("armed", wrapped)):
            use(methods)
            measured = deep(DEPTH, lambda: spread(lambda: dist.all_reduce(data), CALLS // 4))
            samples[kind].append(measured)
    return {
        f"{kind}_{what}": min(pair[index] for pair in pairs)
        for kind, pairs in samples.items()
        for index, what in enumerate(("median", "p99"))
    }


def fake() -> Figures:
    """all_reduce on the backend that does nothing, with a stack of 20 frames; memory when full."""
    import torch
    import torch.distributed as dist

    begin = time.perf_counter()
    dist.init_process_group("fake", rank=0, world_size=2)
    started_ms = (time.perf_counter() - begin) * 1e3
    data = torch.ones(8)
    deep(DEPTH, lambda: spread(lambda: dist.all_reduce(data), CALLS))
    pairs = [
        deep(DEPTH, lambda: spread(lambda: dist.all_reduce(data), CALLS)) for _ in range(ROUNDS)
    ]
    figures = {
        "median": min(pair[0] for pair in pairs),
        "p99": min(pair[1] for pair in pairs),
        "init_ms": started_ms,
    }
    if "unhang" in sys.modules:
        figures["memory_kib"] = _memory(lambda: dist.all_reduce(data))
    return figures


def _memory(call: Callable[[], object]) -> float:
    """What a full ring holds, in KiB: emptied first, then filled under tracemalloc."""
    from unhang.record.calls.ring import Ring
    from unhang.record.process import process

    state = process()
    state.ring = Ring(state.settings.buffer_size)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    deep(DEPTH, lambda: [call() for _ in range(state.settings.buffer_size)])
    return (tracemalloc.get_traced_memory()[0] - before) / 1024


def ddp() -> Figures:
    """Steps of a small DDP model on two Gloo ranks: how long one takes, how often Python calls."""
    import torch
    import torch.distributed as dist

    from unhang.record.contact.beatlayout import Word
    from unhang.record.process import process

    dist.init_process_group("gloo", init_method=os.environ["BENCH_STORE"],
                            rank=int(os.environ["RANK"]), world_size=2)  # fmt: skip
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.ones(64, 512)

    def train_step() -> None:
        model(data).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(5):
        train_step()
    beat = process().beat
    calls, waits, steps = beat.words[Word.CALLS], beat.words[Word.WAITS], 40
    begin = time.perf_counter()
    for _ in range(steps):
        train_step()
    figures = {
        "step_ms": (time.perf_counter() - begin) * 1e3 / steps,
        "calls": (beat.words[Word.CALLS] - calls) / steps,
        "waits": (beat.words[Word.WAITS] - waits) / steps,
    }
    dist.destroy_process_group()
    return figures


WORKERS: dict[str, Callable[[], Figures]] = {"alone": alone, "gloo": gloo, "fake": fake, "ddp": ddp}


# ------------------------------------------------------------------ outside


def start(
    name: str, place: Path, *, armed: bool = True, module: str = "benchmarks.recorder", **env: str
) -> subprocess.Popen[str]:
    """Start a worker, with the start-up hook or without."""
    path = [str(HOOK_DIR)] * armed + [str(ROOT / "src"), str(ROOT)]
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", module, name],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "OMP_NUM_THREADS": "1",
            "UNHANG_RUNTIME_DIR": str(place / "runtime"),
            "UNHANG_DIR": str(place / "cases"),
            "UNHANG_JOB": "bench",
            **env,
        },
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> Figures:
    """What a worker measured.

    Raises:
        RuntimeError: It failed.
    """
    said, _ = process.communicate(timeout=600)
    if process.returncode:
        raise RuntimeError(f"a worker failed with {process.returncode}")
    figures: Figures = json.loads(said.splitlines()[-1])
    return figures


def startup_ms(command: str, place: Path, *, runs: int) -> tuple[float, float]:
    """CPU time of a whole interpreter without and with the hook, the least of runs in turn.

    CPU time and turns, because the wall time of `import torch` spreads more than the hook costs.
    Bytecode is kept, as an installation has it: compiling the recorder takes four times its import.
    """
    source = str(Path(__file__).parents[1] / "src")
    paths = (source, os.pathsep.join([str(HOOK_DIR), source]))
    own = {"UNHANG_RUNTIME_DIR": str(place / "runtime"), "UNHANG_JOB": "bench"}
    own |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(place / "bytecode")}
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        for path, spent in zip(paths, times, strict=True):
            env = {**os.environ, **own, "PYTHONPATH": path}
            before = _children_cpu_s()
            subprocess.run([sys.executable, "-c", command], env=env, check=True)
            spent.append((_children_cpu_s() - before) * 1e3)
    return min(times[0]), min(times[1])


def _children_cpu_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def recorder(*, quick: bool) -> Section:
    """Measure; `quick` takes fewer runs of whole interpreters."""
    runs = 3 if quick else 7
    with scratch() as place:
        own = answer(start("alone", place))
        real = answer(start("gloo", place))
        bare, full = answer(start("fake", place, armed=False)), answer(start("fake", place))
        store = f"file://{place / 'store'}"
        ranks = [start("ddp", place, RANK=str(rank), BENCH_STORE=store) for rank in range(2)]
        step, _ = [answer(rank) for rank in ranks]
        begun = [
            (command or "python", *startup_ms(command, place, runs=count))
            for command, count in (("", runs * 5), ("import torch", runs))
        ]
    return Section(
        title="Recorder",
        text=(
            "What an armed process pays. 'Alone' is CPU time of our code around an empty method; "
            f"the others are wall time; each from the quietest of {ROUNDS} rounds (start-up: "
            "CPU time, the least of its runs). Stacks of 20 frames. Calls "
            "issued from C++ and processes that are not armed pass none of our code. Share of a "
            "step is calls times cost."
        ),
        columns=("what", "without", "with", "added", "budget"),
        rows=(*_call_rows(own, real, bare, full), *_other_rows(own, step, begun, bare, full)),
    )


def _call_rows(
    own: Figures, real: Figures, bare: Figures, full: Figures
) -> list[tuple[str, str, str, str, str]]:
    rows = [
        ("collective that torch records, call and wait, alone", "", "",
         _us(own["collective"] + own["wait"]), "≤ 2 µs"),
        ("send that torch does not record (Gloo), call and wait, alone", "", "",
         _us(own["send"]), ""),
    ]  # fmt: skip
    for what in ("median", "p99"):
        plain, armed = real[f"plain_{what}"], real[f"armed_{what}"]
        rows.append((f"all_reduce on Gloo, {what}", _us(plain), _us(armed), _us(armed - plain), ""))
    for what in ("median", "p99"):
        added = full[what] - bare[what]
        budget = "≤ 15 µs" if what == "median" else ""
        rows.append(
            (f"full recorder, {what}", _us(bare[what]), _us(full[what]), _us(added), budget)
        )
    return rows


def _other_rows(
    own: Figures, step: Figures, begun: list[tuple[str, float, float]], bare: Figures, full: Figures
) -> list[tuple[str, str, str, str, str]]:
    in_step_us = step["calls"] * own["collective"] + step["waits"] * own["wait"]
    in_step_us += own["tick"] * step["step_ms"] / 1e3  # the thread's beat, once a second
    share = in_step_us / (step["step_ms"] * 1e3)
    rows = [
        (
            f"DDP step on Gloo ({step['calls']:.1f} calls from Python)",
            f"{step['step_ms']:.1f} ms", "", f"{share:.4%}", "≤ 0.5 %",
        ),
        ("beat of the thread, once a second", "", "", _us(own["tick"]), ""),
    ]  # fmt: skip
    for what, without, armed in begun:
        rows.append(
            (f"start of `{what}`", f"{without:.0f} ms", f"{armed:.0f} ms",
             f"{armed - without:+.1f} ms", "")
        )  # fmt: skip
    rows += [
        ("init_process_group (fake)", f"{bare['init_ms']:.1f} ms", f"{full['init_ms']:.1f} ms",
         f"{full['init_ms'] - bare['init_ms']:+.1f} ms", ""),
        ("memory of a full ring (2,000 entries)", "", f"{full['memory_kib']:.0f} KiB", "", ""),
    ]  # fmt: skip
    return rows


def _us(value: float) -> str:
    return f"{value:.2f} µs"


SECTIONS = {"recorder": recorder}

if __name__ == "__main__":
    print(json.dumps(WORKERS[sys.argv[-1]]()))
