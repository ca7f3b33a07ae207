"""What logs say: failures that may be the cause, what only followed, and watchdogs' counters.

A log names what was printed, not what was called; a message that every rank prints blames none.
The rules of messages are imported where there are logs: most cases have none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct, field

from unhang.analysis.shared.claims import Observation
from unhang.catalogue import kind_of
from unhang.kinds import FIRST_FAILURE, Kind, Trait
from unhang.model import Fact, LogEvent
from unhang.report import Site

if TYPE_CHECKING:
    from unhang.logs.failure import FailureGroup

MAX_FAILURES = 32


class Counters(Struct, frozen=True):
    """What a rank's watchdog printed of one group: -1 or "" where it did not."""

    enqueued: int = -1
    completed: int = -1
    seq: int = -1
    op: str = ""
    numel: int = -1

    @property
    def reach(self) -> int:
        """The last call that the rank is known to have enqueued."""
        return max(self.enqueued, self.seq)


class Message(Observation, frozen=True, kw_only=True):
    """One message and the ranks that printed it."""

    group: FailureGroup
    kind: Kind

    def is_same(self, other: Observation) -> bool:
        """Whether the other one is of the same lines."""
        return isinstance(other, Message) and other.group is self.group


class Failure(Message, frozen=True, kw_only=True):
    """A failure that may be the cause, as logs tell it.

    Attributes:
        culprits: The ranks that it names: mostly who printed it, sometimes others, or none.
        names_others: Its words name them, and they are none of those that printed it.
        everybody: All ranks printed it.
        ordered: It is known that it came before the failures after it.
        rivals: Failures of others at about the same time.
        reported_later: Its rank said that errors may show at a later call than the one at fault.
        blamed: Other ranks that the launcher saw end first, with their exit codes or "".
        earlier: A failure before it that explains nothing.
        sides: What ranks have by what each says of itself and of another one, and who; first what
            more than half of all ranks have. Empty where one line alone says it, or none has more.
    """

    culprits: tuple[int, ...] = ()
    names_others: bool = False
    everybody: bool = False
    ordered: bool = True
    rivals: tuple[FailureGroup, ...] = ()
    reported_later: bool = False
    blamed: tuple[tuple[int, str], ...] = ()
    earlier: FailureGroup | None = None
    sides: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def thread(self) -> str:
        """The thread that it ended, while the rank went on; "" where it ended the rank."""
        from unhang.logs.keeping import IN_THREAD

        return self.group.first.fields.get(IN_THREAD, "")

    @property
    def is_first(self) -> bool:
        """Whether it is known that no other came before it."""
        return self.ordered and not self.rivals

    @property
    def of_unknown(self) -> bool:
        """Whether its line does not show its rank: it may be a rank that left nothing."""
        from unhang.logs.rules import rule_of

        rule = rule_of(self.group.first.code)
        told = self.culprits or self.everybody or self.group.first.rank >= 0
        return not told and rule is not None and rule.blames == "writer"

    @property
    def raised_at(self) -> tuple[Site, ...]:
        """Where it was raised: by the rank that printed it, whichever others it names."""
        fields = self.group.first.fields
        if "file" not in fields or not fields.get("line", "").isdigit():
            return ()
        line, function = int(fields["line"]), fields["function"]
        if self.names_others:
            return (Site(self.group.ranks, "victim", fields["file"], line, function),)
        return (Site(self.culprits, "culprit", fields["file"], line, function),)


class Said(Struct, frozen=True):
    """All that the logs of a job say.

    Attributes:
        events: Recognised messages, each with the rank that it is known to belong to.
        failures: What may be the cause, earliest first.
        effects: Messages of what only followed, and hints.
        trouble: What a job that ends well does not print, unless it went on after it.
        counters: Of watchdogs, by the name of the group (or "") and rank.
        differing: Facts about which ranks disagree: name, value, ranks.
    """

    events: tuple[LogEvent, ...] = ()
    failures: tuple[Failure, ...] = ()
    effects: tuple[Message, ...] = ()
    trouble: tuple[LogEvent, ...] = ()
    counters: Mapping[str, Mapping[int, Counters]] = field(default_factory=dict)
    differing: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def errors(self) -> tuple[LogEvent, ...]:
        """Lines of the trouble that mark themselves as errors, and which no rule explains."""
        from unhang.logs.failure import fold
        from unhang.logs.keeping import ANY_ERROR

        return tuple(g.first for g in fold(e for e in self.trouble if e.code == ANY_ERROR))

    @property
    def recognised(self) -> list[Message]:
        """Messages of the trouble that rules know, and which are neither cause nor effect."""
        from unhang.logs.keeping import ANY_ERROR

        known = _messages(event for event in self.trouble if event.code != ANY_ERROR)
        return [message for message in known if not _only_follows(message.group.first)]

    @property
    def standing(self) -> LogEvent | None:
        """A serving engine that makes no token: its first report of zero, with its requests."""
        from unhang.logs.keeping import REPORTS

        return next((event for event in self.trouble if REPORTS in event.fields), None)

    @property
    def waiters(self) -> Iterator[Message]:
        """Messages of those who waited for others in vain."""
        from unhang.logs.keeping import WAITED_FOR

        return _messages(event for event in self.trouble if WAITED_FOR in event.fields)


def said_in(events: Sequence[LogEvent], ranks: Iterable[int], facts: Iterable[Fact]) -> Said:
    """Collect what log events amount to.

    Args:
        events: All recognised messages, with their ranks.
        ranks: All ranks that are known to exist; decides what "every rank" means.
        facts: What NCCL said of itself, to be compared between ranks.
    """
    facts = list(facts)
    if not events and not facts:
        return Said()
    from unhang.logs.failure import settled
    from unhang.logs.lines.nccl_facts import differing

    events = settled(events)
    effects = [event for event in events if _only_follows(event)]
    return Said(
        events=tuple(events),
        failures=tuple(_failures(events, frozenset(ranks))),
        effects=tuple(_messages(effects)),
        trouble=tuple(event for event in events if _tells_of_trouble(event)),
        counters=_counters(events),
        differing=differing(facts),
    )


def _only_follows(event: LogEvent) -> bool:
    return event.role in ("consequence", "hint")


def _messages(events: Iterable[LogEvent]) -> Iterator[Message]:
    from unhang.logs.failure import fold

    for group in fold(events):
        kind = kind_of(group.first.code) or FIRST_FAILURE
        yield Message(source="logs", ranks=group.ranks, group=group, kind=kind)


def _has(event: LogEvent, trait: Trait) -> bool:
    kind = kind_of(event.code)
    return kind is not None and kind.has(trait)


def _tells_of_trouble(event: LogEvent) -> bool:
    from unhang.logs.keeping import WENT_ON
    from unhang.logs.rules import rule_of

    rule = rule_of(event.code)
    told = rule is not None and rule.role != "noise" and not rule.harmless
    return told and WENT_ON not in event.fields


# ------------------------------------------------------------------ failures


def _failures(events: Sequence[LogEvent], ranks: frozenset[int]) -> Iterator[Failure]:
    """Each failure that may be the cause, as if it were the first one."""
    from unhang.logs.failure import ordered_failures

    causes, ordered = ordered_failures(events)
    late = {event.rank for event in events if _has(event, Trait.REPORTED_LATER)}
    blamed = {int(e.fields["blamed"]): e for e in events if e.fields.get("blamed", "").isdigit()}
    codes = [(rank, event.fields.get("exitcode", "")) for rank, event in sorted(blamed.items())]
    tasks = _tasks_are_ranks(events)
    for number, group in enumerate(causes):
        after = causes[number + 1 :] if number < MAX_FAILURES else ()
        everybody = len(ranks) > 1 and ranks <= set(group.ranks)
        sides = _sides(group, events, ranks)
        odd = tuple(sorted(rank for _, who in sides[1:] for rank in who))
        culprits = odd or (() if everybody else _named_by(group, tasks=tasks))
        yield Failure(
            source="logs",
            ranks=group.ranks,
            host=group.first.host,
            time_ns=group.time_ns,
            group=group,
            kind=kind_of(group.first.code) or FIRST_FAILURE,
            culprits=culprits,
            names_others=_names_others(group, culprits),
            everybody=everybody,
            ordered=ordered,
            rivals=tuple(other for other in after if _as_early(group, other)),
            reported_later=bool(late & {*group.ranks, group.first.rank}),
            blamed=tuple((rank, code) for rank, code in codes if rank not in culprits),
            sides=sides,
        )


def _sides(
    group: FailureGroup, events: Sequence[LogEvent], ranks: frozenset[int]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What ranks have, by all lines that tell a rank's own and another's, if most have the same."""
    if "other_had" not in group.first.fields:
        return ()
    had: dict[int, set[str]] = defaultdict(set)
    for event in events:
        fields = event.fields
        if event.code != group.first.code or "other_had" not in fields:
            continue
        if event.rank >= 0 and fields["rank"] != str(event.rank):
            return ()  # numbers within a smaller group
        had[int(fields["rank"])].add(fields["had"])
        had[int(fields["other"])].add(fields["other_had"])
    sides: dict[str, tuple[int, ...]] = {}
    for rank, values in sorted(had.items()):
        if len(values) == 1:
            (value,) = values
            sides[value] = (*sides.get(value, ()), rank)
    ordered = sorted(sides.items(), key=lambda side: -len(side[1]))
    most = len(ordered[0][1]) if ordered else 0
    return tuple(ordered) if 2 * most > max(len(ranks), len(had)) else ()


def _named_by(group: FailureGroup, *, tasks: bool) -> tuple[int, ...]:
    """The ranks that a failure names: mostly who wrote it, sometimes others, or none."""
    from unhang.logs.rules import rule_of

    rule = rule_of(group.first.code)
    if rule is not None and rule.blames == "nobody":
        return ()
    told = _ranks_told(group.first, tasks=tasks)
    return told if rule is not None and rule.blames == "ranks" else told or group.ranks


def _names_others(group: FailureGroup, culprits: Sequence[int]) -> bool:
    from unhang.logs.rules import rule_of

    rule = rule_of(group.first.code)
    told = rule is not None and rule.blames == "ranks" and bool(culprits)
    return told and not {*culprits} & {*group.ranks}


def _ranks_told(event: LogEvent, *, tasks: bool) -> tuple[int, ...]:
    """The ranks that the words of a message name; a scheduler's tasks where these are ranks."""
    from unhang.logs.keeping import MAX_RANKS

    fields = event.fields
    if event.rank >= 0 and fields.get("own", str(event.rank)) != str(event.rank):
        return ()  # numbers within a smaller group
    keys = [key for key in fields if key.startswith("ranks") or (tasks and key == "tasks")]
    told = {rank for key in keys for rank in _numbers(fields[key])}
    return tuple(sorted(told)[:MAX_RANKS])


def _numbers(text: str) -> Iterator[int]:
    """The numbers of a list such as "4, 6-7", as launchers and torch write them."""
    from unhang.logs.keeping import MAX_RANKS

    for first, last in re.findall(r"(?<!replica:)(?<!\w)(\d{1,6})(?:-(\d{1,6}))?", text):
        yield from islice(range(int(first), int(last or first) + 1), MAX_RANKS)


def _tasks_are_ranks(events: Iterable[LogEvent]) -> bool:
    """Whether the scheduler started the ranks itself, and not a launcher on each node."""
    from unhang.logs.rules.known import CHILD_FAILED, ELASTIC_BLAMES

    launched = {CHILD_FAILED.code, ELASTIC_BLAMES.code}
    return not any(e.code in launched or e.fields.get("rank_is") == "local" for e in events)


def _as_early(first: FailureGroup, other: FailureGroup) -> bool:
    from unhang.logs.failure import CLOCK_SLACK_NS, is_a_helpers

    if first.ranks and is_a_helpers(other.first):
        return False
    if not first.time_ns or not other.time_ns:
        same = bool(first.ranks) and other.ranks == first.ranks  # it printed them in that order
        return not first.time_ns and not same
    return other.time_ns - first.time_ns < CLOCK_SLACK_NS and other.ranks != first.ranks


# ------------------------------------------------------------------ watchdogs


def _counters(events: Iterable[LogEvent]) -> dict[str, dict[int, Counters]]:
    groups: dict[str, dict[int, Counters]] = defaultdict(dict)
    last_group: dict[int, str] = {}
    for event in events:
        if event.rank < 0 or not _has(event, Trait.COUNTERS):
            continue
        fields = event.fields
        told = (fields.get(key) for key in ("desc", "desc2", "pg", "pg2"))
        name = next(filter(None, told), last_group.get(event.rank, ""))
        last_group[event.rank] = name
        old = groups[name].get(event.rank) or groups[""].pop(event.rank, Counters())
        groups[name][event.rank] = Counters(
            enqueued=_int(fields, "enqueued", old.enqueued),
            completed=_int(fields, "completed", old.completed),
            seq=_int(fields, "seq", old.seq),
            op=fields.get("op", old.op),
            numel=_int(fields, "numel_in", old.numel),
        )
    for rank, counters in list(groups[""].items()):
        if (name := _only_group_of(counters, groups)) and rank not in groups[name]:
            groups[name][rank] = groups[""].pop(rank)
    return groups


def _only_group_of(counters: Counters, groups: Mapping[str, Mapping[int, Counters]]) -> str:
    """The group of a rank that names none: the only one whose members timed out in this call."""
    call = (counters.seq, counters.op, counters.numel)
    found = [
        name
        for name, ranks in groups.items()
        if name and call in {(c.seq, c.op, c.numel) for c in ranks.values()}
    ]
    return found[0] if len(found) == 1 and counters.seq >= 0 and counters.op else ""


def _int(fields: Mapping[str, str], key: str, default: int) -> int:
    text = fields.get(key, "")
    return int(text) if text.lstrip("-").isdigit() else default
