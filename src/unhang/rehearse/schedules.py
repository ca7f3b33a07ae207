"""What every rank called in each step: kept in a file, and compared with what it calls now.

A step ends with the rank's first optimizer; what comes before the first is part of it. Ranks of one
schedule are written once. Compared are operations, sizes and members; lines of source move with
every commit, so these are only shown.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final, TypeAlias

from unhang.errors import InputError, OutputError
from unhang.incoming import fit, value_of
from unhang.model import Frame
from unhang.rehearse.matching.parties import LivingRank, MadeCall
from unhang.rehearse.matching.referee import Referee
from unhang.stacks.ownership import user_frame
from unhang.wording import count_of, printable, rank_phrase

_SCHEMA: Final = "unhang.schedule/1"
_MOST: Final = 3
"""Calls that a sentence names."""
_Steps: TypeAlias = tuple[tuple[int, ...], ...]
_Key: TypeAlias = tuple[int, str, tuple[str, ...]]
"""Step, what has changed, and the calls by which."""


@dataclass(frozen=True, slots=True)
class SameSchedule:
    """Ranks that make the same calls: of each step, places in `KeptSchedule.calls`."""

    ranks: list[int]
    steps: list[list[int]]


@dataclass(frozen=True, slots=True)
class KeptSchedule:
    """What all ranks call.

    Attributes:
        calls: Each kind of call, in words.
        lines: Where each of them was made first.
    """

    schema: str
    ranks: int
    calls: list[str]
    lines: list[str]
    roles: list[SameSchedule]


def schedule_of(referee: Referee) -> KeptSchedule:
    """Of a rehearsal, as far as it came."""
    numbers: dict[str, int] = {}
    lines: list[str] = []
    found: dict[_Steps, list[int]] = defaultdict(list)
    for rank, process in referee.ranks.items():
        found[_steps(process, numbers, lines)].append(rank)
    roles = [SameSchedule(ranks, [list(s) for s in steps]) for steps, ranks in found.items()]
    return KeptSchedule(_SCHEMA, referee.world, list(numbers), lines, roles)


def _steps(process: LivingRank, numbers: dict[str, int], lines: list[str]) -> _Steps:
    steps: list[list[int]] = [[]]
    ends = iter([*process.steps, len(process.calls) + 1])
    end = next(ends)
    for number, call in enumerate(process.calls.values()):
        while number >= end:
            steps.append([])
            end = next(ends)
        text = _text(call)
        if text not in numbers:
            numbers[text] = len(numbers)
            lines.append(_line(call))
        steps[-1].append(numbers[text])
    return tuple(map(tuple, steps))


def _text(call: MadeCall) -> str:
    """A call without what differs between commits and between ranks of a group."""
    issue = call.issue
    sizes = " ".join(f"[{','.join(map(str, shape))}]" for shape in issue.inputs or issue.outputs)
    side = ""
    if call.told["peer"] >= 0:
        side = f" {'to' if issue.op == 'send' else 'from'} rank {issue.peer}"
    elif issue.root >= 0:
        side = f" with root {issue.root}"
    return f"{issue.op} {sizes} {issue.dtype}{side} in {rank_phrase(call.circle.ranks)}"


def _line(call: MadeCall) -> str:
    frame = user_frame(Frame(*each) for each in call.frames)
    return f"{Path(frame.file).name}:{frame.line}" if frame else ""


# ------------------------------------------------------------------ the file


def keep_schedule(schedule: KeptSchedule, path: Path) -> None:
    """Write it; a schedule that is there is replaced, and no other file.

    Raises:
        OutputError: The file is none of ours, or cannot be written.
    """
    try:
        if path.exists():
            read_schedule(path)
        path.write_text(json.dumps(asdict(schedule), separators=(",", ":")) + "\n")
    except InputError as error:
        raise OutputError(f"{path} is not replaced: {error}", "Name another file.") from error
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error


def read_schedule(path: Path) -> KeptSchedule:
    """Read what `keep_schedule` wrote.

    Raises:
        InputError: The file is no schedule.
    """
    hint = "unhang rehearse --save FILE writes one."
    try:
        schedule = fit(value_of(path.read_bytes()), KeptSchedule)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", hint) from error
    except ValueError as error:
        raise InputError(f"{path} is no schedule of a rehearsal", hint) from error
    numbers = {n for role in schedule.roles for step in role.steps for n in step}
    whole = schedule.schema == _SCHEMA and len(schedule.lines) == len(schedule.calls)
    if not whole or not numbers <= set(range(len(schedule.calls))):
        raise InputError(f"{path} is no schedule of a rehearsal", hint)
    return schedule


# ------------------------------------------------------------------ what has changed


def changes_since(before: KeptSchedule, now: KeptSchedule) -> list[str]:
    """Sentences about what ranks call more, less, or in another order than before."""
    if before.ranks != now.ranks:
        ranks = count_of(before.ranks, "rank")
        return [f"The kept schedule has {ranks}, and this one {now.ranks:,}: they do not compare."]
    places = dict(zip(before.calls, before.lines, strict=True))
    places |= dict(zip(now.calls, now.lines, strict=True))
    found: dict[_Key, list[int]] = defaultdict(list)
    old, new = _by_rank(before), _by_rank(now)
    for rank in sorted(old.keys() | new.keys()):
        for key in _of_rank(old.get(rank, []), new.get(rank, [])):
            found[key].append(rank)
    alike: dict[tuple[str, tuple[str, ...], tuple[int, ...]], list[int]] = defaultdict(list)
    for (step, what, calls), parted in found.items():
        alike[what, calls, tuple(parted)].append(step)
    return [_sentence(steps, *each, places) for each, steps in alike.items()]


def _by_rank(schedule: KeptSchedule) -> dict[int, list[list[str]]]:
    return {
        rank: [[schedule.calls[number] for number in step] for step in role.steps]
        for role in schedule.roles
        for rank in role.ranks
    }


def _of_rank(before: list[list[str]], now: list[list[str]]) -> Iterator[_Key]:
    """How the steps of one rank differ."""
    nothing: list[str] = []
    for step, (old, new) in enumerate(zip_longest(before, now, fillvalue=nothing), 1):
        counts = Counter(new), Counter(old)
        more, fewer = counts[0] - counts[1], counts[1] - counts[0]
        if more:
            yield step, "more", tuple(sorted(more.elements()))
        if fewer:
            yield step, "fewer", tuple(sorted(fewer.elements()))
        if counts[0] == counts[1] and old != new:
            yield step, "order", ()


def _sentence(
    steps: list[int], what: str, calls: tuple[str, ...], ranks: tuple[int, ...],
    places: Mapping[str, str],
) -> str:  # fmt: skip
    numbers = rank_phrase(steps).replace("rank", "step", 1)
    one = len(steps) == 1
    who = f"on {rank_phrase(ranks)}"
    if what == "order":
        verb = "makes" if one else "make"
        return f"{numbers.capitalize()} {verb} the same calls in another order {who}."
    verb, each = ("has", "") if one else ("have", " each")
    amount = f"{len(calls):,} {what} {'call' if len(calls) == 1 else 'calls'}{each}"
    named = Counter(calls)
    shown = "; ".join(_named(call, named[call], places[call]) for call in list(named)[:_MOST])
    rest = f"; and {count_of(len(named) - _MOST, 'other')}" if len(named) > _MOST else ""
    return f"{numbers.capitalize()} {verb} {amount} {who}: {shown}{rest}."


def _named(call: str, count: int, place: str) -> str:
    times = f"{count:,} times " if count > 1 else ""
    return printable(f"{times}{call}{f' at {place}' if place else ''}")
