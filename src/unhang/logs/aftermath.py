"""How a log ends: what further steps take back, and what its last lines say of trouble.

A failure after which its own rank counted on did not end the job. It keeps the end of the log, and
nothing more of it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from unhang.logs.keeping import REPORTS
from unhang.logs.lines.anchors import wanted_by
from unhang.logs.lines.ending import TAIL, troubled
from unhang.logs.lines.prefixes import parse_line
from unhang.logs.lines.serving import standing_still
from unhang.logs.lines.signs import (
    ENOUGH,
    StepLine,
    ended_well,
    goes_on,
    step_lines,
    told_to_stand,
)
from unhang.logs.rules.known import SERVING_STALLED
from unhang.logs.telling import Teller, first_of

WINDOW = 1 << 20
"""Bytes at the end of a log in which steps are looked for that take a failure back."""
MANY_STEPS = 10
"""Different steps that must follow a failure of no known rank before it is taken back."""

_WHOLE = re.compile(".*")


@dataclass(slots=True)
class LogEnd:
    """The end of a log, as far as it was read."""

    data: bytes = b""

    def add(self, block: bytes) -> None:
        """Take the next block of whole lines."""
        whole = block if len(block) >= WINDOW else self.data + block
        self.data = whole[-WINDOW:]

    def take_back(self, teller: Teller) -> None:
        """Take back the causes after which their own ranks counted further steps.

        Others may count a step or two after a rank has failed, so that a cause whose rank is not
        known needs many more.
        """
        kept = teller.kept
        if not kept.causes:
            return
        begin = teller.spot.offset - len(self.data)
        first = max(min(kept.causes.values()) - begin, 0)
        steps = list(step_lines(self.data, first))
        whose: dict[int, int] = {}
        for index, end in kept.causes.items():
            rank = teller.found.events[index].rank
            if self._counted_on(steps, whose, teller, rank, end - begin):
                kept.take_back(index)

    def _counted_on(
        self,
        steps: Sequence[StepLine],
        whose: dict[int, int],
        teller: Teller,
        rank: int,
        end: int,
    ) -> bool:
        """Whether a rank counted enough different steps behind a place of the log's end.

        Args:
            steps: The lines at its end that count steps.
            whose: Their ranks, as far as they were asked for, by where the lines begin.
            teller: Knows whose line it is.
            rank: Of it, or -1 for any rank.
            end: The place.
        """
        after: set[bytes] = set()
        for start, stop, step in steps[bisect_left(steps, (end,)) :]:
            if rank >= 0 and start not in whose:
                whose[start] = teller.named(parse_line(self.data[start:stop], teller.year))[0]
            if rank < 0 or whose[start] == rank:
                after.add(step)
            if len(after) >= (ENOUGH if rank >= 0 else MANY_STEPS):
                return True
        return False

    def stand(self, teller: Teller) -> None:
        """Keep that a serving engine stands still at the end of the log, if it does."""
        stand = standing_still(self.data)
        if stand is None:
            return
        line = parse_line(self.data[stand.start : stand.end], teller.year)
        whole = _WHOLE.match(line.text)
        if whole:
            number = teller.spot.number - self.data.count(b"\n", stand.start)
            told = {REPORTS: str(stand.reports), "waiting": str(stand.waiting)}
            told |= {"running": str(stand.running)} if stand.running >= 0 else {}
            teller.event(SERVING_STALLED, whole, line, None, number, told)

    def speak(self, teller: Teller) -> None:
        """Keep what the last lines say: a good end, or trouble where nothing else told of any."""
        teller.found.ended_well = teller.found.ended_well or ended_well(self.data)
        if teller.kept.tells_of_trouble():
            return
        teller.found.left_open = teller.found.left_open or told_to_stand(self.data)
        last = self.data[-TAIL:]
        for start, end in troubled(last):
            if goes_on(last, end):
                return
            line = parse_line(last[start:end], teller.year)
            known = first_of(wanted_by(line.text), line.text)
            if not known and line.level not in ("I", "D"):
                number = teller.spot.number - last.count(b"\n", start)
                teller.tell_unexplained(line, number)
