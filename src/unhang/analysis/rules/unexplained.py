"""Logs that tell of trouble and not why: what is there, and what lacks.

Ranks that waited are witnesses: the report says for what, and which rank printed no such line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Final

from msgspec import Struct

from unhang.analysis.rules.rule import Rule, Unless, When
from unhang.analysis.rules.said_beside import MAX_BESIDES, SHOWN, beside, quoted
from unhang.analysis.rules.telling import Words, words_for
from unhang.analysis.rules.watchdog_counters import ranks_not_heard, silent_among
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.sources.logs import Message, Said
from unhang.catalogue import kind_of
from unhang.kinds import INSUFFICIENT_EVIDENCE
from unhang.model import LogEvent
from unhang.wording import count_of, rank_phrase

MAX_LINES = 8
"""Unexplained lines that are shown: the most unusual ones."""
_MOST = 4


class Unexplained(Struct, frozen=True):
    """Something went wrong, and no rule says why.

    Attributes:
        errors: Lines that mark themselves as errors.
        effect: What followed from a failure that is not in the logs.
        last: The last line that tells of trouble.
        new: Lines that a good run never wrote.
        standing: A serving engine that makes no token.
        waiters: Messages of who waited in vain, each with its ranks.
        timed_out: Ranks whose watchdogs gave up a call, by any of their lines.
    """

    errors: tuple[LogEvent, ...]
    effect: LogEvent | None
    last: LogEvent
    new: tuple[LogEvent, ...] = ()
    standing: LogEvent | None = None
    waiters: tuple[Message, ...] = ()
    timed_out: tuple[int, ...] = ()


def _unexplained(said: Said) -> Iterator[Claim]:
    """That something went wrong, and no rule says why; with all that is recognised."""
    from unhang.logs.novelty import NEW_LINE

    if not said.trouble or said.failures:
        return
    effect = next((event for event in said.trouble if event.role == "consequence"), None)
    new = tuple(event for event in said.events if event.code == NEW_LINE.code)
    about = Unexplained(
        errors=said.errors,
        effect=effect,
        last=said.trouble[-1],
        new=new,
        standing=said.standing,
        waiters=tuple(said.waiters),
        timed_out=tuple(
            rank for ranks in said.counters.values() for rank, c in ranks.items() if c.seq >= 0
        ),
    )
    yield Claim(
        rests_on="logs", kind=INSUFFICIENT_EVIDENCE, about=about, doubts=(Doubt.NOBODY_NAMED,)
    )
    known = [beside(message, ()) for message in (*said.effects, *said.recognised)]
    yield from known[: MAX_BESIDES - 1]


RULE: Final = Rule(
    when=When.LOGS, unless=Unless.CLAIM, tells=lambda facts: _unexplained(facts.lives.said)
)


def _most_unusual(errors: Sequence[LogEvent]) -> list[LogEvent]:
    """The errors that came least often, the last of them first; in the order of the logs."""
    ranked = sorted(range(len(errors)), key=lambda place: (errors[place].count, -place))
    return [errors[place] for place in sorted(ranked[:MAX_LINES])]


@words_for(Unexplained)
def _verdict_of_unexplained(about: Unexplained, claim: Claim) -> Words:  # noqa: ARG001
    from unhang.logs.lines.tracebacks import is_of_a_traceback

    errors = about.errors
    if about.standing is not None or about.waiters:
        return _stood(about)
    before = [e for e in errors if about.effect is None or e.order < about.effect.order]
    if about.effect is not None and not before:
        what = "the logs show what followed from a failure, but not the failure itself"
    elif about.effect is not None:
        what = "no rule explains the errors in the logs; the last before their end"
    elif errors:
        what = "no rule explains the errors in the logs; the last of them"
    else:
        what = "the logs show that something went wrong, but not why"
    said = [event for event in before if not is_of_a_traceback(event.text)]
    if before and not said and about.effect is None:
        what = "the logs have a traceback that is cut off before its exception"
    elif before and not said:
        what = "the logs show what followed from a failure, but not the failure itself"
    told = said[-1] if said else about.effect or about.last
    above = told.fields.get("above", "")
    above = f"; above it: {above[:SHOWN]}" if above else ""
    by = rank_phrase([told.rank]) if told.rank >= 0 else told.host or told.source
    new = tuple(f"New since the good run: {quoted(event)}" for event in about.new)
    first = f"; new since the good run: {about.new[0].text[:SHOWN]}" if about.new else ""
    return Words(
        f"Not enough evidence: {what}: {by}: {told.text[:SHOWN]}{above}{first}",
        (*(quoted(event) for event in _most_unusual(errors) or [told]), *new),
        (),
        (
            "Read these lines and those around them; give the logs of all ranks and nodes.",
            *(kind.actions if about.effect and (kind := kind_of(about.effect.code)) else ()),
        ),
    )


def _stood(about: Unexplained) -> Words:
    """Who stood still or waited, where nothing in the logs tells for whom."""
    lines = [quoted(message.group.first) for message in about.waiters[:_MOST]]
    ranks = sorted({r for message in about.waiters for r in message.ranks} | {*about.timed_out})
    if about.standing is not None:
        said, lines = _standing(about.standing), [quoted(about.standing), *lines]
    else:
        said = _waited(about.waiters[0], ranks)
    quiet = silent_among(ranks) if about.standing is None else ()
    errors = [line for line in map(quoted, _most_unusual(about.errors)) if line not in lines]
    return Words(
        f"Not enough evidence: {said}",
        (*lines, *errors),
        (ranks_not_heard(ranks),) if len(ranks) > 1 else (),
        (
            *((f"Look at {rank_phrase(quiet)} first.",) if quiet else ()),
            "Give the logs of all ranks and nodes.",
            "While it stands, take the stacks of all its processes: unhang stacks.",
        ),
    )


def _standing(event: LogEvent) -> str:
    """An engine that makes no token: since when, and with how many requests."""
    since = f" since {_clock(event.time_ns)}" if event.time_ns else ""
    running, waiting = (event.fields.get(key, "0") for key in ("running", "waiting"))
    if "running" not in event.fields:
        worker = "for a worker that reads no messages; its log does not show which worker."
        waits = f"has waited{since}" if since else "waits"
        return f"the serving engine {waits} {worker}"
    requests = count_of(int(running), "request")
    queued = f" and {waiting} waiting" if waiting != "0" else ""
    stands = f"has produced no token{since}, with {requests} running{queued}"
    return f"the serving engine {stands}; its log does not show why."


def _clock(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns / 1e9, tz=timezone.utc):%m-%d %H:%M:%S}"


def _waited(message: Message, ranks: Sequence[int]) -> str:
    """Who waited for what, and who of the ranks below did not say so."""
    from unhang.logs.keeping import WAITED_FOR

    first = message.group.first
    who = rank_phrase(ranks) if ranks else first.host or "a process of unknown rank"
    peer = next((value for key, value in first.fields.items() if key.startswith("peer")), "")
    named = f" (number {peer} did not answer)" if peer.isdigit() else ""
    quiet = silent_among(ranks)
    rest = f"{rank_phrase(quiet)} printed no such line" if quiet else "the logs do not show why"
    waited = f"{who} waited in vain for {first.fields[WAITED_FOR]}{named}"
    return f"{waited}; {rest}: {first.text[:SHOWN]}"
