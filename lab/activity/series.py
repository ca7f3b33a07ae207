"""Recorded series, labelled: a line of JSON for each program, a column for each thing counted.

Numbers are relative to the first look, because only what they grow by tells anything; a column of
one value is that value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from unhang.activity.looks import ProcessLook

SERIES = Path(__file__).parents[2] / "tests" / "data" / "activity" / "series.jsonl"
_AS_IT_IS = ("state", "wait_channel", "disk", "disturbed")


class Recorded(NamedTuple):
    """One series.

    Attributes:
        name: Of the program.
        truth: "works" (it gets on), "waits" (blocked for ever), "polls" (looks again and again for
            what never comes) or "spins" (computes, and gets nowhere).
        under: What else ran on the machine ("load"), or "".
        looks: About a second apart.
    """

    name: str
    truth: str
    under: str
    looks: tuple[ProcessLook, ...]


def line_of(series: Recorded) -> str:
    """A series as one line of JSON."""
    columns = {name: _column(name, series.looks) for name in ProcessLook._fields}
    row = {"name": series.name, "truth": series.truth, "under": series.under}
    return json.dumps({**row, "looks": len(series.looks), **columns}, separators=(",", ":"))


def _column(name: str, looks: tuple[ProcessLook, ...]) -> Any:  # noqa: ANN401 - a value or a list
    values = [getattr(look, name) for look in looks]
    if name not in _AS_IT_IS:
        values = [round(value - values[0], 6) for value in values]
    return values[0] if len(set(values)) == 1 else values


def read(path: Path = SERIES) -> Iterator[Recorded]:
    """All series of a file."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        told = [row[name] for name in ProcessLook._fields]
        columns = [each if isinstance(each, list) else repeat(each, row["looks"]) for each in told]
        looks = tuple(ProcessLook(*values) for values in zip(*columns, strict=True))
        yield Recorded(row["name"], row["truth"], row["under"], looks)
