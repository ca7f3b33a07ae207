"""What a log rule is. The TOML files next to this one hold the rules; rows.json is made of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from unhang.kinds import Family, Kind, Remedy, Trait
from unhang.logs.rules.only import ONLY
from unhang.model import LogRole

Blame: TypeAlias = Literal["writer", "ranks", "nobody"]

_GAP = re.compile(r"(?<!\\)\.\*")
"""Between the words of one message; the longest of the samples is 150 characters."""


class Below(NamedTuple):
    """What is read from the lines right below a message, for further fields.

    Attributes:
        mark: Stands in what is found; without it these lines are not looked at.
        pattern: Regular expression searched in them.
    """

    mark: str
    pattern: str


@dataclass(frozen=True, slots=True)
class LogRule:
    """A known message.

    Attributes:
        code: Finding code of the UH7xx family.
        slug: Its short name.
        family: What sort of trouble it tells of.
        role: cause, consequence (never reported as the root cause), observation, hint or noise.
        anchors: Literals, at least one of them in every line that can match. They are what
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
        blames: Whom a cause names: its writer, the ranks in its field "ranks", or none.
        echoed: It is printed twice: without a rank, by a device, a daemon or an exception that
            nothing caught, and by what knows the rank.
        rank_writes: Its field "rank" is the rank that writes the line, not one that it speaks of;
            next to a field "nranks" it is a number in a communicator of so many.
        below: What is read from the lines right below it.
        only: Name of the condition in `only.ONLY` that a match must meet as well.
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
    below: Below | None = None
    only: str = ""
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
        match = compiled(self.pattern).search(line)
        return match if match and (not self.only or ONLY[self.only](match)) else None


def rule_from(row: Mapping[str, Any]) -> LogRule:
    """The rule of a row of rows.json."""
    traits = Trait.NONE
    for name in row.get("traits", ()):
        traits |= Trait[name]
    return LogRule(
        **{
            **row,
            "anchors": tuple(row["anchors"]),
            "below": Below(**row["below"]) if "below" in row else None,
            "traits": traits,
            "remedy": Remedy[row["remedy"]] if "remedy" in row else None,
            "waits": tuple(row.get("waits", {}).items()),
        }
    )


@lru_cache(maxsize=512)
def compiled(pattern: str) -> re.Pattern[str]:
    """A rule's pattern, whose gaps (`.*`) end: else it is tried again from each word of a line."""
    return re.compile(_GAP.sub(".{0,300}", pattern))
