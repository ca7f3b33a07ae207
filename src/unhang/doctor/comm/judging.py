"""Judge the communication test: who did not arrive, what was wrong, which pairs are slow."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unhang.checks import (
    COMM_ALLOCATION,
    COMM_BANDWIDTH,
    COMM_NOT_STARTED,
    COMM_RANKS_MISSING,
    COMM_SLOW_PAIR,
    COMM_STUCK,
    COMM_WRONG_VALUES,
)
from unhang.doctor.agents.ranks import Trace
from unhang.doctor.checks.results import CheckResult
from unhang.doctor.comm.isolate import Search, isolate
from unhang.doctor.comm.teams import Drill, Participant, Runner, Team, hosts_of
from unhang.report import Subject
from unhang.wording import fold_ranks, printable

SIZES = tuple(1 << power for power in (10, 14, 18, 22, 24))
"""Bytes of the timed collectives: 1 KB to 16 MB."""
SLOW_PAIR = 6.0
SLOW_PAIR_MS = 20.0
SLOW_LATENCY_US = 5_000.0
MIN_PAIRS = 3
"""Fewer have no median worth the name."""
MAX_PAIRS_AMONG = 64
MAX_CONFIRMED = 8
Say = Callable[[str], None]
_LOCAL_STEPS = {"load": COMM_NOT_STARTED, "allocate": COMM_ALLOCATION}
"""Steps in which a rank has nothing to do with any other -> the check of theirs."""
_STATES = {
    "T": "its process is stopped",
    "t": "its process is held by a debugger",
    "D": "its process hangs inside the kernel",
    "Z": "its process is dead",
    "R": "its process runs, and does not answer",
    "S": "its process sleeps",
}


@dataclass(frozen=True, slots=True)
class CommPlan:
    """How the test is run.

    Attributes:
        backend: "gloo" or "nccl".
        timeout, start: As `Drill` has them, in s.
        isolate_s: For isolating after a failure; 0 leaves it out.
        interfaces: Per node, the network interface that carries its address; may be empty.
    """

    backend: str = "gloo"
    timeout: float = 60.0
    start: float = 60.0
    isolate_s: float = 600.0
    sizes: tuple[int, ...] = SIZES
    allocate: int = 64 << 20
    interfaces: Mapping[str, str] = field(default_factory=dict)


def run_comm(
    team: Team, plan: CommPlan, runner: Runner, say: Say = lambda _: None
) -> list[CheckResult]:
    """Run the test, judge it, and on failure look for the smallest set that still fails."""
    short = Drill(plan.backend, plan.timeout, plan.start, allocate=plan.allocate)
    whole = replace(short, sizes=plan.sizes, pairs=True)
    say(f"{len(team)} ranks on {plan.backend}: every collective, then timings")
    (traces,) = runner.run([team], whole, {}, {})
    results = judge(traces, plan.backend)
    failed = any(result.level == "fail" for result in results)
    if not failed:
        return [*results, *_slow_pairs(team, traces, whole, runner)]
    if plan.isolate_s > 0:
        say("a step failed: isolating the cause")

        def fails(
            teams: Sequence[Team],
            settings: Mapping[str, str],
            by_node: Mapping[str, Mapping[str, str]],
        ) -> list[bool]:
            told = runner.run(teams, short, settings, by_node)
            return [any(r.level == "fail" for r in judge(one, plan.backend)) for one in told]

        named = frozenset(rank for result in results for rank in result.ranks)
        search = Search(fails, say, plan.isolate_s)
        results += isolate(team, named, plan.backend, plan.interfaces, search)
    return results


def judge(traces: Sequence[Trace], backend: str) -> list[CheckResult]:
    """What the traces of all ranks of one team say together.

    A rank is named only if it was not heard of, died, fell silent, or failed in what it does
    alone. Ranks that came and could not finish are no culprits: what carries the data is.
    """
    if all(trace.ended for trace in traces) and not any(trace.wrong for trace in traces):
        count = len(traces[0].done)
        seen = f"{count} steps with {_count(traces)} on {backend} passed."
        return [CheckResult(COMM_RANKS_MISSING, "ok", seen), *_bandwidth(traces)]
    if all("No module named 'torch'" in trace.error for trace in traces):
        return [_no_torch(traces)]
    unheard = [trace for trace in traces if not trace.entered]
    silent = [t for t in traces if t.entered and not (t.ended or t.timed_out or t.error)]
    alone = [t for t in traces if t.entered in _LOCAL_STEPS and (t.timed_out or t.error)]
    results = [*_wrong(traces), *_failed_alone(alone)]
    if unheard:
        results.append(_not_started(unheard))
    if silent:
        results.append(_missing(silent, traces))
    if not results:
        results.append(_stuck(traces))
    return results


def _count(traces: Sequence[Trace]) -> str:
    hosts = len({trace.host for trace in traces})
    ranks = f"{len(traces)} rank{'s' if len(traces) > 1 else ''}"
    return ranks + (f" on {hosts} nodes" if hosts > 1 else "")


def _subjects(traces: Sequence[Trace]) -> tuple[Subject, ...]:
    return tuple(
        Subject("process", f"rank {t.rank} (pid {t.pid} on {t.host})", rank=t.rank,
                host=t.host or None, pid=t.pid if t.pid > 0 else None)
        for t in traces[:16]
    )  # fmt: skip


def _ranks(traces: Sequence[Trace]) -> str:
    return f"rank{'s' if len(traces) > 1 else ''} {fold_ranks(t.rank for t in traces)}"


def _where(traces: Sequence[Trace]) -> str:
    """The hosts of some ranks, as people write them."""
    hosts = list(dict.fromkeys(trace.host for trace in traces))
    more = f" and {len(hosts) - 4} more" if len(hosts) > 4 else ""  # noqa: PLR2004 - fit a sentence
    return ", ".join(printable(host, 80) for host in hosts[:4]) + more


def _no_torch(traces: Sequence[Trace]) -> CheckResult:
    seen = f"the Python on {_where(traces)} has no torch: unhang tested nothing."
    action = "Name the job's Python with --python."
    return CheckResult(COMM_NOT_STARTED, "skip", f"{seen} {action}", action=action)


def _not_started(unheard: Sequence[Trace]) -> CheckResult:
    evidence = tuple(
        f"rank {t.rank} on {t.host}: {printable(t.output.strip().splitlines()[-1], 300)}"
        for t in unheard[:4]
        if t.output.strip()
    )
    seen = f"{_ranks(unheard)} of the test on {_where(unheard)} sent nothing."
    ranks = tuple(t.rank for t in unheard)
    return CheckResult(COMM_NOT_STARTED, "fail", seen, _subjects(unheard), ranks, evidence)


def _failed_alone(bad: Sequence[Trace]) -> Iterator[CheckResult]:
    """Ranks that failed before they had to do with others."""
    for step, check in _LOCAL_STEPS.items():
        here = [trace for trace in bad if trace.entered == step]
        if here:
            what = "load torch" if step == "load" else "fill and read back its own memory"
            seen = f"{_ranks(here)} on {_where(here)} could not {what}."
            evidence = tuple(
                f"rank {t.rank}: {printable(t.error, 300) or 'it took too long'}" for t in here[:8]
            )
            yield CheckResult(
                check, "fail", seen, _subjects(here), tuple(t.rank for t in here), evidence
            )


def _wrong(traces: Sequence[Trace]) -> Iterator[CheckResult]:
    bad = [trace for trace in traces if trace.wrong]
    if bad:
        steps = list(dict.fromkeys(step for trace in bad for step in trace.wrong))
        check = COMM_ALLOCATION if steps == ["allocate"] else COMM_WRONG_VALUES
        evidence = tuple(
            f"rank {t.rank} on {t.host}, {step}: {printable(said, 200)}"
            for t in bad[:8]
            for step, said in t.wrong.items()
        )
        seen = f"{_ranks(bad)} on {_where(bad)} got wrong values in {', '.join(steps)}."
        yield CheckResult(check, "fail", seen, _subjects(bad), tuple(t.rank for t in bad), evidence)


def _missing(silent: Sequence[Trace], traces: Sequence[Trace]) -> CheckResult:
    """Ranks that died or fell silent, and where the others waited for them."""
    waiting = [t for t in traces if t not in silent and t.entered and not t.ended]
    seen = f"{_ranks(silent)} on {_where(silent)} did not arrive"
    if waiting:
        last = max(waiting, key=lambda trace: len(trace.done))
        seen += f" in {last.entered}, in which {_ranks(waiting)} waited"
    evidence = []
    for trace in silent[:8]:
        state = _STATES.get(trace.state, "its process does not answer")
        if trace.exit_code is not None:
            how = f"signal {-trace.exit_code}" if trace.exit_code < 0 else f"{trace.exit_code}"
            state = f"its process ended with {how}"
        evidence.append(f"rank {trace.rank} was last heard of in {trace.entered}; {state}")
    ranks = tuple(t.rank for t in silent)
    return CheckResult(
        COMM_RANKS_MISSING, "fail", f"{seen}.", _subjects(silent), ranks, tuple(evidence)
    )


def _stuck(traces: Sequence[Trace]) -> CheckResult:
    """All came, and what carries their data did not."""
    unfinished = [trace for trace in traces if not trace.ended]
    by_step: dict[str, list[Trace]] = defaultdict(list)
    for trace in unfinished:
        by_step[trace.entered].append(trace)
    step, there = max(by_step.items(), key=lambda item: len(item[1]))
    evidence = [f"{_ranks(some)} on {_where(some)} ended in {name}"
                for name, some in by_step.items()] if len(by_step) > 1 else []  # fmt: skip
    evidence += [f"rank {t.rank} on {t.host}: {printable(t.error, 300)}"
                 for t in unfinished if t.error]  # fmt: skip
    if step in ("connect", "meet"):
        seen = "the ranks could not reach the first one's store, and none of them is silent."
    else:
        who = f"{len(there)} of the" if len(there) < len(traces) else "all"
        seen = f"{who} {len(traces)} ranks entered {step} and it did not finish."
    return CheckResult(COMM_STUCK, "fail", seen, evidence=tuple(evidence[:8]))


def _bandwidth(traces: Sequence[Trace]) -> list[CheckResult]:
    rows = [row for row in traces[0].rows if row.get("event") == "bandwidth"]
    if not rows:
        return []
    table = tuple(
        f"{row['op']:<14}{row['bytes']:>9} B {row['us']:>10.1f} us {row['algbw']:>8.3f} "
        f"{row['busbw']:>8.3f} GB/s"
        for row in rows
    )
    first = [row for row in rows if row["op"] == "all_reduce"]
    best = max(row["busbw"] for row in first)
    seen = (
        f"all_reduce reaches {best:.2f} GB/s (bus bandwidth as nccl-tests computes it); "
        f"{first[0]['bytes']} bytes take {first[0]['us']:.0f} us."
    )
    head = f"{'operation':<14}{'size':>9}   {'time':>10}      {'algbw':>5}    {'busbw':>5}"
    return [CheckResult(COMM_BANDWIDTH, "info", seen, evidence=(head, *table))]


def _slow_pairs(
    team: Team, traces: Sequence[Trace], test: Drill, runner: Runner
) -> Iterator[CheckResult]:
    """Pairs far from the median of their kind, if they are so again when no other pair talks."""
    if len(team) > MAX_PAIRS_AMONG:
        seen = (
            f"pairs were not timed one by one: {len(team)} ranks are more than {MAX_PAIRS_AMONG}."
        )
        yield CheckResult(COMM_SLOW_PAIR, "skip", seen)
    hosts = {place.rank: place.host for place in team}
    kinds: dict[bool, list[Mapping[str, float]]] = defaultdict(list)
    for trace in traces:
        for row in trace.rows:
            if row.get("event") == "pair":
                kinds[hosts[int(row["a"])] == hosts[int(row["b"])]].append(row)
    by_rank = {place.rank: place for place in team}
    for rows in kinds.values():
        if len(rows) < MIN_PAIRS:
            continue
        usual = {key: statistics.median(row[key] for row in rows) for key in ("ms", "us")}
        for row in [row for row in rows if _is_slow(row, usual)][:MAX_CONFIRMED]:
            pair = (by_rank[int(row["a"])], by_rank[int(row["b"])])
            again = _timed_alone(pair, test, runner)
            if again and _is_slow(again, usual):
                yield _slow_pair(pair, again, usual)


def _timed_alone(
    pair: tuple[Participant, Participant], test: Drill, runner: Runner
) -> Mapping[str, float] | None:
    (traces,) = runner.run([pair], replace(test, sizes=()), {}, {})
    return next((row for t in traces for row in t.rows if row.get("event") == "pair"), None)


def _is_slow(row: Mapping[str, float], usual: Mapping[str, float]) -> bool:
    carries = row["ms"] > max(usual["ms"] * SLOW_PAIR, SLOW_PAIR_MS)
    return carries or row["us"] > max(usual["us"] * SLOW_PAIR, SLOW_LATENCY_US)


def _slow_pair(
    pair: tuple[Participant, Participant], row: Mapping[str, float], usual: Mapping[str, float]
) -> CheckResult:
    names = [f"rank {p.rank} ({printable(p.host, 60)})" for p in pair]
    seen = (
        f"{names[0]} and {names[1]}: {row['us']:.0f} us one way and {row['ms']:.1f} ms for 1 MB "
        f"there and back; the median pair takes {usual['us']:.0f} us and {usual['ms']:.1f} ms."
    )
    hosts = hosts_of(pair)
    link = " - ".join(hosts if len(hosts) > 1 else [f"rank {place.rank}" for place in pair])
    doubt = "this is one measurement, and other traffic slows a link too"
    return CheckResult(COMM_SLOW_PAIR, "warn", seen, (Subject("link", link),), doubt=doubt)
