"""After a failed communication test: run parts of it until one explanation is left.

First without the ranks that were named; then with other transports and interfaces; then one node
at a time, halves, and pairs; inside a node that fails alone the same with its GPUs. What fails once
and passes when it is repeated names no rank.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from unhang.checks import COMM_ISOLATED
from unhang.doctor.agents.comm import tournament
from unhang.doctor.checks.results import CheckResult
from unhang.doctor.comm.teams import Participant, Team, hosts_of
from unhang.report import Subject
from unhang.wording import fold_ranks, printable

FULL_TABLE = 8
"""Units up to which all pairs are tried; above, halves come first."""

Fails = Callable[[Sequence[Team], Mapping[str, str], Mapping[str, Mapping[str, str]]], list[bool]]
Unit = tuple[str, Team]
"""A node or a rank by the name that it has in sentences, and its places."""
Pair = tuple[str, str]

# What can be switched off, and what it means if that makes the test pass.
VARIANTS: Mapping[str, tuple[tuple[dict[str, str], str], ...]] = {
    "nccl": (
        ({"NCCL_P2P_DISABLE": "1"}, "direct GPU-to-GPU transfers (P2P)"),
        ({"NCCL_SHM_DISABLE": "1"}, "shared memory between ranks of a node"),
        ({"NCCL_IB_DISABLE": "1"}, "InfiniBand or RoCE"),
        ({"NCCL_NET": "Socket"}, "the network plugin"),
        ({"NCCL_NVLS_ENABLE": "0"}, "NVLink SHARP"),
    ),
    "gloo": (),
}
IFNAME = {"nccl": "NCCL_SOCKET_IFNAME", "gloo": "GLOO_SOCKET_IFNAME"}


class _TimeUpError(Exception):
    """No time is left for another round."""


@dataclass(slots=True)
class Search:
    """Runs parts of the test while there is time.

    Attributes:
        fails: Runs teams at the same time and says which of them fail.
        seconds: For everything.
    """

    fails: Fails
    say: Callable[[str], None] = lambda _: None
    seconds: float = 600.0
    _begun: float = field(default_factory=time.monotonic)

    def each(
        self,
        teams: Sequence[Team],
        settings: Mapping[str, str] | None = None,
        by_node: Mapping[str, Mapping[str, str]] | None = None,
    ) -> list[bool]:
        """Which of some teams fail; raises when the time is up."""
        if time.monotonic() - self._begun > self.seconds:
            raise _TimeUpError
        return self.fails(teams, settings or {}, by_node or {})


def isolate(
    team: Team,
    named: frozenset[int],
    backend: str,
    interfaces: Mapping[str, str],
    search: Search,
) -> list[CheckResult]:
    """What is left as the explanation of a failed test.

    Args:
        team: All ranks.
        named: Those that the failure itself names.
        backend: "gloo" or "nccl".
        interfaces: Per node, the interface that carries its address, if it is not set already.
        search: Runs parts of the test.
    """
    results: list[CheckResult] = []
    try:
        for result in _explanations(team, named, backend, interfaces, search):
            results.append(result)  # noqa: PERF402 - kept when the time is up half-way
    except _TimeUpError:
        seen = f"stopped isolating after {search.seconds:.0f} s."
        results.append(CheckResult(COMM_ISOLATED, "info", seen))
    return results


def _explanations(
    team: Team,
    named: frozenset[int],
    backend: str,
    interfaces: Mapping[str, str],
    search: Search,
) -> Iterator[CheckResult]:
    rest = tuple(place for place in team if place.rank not in named)
    if named:
        if not rest or (len(rest) == 1 and len(team) > 2):  # noqa: PLR2004 - one rank proves little
            return
        search.say("once more without the named ranks")
        whom = f"rank{'s' if len(named) > 1 else ''} {fold_ranks(named)}"
        if not search.each([rest])[0]:
            yield CheckResult(
                COMM_ISOLATED, "info", f"without {whom} the test passes: nothing else is wrong."
            )
            return
        yield CheckResult(COMM_ISOLATED, "info", f"without {whom} the test still fails.")
    found = _other_interface(rest, backend, interfaces, search)
    if found is not None:
        yield found
        return
    yield from _other_transport(rest, backend, search)
    yield from _places(_units(rest, backend), search)


def _other_interface(
    team: Team, backend: str, interfaces: Mapping[str, str], search: Search
) -> CheckResult | None:
    """What is left if the test passes on the interfaces that carry the nodes' addresses."""
    name = IFNAME[backend]
    by_node = {place.node: {name: interfaces[place.node]}
               for place in team if interfaces.get(place.node)}  # fmt: skip
    if len(hosts_of(team)) == 1:
        by_node = {place.node: {name: "lo"} for place in team}
    elif len(by_node) < len({place.node for place in team}):
        return None
    used = ",".join(sorted({own[name] for own in by_node.values()}))
    search.say(f"with {name}={used}")
    if search.each([team], {}, by_node)[0]:
        return None
    return _passes_with({name: used}, f"the interface that {backend} chose")


def _other_transport(team: Team, backend: str, search: Search) -> Iterator[CheckResult]:
    """The first transport without which the test passes."""
    for settings, what in VARIANTS[backend]:
        search.say(f"without {what}")
        if not search.each([team], settings)[0]:
            yield _passes_with(settings, what)
            return


def _passes_with(settings: Mapping[str, str], what: str) -> CheckResult:
    words = " ".join(f"{key}={printable(value, 80)}" for key, value in settings.items())
    subjects = tuple(Subject("setting", word) for word in words.split())
    action = f"Run with {words} until it is repaired."
    seen = f"with {words} the test passes: {what} remains as the cause."
    return CheckResult(COMM_ISOLATED, "fail", seen, subjects, action=action)


def _units(team: Team, backend: str) -> list[Unit]:
    """Nodes where there are several, else the GPUs or ranks of the one."""
    hosts = hosts_of(team)
    if len(hosts) > 1:
        return [(host, tuple(p for p in team if p.host == host)) for host in hosts]
    return [(_name(place, backend), (place,)) for place in team]


def _name(place: Participant, backend: str) -> str:
    return f"{place.host} gpu {place.local}" if backend == "nccl" else f"rank {place.rank}"


def _subject(unit: Unit) -> Subject:
    name, team = unit
    host = team[0].host
    if name == host:
        return Subject("host", host, host=host)
    if "gpu" in name:
        return Subject("gpu", name, host=host)
    return Subject("process", name, host=host, rank=team[0].rank)


def _places(units: Sequence[Unit], search: Search) -> Iterator[CheckResult]:
    """One unit at a time, then pairs; inside a node that fails alone, its parts."""
    if len(units) <= 1:
        yield CheckResult(
            COMM_ISOLATED, "warn", "this one rank remains: library, device or machine."
        )
        return
    search.say(f"each of {len(units)} alone")
    alone = _failing_twice([team for _, team in units], search)
    bad = [unit for unit, fails in zip(units, alone, strict=True) if fails]
    if bad:
        names = ", ".join(printable(name, 80) for name, _ in bad[:8])
        verb = "fails" if len(bad) == 1 else "fail"
        yield CheckResult(COMM_ISOLATED, "fail", f"{names} {verb} alone, without any other.",
                     tuple(map(_subject, bad[:16])))  # fmt: skip
        if len(bad) == 1 and len(bad[0][1]) > 1:
            yield from _places([(_name(p, "nccl"), (p,)) for p in bad[0][1]], search)
        return
    yield from explain(units, *bad_pairs(units, search))


def _failing_twice(teams: Sequence[Team], search: Search) -> list[bool]:
    """Which teams fail, and fail again when they are run once more."""
    first = search.each(teams)
    failed = [team for team, fails in zip(teams, first, strict=True) if fails]
    again = iter(search.each(failed) if failed else ())
    return [fails and next(again) for fails in first]


def bad_pairs(units: Sequence[Unit], search: Search) -> tuple[set[Pair], set[Pair]]:
    """Pairs that fail, and all that were tried: all of a few, of many those behind bad halves.

    Every unit passes alone, so what fails lies between two of them, or takes more than two.
    """
    if len(units) > FULL_TABLE:
        halves = units[: len(units) // 2], units[len(units) // 2 :]
        search.say(f"halves of {len(units)}")
        fails = search.each([tuple(p for _, team in half for p in team) for half in halves])
        if any(fails):
            found = [
                bad_pairs(half, search) for half, bad in zip(halves, fails, strict=True) if bad
            ]
            return set().union(*(b for b, _ in found)), set().union(*(t for _, t in found))
        left, right = halves
        rounds = [[(left[i], right[(i + turn) % len(right)]) for i in range(len(left))]
                  for turn in range(len(right))]  # fmt: skip
    else:
        rounds = [[(units[a], units[b]) for a, b in one] for one in tournament(len(units))]
    bad: set[Pair] = set()
    tried: set[Pair] = set()
    for number, pairs in enumerate(rounds):
        search.say(f"pairs, {number + 1} of {len(rounds)}")
        names = [(a[0], b[0]) for a, b in pairs]
        failed = _failing_twice([a[1] + b[1] for a, b in pairs], search)
        tried |= set(names)
        bad |= {name for name, fails in zip(names, failed, strict=True) if fails}
    return bad, tried


def explain(units: Sequence[Unit], bad: set[Pair], tried: set[Pair]) -> Iterator[CheckResult]:
    """Name the units or links that are left: never one that works with another.

    A unit is named if it fails with every other that it was tried with, at least two of them, and
    some others work among themselves; else the pairs that fail are.
    """
    known = {unit[0]: unit for unit in units}
    if not bad:
        seen = "every rank alone and every pair passes: it takes more than two."
        doubt = "no pair fails by itself, so no rank or link can be named"
        yield CheckResult(COMM_ISOLATED, "warn", seen, doubt=doubt)
        return
    if bad == tried and len(tried) > 1:
        seen = "every pair fails and every rank alone passes: what connects them all remains."
        doubt = "all pairs fail alike, so no rank or link can be named"
        yield CheckResult(COMM_ISOLATED, "fail", seen, doubt=doubt)
        return
    left = set(bad)
    partners = Counter(name for pair in tried for name in pair)
    while left:
        counts = Counter(name for pair in left for name in pair)
        name, count = counts.most_common(1)[0]
        if count < 2 or sum(name in pair for pair in bad) < partners[name]:  # noqa: PLR2004 - a link has two ends
            break
        left = {pair for pair in left if name not in pair}
        seen = f"every pair with {printable(name, 80)} fails: it remains as the cause."
        yield CheckResult(COMM_ISOLATED, "fail", seen, (_subject(known[name]),))
    if left:
        words = ", ".join(f"{printable(a, 60)} and {printable(b, 60)}" for a, b in sorted(left)[:8])
        subjects = tuple(Subject("link", f"{a} - {b}") for a, b in sorted(left)[:16])
        verb = "this pair fails" if len(left) == 1 else "these pairs fail"
        alone = "each of them works alone" if len(units) <= 2 else "each works with others"  # noqa: PLR2004 - a pair
        yield CheckResult(COMM_ISOLATED, "fail", f"only {verb}: {words}; {alone}.", subjects)
