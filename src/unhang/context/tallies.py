"""What incidents have in common: hosts, GPUs, links, lines and kinds, by how often and by week.

A host that was a culprit three times in four incidents may be bad, or unlucky: next to each count
stands how likely it is that any host had at least so many by chance, if every host of an incident
were as likely to be blamed. Incidents with one host have no other to blame, and do not count for
that. It is a reason to look at a host, and no verdict.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Final

from unhang.context.recalled import Past, incidents_of
from unhang.wording import count_of

_MOST = 20
CHANCE: Final = (
    "By chance: how likely it is that some host is blamed this often if all hosts are alike. "
    "It is a reason to inspect a host, not a verdict."
)


@dataclass(frozen=True, slots=True)
class Tally:
    """How often something was blamed.

    Attributes:
        count: Incidents in which it was.
        of: Incidents in which it could have been (in which the host took part).
        chance: How likely it is that any had so many by chance; None where that means nothing.
        weeks: "2026-W47": count.
    """

    name: str
    count: int
    of: int
    chance: float | None
    weeks: dict[str, int]

    @property
    def sought(self) -> str:
        """What finds its cases in a list: of a kind its code."""
        return self.name.partition(" ")[0] if self.name.startswith("UH") else self.name


@dataclass(frozen=True, slots=True)
class History:
    """Tallies by what they count, most first, over the incidents of so many cases.

    Attributes:
        weeks: Problems by week, "2026-W47": count, in order of time.
    """

    cases: int
    incidents: int
    problems: int
    hosts: tuple[Tally, ...]
    parts: tuple[Tally, ...]
    places: tuple[Tally, ...]
    kinds: tuple[Tally, ...]
    weeks: dict[str, int] = field(default_factory=dict)

    @property
    def counted(self) -> str:
        """How many there are: "2 incidents, 2 problems, in 3 cases"."""
        told = (count_of(self.incidents, "incident"), count_of(self.problems, "problem"))
        looks = self.cases > self.incidents
        return ", ".join((*told, *((f"in {count_of(self.cases, 'case')}",) if looks else ())))


def history_of(pasts: Sequence[Past]) -> History:
    """Count over incidents: the cases of one run are one, for they are no independent trials."""
    cases, pasts = len(pasts), incidents_of(pasts)
    return History(
        cases=cases,
        incidents=len(pasts),
        problems=sum(past.status == "problem" for past in pasts),
        hosts=_hosts(pasts),
        parts=_counted(pasts, lambda past: past.parts),
        places=_counted(pasts, lambda past: past.places),
        kinds=_counted(pasts, lambda past: (f"{past.code} {past.slug}",) if past.code else ()),
        weeks=dict(
            sorted(Counter(_week(p.time_s) for p in pasts if p.status == "problem").items())
        ),
    )


def _hosts(pasts: Sequence[Past]) -> tuple[Tally, ...]:
    blamed = [past for past in pasts if past.culprit_hosts and len(past.hosts) > 1]
    every = {host for past in blamed for host in past.hosts}
    found = []
    for tally in _counted(pasts, lambda past: past.culprit_hosts):
        there = [past for past in blamed if tally.name in past.hosts]
        shares = [len(past.culprit_hosts) / len(past.hosts) for past in there]
        count = sum(tally.name in past.culprit_hosts for past in there)
        alone = _at_least(shares, count)
        chance = 1.0 - (1.0 - alone) ** len(every) if count > 1 else None
        of = sum(tally.name in past.hosts for past in pasts)
        found.append(Tally(tally.name, tally.count, max(of, tally.count), chance, tally.weeks))
    return tuple(found)


def _at_least(shares: Sequence[float], count: int) -> float:
    """Probability of at least so many successes, each trial with its own (Poisson binomial)."""
    exactly = [1.0]
    for share in shares:
        with_one = [0.0, *(each * share for each in exactly)]
        without = [*(each * (1 - share) for each in exactly), 0.0]
        exactly = [a + b for a, b in zip(with_one, without, strict=True)]
    return min(sum(exactly[count:]), 1.0)


def _counted(pasts: Iterable[Past], names: Callable[[Past], Sequence[str]]) -> tuple[Tally, ...]:
    counts: Counter[str] = Counter()
    weeks: dict[str, Counter[str]] = defaultdict(Counter)
    total = 0
    for past in pasts:
        total += 1
        for name in dict.fromkeys(names(past)):
            counts[name] += 1
            weeks[name][_week(past.time_s)] += 1
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MOST]
    return tuple(
        Tally(name, count, total, None, dict(sorted(weeks[name].items()))) for name, count in most
    )


def _week(time_s: float) -> str:
    try:
        year, week, _ = datetime.fromtimestamp(time_s, tz=timezone.utc).isocalendar()
    except (ValueError, OverflowError, OSError):
        return "unknown"
    return f"{year}-W{week:02}"
