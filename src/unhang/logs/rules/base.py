"""What a log rule is. The tables beside this file hold the rules themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from unhang.kinds import Family, Kind, Remedy, Trait
from unhang.model import LogRole

__all__ = ["OF_THE_ABSENT", "LogRule"]

OF_THE_ABSENT: Final = Trait.MAY_COME | Trait.OF_NOW
"""Of a message by which some ranks say that others did not come: these may be late, and come yet."""

Blame: TypeAlias = Literal["writer", "ranks", "nobody"]


@dataclass(frozen=True, slots=True)
class LogRule:
    """A known message.

    Attributes:
        code: Finding code of the UH7xx family.
        slug: Its short name.
        family: What sort of trouble it tells of.
        role: cause, consequence (never reported as the root cause), observation, hint or noise.
        anchors: Literals of which at least one stands in every line that can match. They are what
            the fast scan looks for, so they are as rare as possible and case sensitive.
        pattern: Regular expression searched in the line; named groups become `LogEvent.fields`.
        meaning: What the message says about the job, one sentence.
        action: What to do next, one sentence.
        source: Where the knowledge comes from.
        fires: A line as it is printed, which this rule must match.
        spares: A similar line, which this rule must not match.
        trust: "A" a confirmed fix or an injected fault, "B" explained by maintainers or seen by
            several users, "C" recognised only: nothing is claimed.
        harmless: Jobs that end well print it too: alone it is no sign that anything went wrong.
        blames: Whom a cause names: who wrote it, the ranks in its field "ranks", or nobody.
        echoed: It is printed twice: without a rank, by a device, a daemon or an exception that
            nobody caught, and by what knows the rank.
        rank_writes: Its field "rank" is the rank that writes the line, not one that it speaks of;
            beside a field "nranks" it is a number in a communicator of so many.
        below: Regular expression searched in the lines right below, for further fields.
        below_mark: Stands in what `below` finds; without it these lines are not looked at.
        more: Two named groups: only a line where the first number is the greater one matches.
        traits: What other rules may conclude from it.
        remedy: What helps; None for what helps against its family.
        waits: Whose writer is a waiter: groups of the pattern (or "" for every match), each with
            what was waited for, to be read after "waited for".
    """

    code: str
    slug: str
    family: Family
    role: LogRole
    anchors: tuple[str, ...]
    pattern: str
    meaning: str
    action: str
    source: str
    fires: str
    spares: str
    trust: str = "A"
    harmless: bool = False
    blames: Blame = "writer"
    echoed: bool = False
    rank_writes: bool = False
    below: str = ""
    below_mark: str = ""
    more: tuple[str, str] | None = None
    traits: Trait = Trait.NONE
    remedy: Remedy | None = None
    waits: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> Kind:
        """The kind of finding that a line of it makes."""
        return Kind(
            self.code,
            self.slug,
            self.family,
            self.meaning,
            role=self.role if self.role in ("cause", "consequence") else "observation",
            traits=self.traits,
            actions=(self.action,),
            remedy=self.remedy,
        )

    def waited_for(self, match: re.Match[str]) -> str:
        """What the writer of a line waited for; "" where the line does not say that it did."""
        told = match.groupdict()
        return next((what for group, what in self.waits if not group or told.get(group)), "")

    def search(self, line: str) -> re.Match[str] | None:
        """Match one line, already without prefix and escapes."""
        match = _compiled(self.pattern).search(line)
        if match and self.more:
            high, low = match.group(*self.more)
            return match if int(high) > int(low) else None
        return match


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
