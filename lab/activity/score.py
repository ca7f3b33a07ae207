"""How often the estimate of activity is right, on series it was tuned on and on others."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lab.activity.series import Recorded
from unhang.activity.estimate import Doing, estimate
from unhang.activity.series import Series
from unhang.activity.thresholds import WINDOW_LOOKS


class Judged(NamedTuple):
    """The estimates at all moments of one series, and what is wrong with them, in words."""

    series: Recorded
    said: Mapping[str, int]
    wrong: Mapping[str, int]


def is_held_out(name: str) -> bool:
    """Whether a program is only scored, and no number may be set by it: a third of them."""
    return hashlib.sha256(name.encode()).digest()[0] % 3 == 0


def judged(series: Recorded) -> Judged:
    """Estimate at each moment of a series, by what had been seen until then."""
    said, wrong = Counter[str](), Counter[str]()
    for seen in range(1, len(series.looks) + 1):
        doing = estimate(Series.of(series.looks[:seen][-WINDOW_LOOKS:])).doing
        said[doing.value] += 1
        if (what := _wrong(series.truth, doing)) is not None:
            wrong[what] += 1
    return Judged(series, said, wrong)


def _wrong(truth: str, doing: Doing) -> str | None:
    """What is wrong with an estimate; a computation is right for loops with and without an end."""
    if truth == "works":
        stuck = doing in (Doing.BLOCKED, Doing.POLLING, Doing.STOPPED, Doing.EXITED)
        return "called stuck" if stuck else None
    moves = doing in (Doing.WORKING, Doing.DISK)
    moves = moves or (doing is Doing.COMPUTING and truth != "spins")
    return "called working" if moves else None


_SHOWN = ("working", "computing", "polling", "blocked", "uninterruptible", "unknown")


def table_of(all_judged: Iterable[Judged]) -> str:
    """The accuracy, as a table in Markdown: a row for each truth, tuned on and held out."""
    rows: dict[tuple[bool, str], Counter[str]] = {}
    for each in all_judged:
        row = rows.setdefault((is_held_out(each.series.name), each.series.truth), Counter())
        row.update(each.said)
        row["series"] += 1
        row["wrong"] += sum(each.wrong.values())
    head = ("series", "truth", "programs", *_SHOWN, "wrong")
    lines = [head, ("---",) * len(head)]
    for (held, truth), row in sorted(rows.items()):
        told = (row[name] for name in ("series", *_SHOWN, "wrong"))
        lines.append(("held out" if held else "tuned on", truth, *(f"{n:,}" for n in told)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def wrongs_of(all_judged: Iterable[Judged]) -> list[str]:
    """Each series with a wrong estimate, and how often."""
    return [
        f"{each.series.name} ({each.series.under or 'quiet'}): {what} {count} times"
        for each in all_judged
        for what, count in each.wrong.items()
    ]
