"""Looks at many processes at once, once or several times: their stacks, states and wait channels.

Every look is bounded in time and so is their number at a time. A process that cannot be looked at
gives a sample that says why; it never stops the others.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from unhang.activity.peers import Peer, peer_of
from unhang.collect.permission import Refusal, refusal
from unhang.collect.processes import Process, read_process, wakes_in_s
from unhang.collect.ranks import TITLE, Target
from unhang.collect.samplers import Sampler, SampleTry, run_sampler, samplers_for
from unhang.model import UNKNOWN_RANK, Note, ProcessSample, ProcessState, Shortage
from unhang.record.statement import handed_on
from unhang.room import killed_beside, reading_of, short_of
from unhang.stacks.roles import role_of_stack

LOOK_TIMEOUT_S = 10.0
_MOST_ASKED = 8
_INSTALL = "Install a sampler: pip install 'unhang[stacks]' (py-spy, pystack)."


@dataclass(frozen=True, slots=True)
class Looks:
    """What looking showed: samples in order of rank and time, and notes with what to do.

    Attributes:
        hints: What to do alone, note by note: a sample's `error` says why.
    """

    samples: tuple[ProcessSample, ...]
    notes: tuple[Note, ...] = ()
    hints: tuple[str, ...] = ()


def sample_processes(
    targets: Sequence[Target],
    *,
    looks: int = 1,
    interval_s: float = 1.0,
    native: bool = False,
    timeout_s: float = LOOK_TIMEOUT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Looks:
    """Look at processes `looks` times, `interval_s` apart.

    Args:
        targets: Whom to look at.
        looks: How often; two tell what moves from what is stuck.
        interval_s: Seconds from the end of one look to the next.
        native: Ask for C and C++ frames too (this pauses the process for a moment).
        timeout_s: For one look at one process with one sampler.
        sleep: How to wait between looks.
    """
    host = socket.gethostname()
    samples: list[ProcessSample] = []
    refusals: dict[Refusal, list[int]] = {}
    short: dict[int, Shortage] = {}
    killed = {t.process.pid: killed_beside(t.process.pid) for t in targets if t.rank >= 0}
    workers = max(1, min(len(targets), 16, 2 * (os.cpu_count() or 1)))
    with ThreadPoolExecutor(workers, "unhang-look") as pool:
        for number in range(looks):
            if number:
                short = _measured(targets, interval_s, sleep)
            jobs = [
                pool.submit(sample_once, target, native=native, timeout_s=timeout_s)
                for target in targets
            ]
            for target, job in zip(targets, jobs, strict=True):
                sample, why = job.result()
                lacked = short.get(target.process.pid)
                beside = killed.get(target.process.pid)
                seen = replace(
                    sample, host=host, sample=number, short_of=lacked, memory_kill=beside
                )
                samples.append(seen)
                if why:
                    refusals.setdefault(why, []).append(target.process.pid)
            asked = [pool.submit(sample_once, each) for each in _asked(samples, number)]
            samples += [replace(j.result()[0], host=host, sample=number) for j in asked]
    ordered = sorted(samples, key=lambda s: (s.rank < 0, s.rank, s.parent_rank, s.pid, s.sample))
    return Looks(tuple(ordered), tuple(_notes(refusals)), tuple(why.hint for why in refusals))


def _asked(samples: Iterable[ProcessSample], number: int) -> Iterable[Target]:
    """The processes of this node for whose answers ranks wait, and that are none of theirs."""
    looked = [sample for sample in samples if sample.sample == number]
    known = {sample.pid for sample in looked}
    pids = {s.peer_pid for s in looked if s.peer_pid and s.rank >= 0} - known
    found = filter(None, map(read_process, sorted(pids)[:_MOST_ASKED]))
    return [Target(process, role="server") for process in found]


def _measured(
    targets: Sequence[Target], interval_s: float, sleep: Callable[[float], None]
) -> dict[int, Shortage]:
    """What each process was short of between two looks, while it is not looked at.

    Looking takes time on cores, and in a container that of the ranks' own group.
    """
    before = [reading_of(target.process.pid) for target in targets]
    sleep(interval_s)
    return {each.pid: short_of(each, reading_of(each.pid)) for each in before if each.threads}


def _notes(refusals: dict[Refusal, list[int]]) -> Iterable[Note]:
    for why, pids in refusals.items():
        unique = sorted(set(pids))
        named = ", ".join(map(str, unique[:5])) + (", …" if len(unique) > 5 else "")  # noqa: PLR2004 - enough to recognise them
        text = f"{why.reason}. {why.hint}".strip()
        yield Note("warning", f"process {named}", text)


def sample_once(
    target: Target, *, native: bool = False, timeout_s: float = LOOK_TIMEOUT_S
) -> tuple[ProcessSample, Refusal | None]:
    """One look at one process: its state first, then its stacks.

    Returns:
        The sample, and why it has no stacks, where a user can do something about it.
    """
    now = read_process(target.process.pid)
    if now is None or now.start_ticks != target.process.start_ticks:
        gone = replace(target.process, state="")
        whose = _without_title(target)
        return _ended(whose, gone, "it ended before unhang could sample it"), None
    if now.state in ("Z", "X"):
        return _bare(
            _without_title(target), now, "it is dead and waits for its parent to collect it"
        ), None
    answer = _ask(now, samplers_for(now, native=native), timeout_s)
    if answer.sample is None:
        return _without_stack(target, now, answer)
    found = replace(_bare(target, now, ""), threads=answer.sample.threads, tool=answer.sample.tool)
    return _with_role(found), None


def _without_title(target: Target) -> Target:
    """A worker that is gone, of an engine: an engine ends all of them after the first."""
    titled = target.how == TITLE
    return replace(target, rank=UNKNOWN_RANK, role="engine") if titled else target


def _ask(process: Process, samplers: Iterable[Sampler], timeout_s: float) -> SampleTry:
    """The first answer with a stack; else the most telling of the problems."""
    problems: list[SampleTry] = []
    for sampler in samplers:
        answer = run_sampler(sampler, process.pid, timeout_s)
        if answer.sample is not None:
            return answer
        problems.append(answer)
        if answer.problem in ("gone", "denied"):
            break
    if not problems:
        return SampleTry(None, "absent", "neither py-spy nor pystack is installed")
    order = ("denied", "gone", "not-python", "timeout", "failed", "absent")
    return min(problems, key=lambda answer: order.index(answer.problem))


def _without_stack(
    target: Target, now: Process, answer: SampleTry
) -> tuple[ProcessSample, Refusal | None]:
    if answer.problem == "denied":
        why = refusal(now)
        return _bare(target, now, f"no permission: {why.reason}"), why
    if answer.problem == "absent":
        return _bare(target, now, answer.text), Refusal(answer.text, _INSTALL)
    again = read_process(now.pid)
    if again is None or again.start_ticks != now.start_ticks:
        return _ended(target, replace(now, state=""), "it ended while unhang sampled it"), None
    if not now.python:
        return _bare(target, again, "it is not a Python process"), None
    if answer.problem == "not-python":
        text = f"its Python is unknown to {answer.text.partition(':')[0]} knows"
        return _bare(target, again, text), None
    return _bare(target, again, answer.text), None


def _ended(target: Target, process: Process, error: str) -> ProcessSample:
    return replace(_bare(target, process, error), gone=True)


def _bare(target: Target, process: Process, error: str) -> ProcessSample:
    peer = peer_of(process.pid) if process.state == "S" else Peer()
    return ProcessSample(
        rank=target.rank,
        host="",
        pid=process.pid,
        role=target.role,
        wakes_s=round(wakes_in_s(process.pid), 1),
        time_ns=time.time_ns(),
        error=error,
        parent_rank=target.parent_rank,
        peer=peer.address,
        peer_pid=peer.pid,
        peer_command=peer.command,
        lock=peer.lock,
        **handed_on(process, ProcessState),
    )


def _with_role(sample: ProcessSample) -> ProcessSample:
    """Let the stack correct the role: an orphaned data-loader worker carries RANK as well."""
    role = role_of_stack(sample)
    if role in ("unknown", sample.role):
        return sample
    parent = sample.parent_rank if sample.rank < 0 else sample.rank
    return replace(sample, role=role, rank=-1, parent_rank=parent)
