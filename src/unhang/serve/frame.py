"""One frame of `unhang top`: what runs here as lines of a terminal of any size.

What is the same on the live page is taken from the same looks (`run.watching.now`) and verdicts.
Ranks for which others wait, and those that have ended, stand first where not all have room.
"""

from __future__ import annotations

import textwrap
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from rich.text import Text

from unhang.context.recalled import Past
from unhang.run.watching.now import GroupNow, JobNow, RankNow
from unhang.wording import count_of, printable, rank_phrase

_BARS = " ▁▂▃▄▅▆▇█"
_ASCII_BARS = " .:-=+*#@"
_TREND = 8
_HEAD = f"{'rank':>5} {'state':9} {'finished':>9} {'per s':>7} {'trend':{_TREND}} {'quiet':>7} "
_STYLES = {"problem": "bold red", "slow": "bold yellow", "insufficient": "bold yellow"}
_MINUTE_S, _LONG_S = 60, 600
_VERDICT_LINES = 3
_LEAST_RANKS = 3


@dataclass(frozen=True, slots=True)
class Screen:
    """Where a frame is drawn.

    Attributes:
        width, height: In characters; a height of 0 shows all ranks.
        ascii: The terminal knows nothing else.
        live: It is drawn again and again: keys can be pressed.
    """

    width: int = 80
    height: int = 24
    ascii: bool = False
    live: bool = False


@dataclass(slots=True)
class Trends:
    """What each rank had finished at the last looks, by job and process."""

    _seen: dict[tuple[str, int], deque[int]] = field(default_factory=dict)

    def add(self, jobs: Sequence[JobNow]) -> None:
        """One more look."""
        for job in jobs:
            for rank in job.ranks:
                kept = self._seen.setdefault((job.job, rank.pid), deque(maxlen=_TREND + 1))
                kept.append(rank.finished)

    def drawn(self, job: str, pid: int, bars: str) -> str:
        """How many calls ended from look to look, against the most of these looks."""
        steps = [max(to - from_, 0) for from_, to in pairwise(self._seen.get((job, pid), ()))]
        most = max(steps, default=0) or 1
        return "".join(bars[-(-each * (len(bars) - 1) // most)] for each in steps)


def frame_of(
    jobs: Sequence[JobNow],
    chosen: int,
    trends: Trends,
    verdicts: Mapping[str, Past],
    window: Screen,
) -> list[Text]:
    """The lines of a frame, no more and no wider than the window.

    Args:
        jobs: What runs here.
        chosen: Which of them is shown, by index.
        trends: What earlier looks saw.
        verdicts: The newest of each job, by its name.
        window: How much room there is.
    """
    if not jobs:
        lines = [Text("No armed rank runs here: start the job with unhang run -- CMD…")]
    else:
        chosen %= len(jobs)
        lines = list(_lines(jobs, chosen, trends, verdicts.get(jobs[chosen].job), window))
    if window.live:
        keys = "q ends" if len(jobs) < 2 else "n next job, q ends"  # noqa: PLR2004 - a choice
        lines.append(Text(keys, "dim"))
    for line in lines:
        line.truncate(window.width, overflow="ellipsis")
        if window.ascii:
            line.plain = line.plain.replace("…", "~").encode("ascii", "replace").decode("ascii")
    return lines[: window.height or None]


def _lines(
    jobs: Sequence[JobNow], chosen: int, trends: Trends, past: Past | None, window: Screen
) -> Iterator[Text]:
    job = jobs[chosen]
    head = [_title(job, chosen, len(jobs)), *_verdict(past, window.width), Text()]
    waits = list(_waits(job.groups))
    taken = len(head) + 1 + (len(waits) + 1 if waits else 0) + 1 + window.live
    room = max(window.height - taken, _LEAST_RANKS) if window.height else len(job.ranks)
    shown = _first(job.ranks, room)
    yield from head
    yield Text(f"{_HEAD}{'step':>6} last call", "bold")
    bars = _ASCII_BARS if window.ascii else _BARS
    for rank in shown:
        yield _row(rank, trends.drawn(job.job, rank.pid, bars))
    if len(shown) < len(job.ranks):
        yield Text(_rest([rank for rank in job.ranks if rank not in shown]), "dim")
    if waits:
        yield Text()
        yield from waits


def _title(job: JobNow, chosen: int, of: int) -> Text:
    name = printable(job.job, 40) or "without a name"
    here = f"{len(job.ranks):,} of {job.world_size:,} ranks here"
    several = f"  (job {chosen + 1} of {of})" if of > 1 else ""
    return Text(f"job {name} on {printable(job.host, 40)}: {here}{several}", "bold")


def _verdict(past: Past | None, width: int) -> Iterator[Text]:
    """The newest verdict in as many lines as it has, with the command that shows it whole."""
    if past is None:
        yield Text("no verdict: it comes by itself when the job hangs under unhang run", "dim")
        return
    words = f"{past.status.upper()}  {printable(past.summary)}"
    lines = textwrap.wrap(words, max(width, 20), max_lines=_VERDICT_LINES, placeholder=" …")
    for line in lines:
        yield Text(line, _STYLES.get(past.status, "bold green"))
    yield Text(f"unhang diagnose {_shown(past.path)}", "dim")


def _shown(path: Path) -> str:
    try:
        return printable(str(path.relative_to(Path.cwd())))
    except ValueError:
        return printable(str(path))


def _first(ranks: Sequence[RankNow], room: int) -> list[RankNow]:
    """As many ranks as have room, in order; of more, those that say most."""
    if len(ranks) <= room:
        return list(ranks)
    telling = sorted(ranks, key=lambda r: (r.alive, -(r.late or 0), -r.behind, r.rank))
    return sorted(telling[: room - 1], key=lambda rank: rank.rank)


def _rest(ranks: Sequence[RankNow]) -> str:
    states = [_state(rank) or "state not known" for rank in ranks]
    counts = ", ".join(f"{states.count(each):,} {each}" for each in dict.fromkeys(states))
    return f"and {count_of(len(ranks), 'more rank')}: {counts}"


def _state(rank: RankNow) -> str:
    if not rank.alive:
        return "ended"
    return "" if rank.waiting is None else "in a call" if rank.waiting else "away"


def _row(rank: RankNow, trend: str) -> Text:
    rate = "" if rank.per_s is None else f"{rank.per_s:,.1f}"
    step = "" if rank.step is None else f"{rank.step:,}"
    line = Text(f"{rank.rank:>5} ")
    line.append(f"{_state(rank):9}", "red" if not rank.alive else "")
    line.append(f" {rank.finished:>9,} {rate:>7} ")
    line.append(f"{trend:>{_TREND}}", "cyan")
    line.append(f" {_quiet(rank):>7} {step:>6} ")
    line.append(_place(rank.where))
    if rank.late is not None and rank.late >= _AWAITED_PERCENT:
        line.stylize("bold red")
    return line


_AWAITED_PERCENT = 50
"""Of the last looks: a rank for which others waited in most of them, as on the live page."""


def _quiet(rank: RankNow) -> str:
    """For how long no call has ended; what only these looks tell is a lower bound."""
    if rank.quiet_s is None and rank.still_s:
        return f">{_span(rank.still_s)}"
    return _span(rank.quiet_s)


def _span(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < _LONG_S:
        return f"{seconds:,.0f} s"
    return f"{seconds / _MINUTE_S:,.0f} min"


def _place(where: str) -> str:
    """A call with the end of its path, whose beginning is the same for all ranks."""
    op, at, place = printable(where).rpartition(" at ")
    return f"{op} {place.rpartition('/')[2]}" if at else place


def _waits(groups: Sequence[GroupNow]) -> Iterator[Text]:
    """Who waits for whom, a group a line."""
    for group in groups:
        if group.behind:
            waiting = [rank for rank in group.ranks if rank not in group.behind]
            name = group.description if group.description not in ("", "undefined") else group.name
            told = f"{rank_phrase(waiting, 6)} {'waits' if len(waiting) == 1 else 'wait'} for "
            yield Text(f"{printable(name, 30)}: {told}{rank_phrase(group.behind, 6)}", "yellow")
