"""Texts of stacks that differ in numbers and commands of processes alone, taken apart once.

Of a large job most files are alike. Each text is turned into one in which stand-ins in the same
order take the place of such numbers. Zeros take that of the numbers in commands (--local_rank=7).
That is taken apart once, and what came of it is given each file's own numbers and commands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Final, NamedTuple

from unhang.model import ProcessSample, ThreadStack
from unhang.telltale import without_secrets

MAX_TEXT: Final = 2_000
"""Letters of a command that are kept."""

OF_THE_FILE: Final = -2
"""In a sample, while no file has given its own: the rank that the file's name tells."""
_NUMBERS = re.compile(r"(\n(?:Process|Thread) )(\d{1,9}|0x[0-9a-f]{16})\b")
"""It begins with a letter that is looked for quickly: with "^" it takes three times as long."""
_DIGITS = re.compile(r"\d+")
_STAND_IN: Final = 7_000_000_000
"""Stand-ins are larger than any process number, so that they meet no other number of a text."""
_MOST: Final = 1_024
"""Texts that are kept: where more are no two alike, there is nothing to gain."""
_OWN = ("rank", "parent_rank", "pid", "threads")
_DEFAULTS = {field.name: field.default for field in fields(ProcessSample)}


class _Mould(NamedTuple):
    """A sample without what is a file's own, and the fields of it that tell something."""

    sample: ProcessSample
    told: Mapping[str, object]


class Alike:
    """What came of texts that were taken apart before."""

    def __init__(self, parse: Callable[[str, int], Sequence[ProcessSample] | None]) -> None:
        """Nothing is known yet.

        Args:
            parse: Takes a text of a file whose name tells a rank apart; None where more is to be
                said of it than its samples, so that each such text is taken apart by itself.
        """
        self._parse = parse
        self._known: dict[tuple[str, bool], tuple[_Mould, ...] | None] = {}

    def samples(self, text: str, rank: int) -> list[ProcessSample] | None:
        """The samples of a text, given the rank that its file's name tells; None: parse it."""
        parts = _NUMBERS.split(f"\n{text}")  # what is between, a word, a number, what is between…
        numbers = sorted({*parts[2::3]}, key=_number)
        stand_ins = {told: _stand_in(told, index) for index, told in enumerate(numbers)}
        commands = dict(_commands_taken(parts))
        parts[2::3] = [stand_ins[told] for told in parts[2::3]]
        key = shape, _ = "".join(parts)[1:], rank >= 0
        if key not in self._known and len(self._known) >= _MOST:
            return None
        if key not in self._known:
            self._known[key] = self._moulds(shape, OF_THE_FILE if rank >= 0 else rank)
        moulds = self._known[key]
        own = {_STAND_IN + index: _number(told) for index, told in enumerate(numbers)}
        said = {int(stand_ins[told]): command for told, command in commands.items()}
        return None if moulds is None else [_cast(mould, own, said, rank) for mould in moulds]

    def _moulds(self, shape: str, rank: int) -> tuple[_Mould, ...] | None:
        samples = self._parse(shape, rank)
        return None if samples is None else tuple(map(_mould, samples))


def _commands_taken(parts: list[str]) -> Iterator[tuple[str, str]]:
    """Put zeros into the commands of processes, and tell each by its process as it was.

    A title tells what a process is and which rank by its numbers: it stays.
    """
    for at in range(1, len(parts), 3):
        head, end, rest = parts[at + 2].partition("\n")
        command = head[2:]
        if parts[at] == "\nProcess " and head[:2] == ": " and parts[at + 1].isdigit():
            bare = _DIGITS.sub("0", command)
            if bare != command and "::" not in command and command.isprintable():
                parts[at + 2] = f": {bare}{end}{rest}"
                yield parts[at + 1], command


def _number(told: str) -> int:
    return int(told, 0) if told.startswith("0x") else int(told)


def _stand_in(told: str, index: int) -> str:
    number = _STAND_IN + index
    return f"0x{number:016x}" if told.startswith("0x") else str(number)


def _mould(sample: ProcessSample) -> _Mould:
    values = {name: getattr(sample, name) for name in _DEFAULTS if name not in _OWN}
    return _Mould(sample, {k: v for k, v in values.items() if v != _DEFAULTS[k]})


def _cast(
    mould: _Mould, own: Mapping[int, int], commands: Mapping[int, str], rank: int
) -> ProcessSample:
    """A file's own sample; the fields at their default are not named: there are dozens."""
    sample, told = mould
    if (command := commands.get(sample.pid)) is not None:
        told = {**told, "command": without_secrets(command[:MAX_TEXT])}
    return ProcessSample(
        rank=rank if sample.rank == OF_THE_FILE else sample.rank,
        parent_rank=rank if sample.parent_rank == OF_THE_FILE else sample.parent_rank,
        pid=own.get(sample.pid, sample.pid),
        threads=tuple(
            ThreadStack(
                t.name, own.get(t.tid, t.tid), t.frames, t.is_main, t.holds_gil, t.active, t.native
            )
            for t in sample.threads
        ),
        **{"host": "", **told},  # type: ignore[arg-type]
    )
