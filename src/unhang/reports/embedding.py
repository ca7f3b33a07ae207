"""The data inside the page: report and picture as one JSON value, packed so that it stays small.

Ranks are folded to ranges, words that come again are numbered, bars are columns. The page draws
from this alone, so a reader of it has what is on the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from unhang.picture import Branch, Knot, Picture
from unhang.report import Report
from unhang.reports.content.axes import axis_of
from unhang.reports.json import sayable_json
from unhang.wording import fold_ranks, rank_phrase

_ALL = 1 << 30
LEAST_LATE_MS = 50
"""The darkest shade stands for so much at least (`HEAT.least` of the script): less is pale."""
_NUMBER = re.compile(r"#(\d+)")
_STATES = ("finished", "open", "failed", "missing", "unknown", "pending")
"""As the script numbers them."""


@dataclass(slots=True)
class _Words:
    """Texts by number, each once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def of(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def facts_of(report: Report, picture: Picture, ticket: str) -> dict[str, Any]:
    """Everything that the page's script draws from."""
    words = _Words()
    return {
        "report": sayable_json(report),
        "ticket": ticket,
        "teams": [
            {"name": team.name, "members": [_ranks(own) for own in team.members]}
            for team in picture.teams
        ],
        "nodes": [
            {
                "kind": node.kind,
                "ranks": _ranks(node.ranks),
                "status": node.status,
                "label": node.label,
                "count": node.count,
                "place": node.place,
                "level": node.level,
                "ring": node.ring,
                "group": _group_words(node),
            }
            for node in picture.nodes
        ],
        "links": [[link.source, link.target, link.why] for link in picture.links],
        "columns": [[each.label, each.number, each.marked, each.p2p] for each in picture.columns],
        "lanes": _lanes(picture, words),
        "bars": _bars(picture, words),
        "heat": {
            "ranks": list(picture.heat.ranks),
            "numbers": list(picture.heat.numbers),
            "late_ms": [list(row) for row in picture.heat.late_ms],
        }
        if picture.heat is not None and shows_lateness(report, picture)
        else None,
        "replay": {
            "since": list(picture.replay.since_ms),
            "states": list(picture.replay.states),
        }
        if picture.replay is not None
        else None,
        "stacks": [_branch(branch) for branch in picture.stacks],
        "strings": list(words.numbers),
    }


def _group_words(node: Knot) -> str:
    """A group by what it is: "tensor-parallel, ranks 40-47"; "" where its words do not tell."""
    axis = axis_of(node.description)
    return f"{axis}, {rank_phrase(node.members, 3)}" if axis and node.members else ""


def _ranks(ranks: Iterable[int]) -> str:
    return fold_ranks(ranks, _ALL)


def _lanes(picture: Picture, words: _Words) -> list[dict[str, Any]]:
    return [
        {
            "ranks": _ranks(lane.ranks),
            "status": lane.status,
            "cells": [
                [
                    cell.column,
                    words.of(cell.op),
                    cell.state,
                    words.of(cell.words),
                    words.of(cell.place),
                    int(cell.odd),
                ]
                for cell in lane.cells
            ],
        }
        for lane in picture.lanes
    ]


def shows_lateness(report: Report, picture: Picture) -> bool:
    """Whether a map of it shows something: it is the matter, or some rank came late at all."""
    if picture.heat is None:
        return False
    latest = max((max(row, default=0.0) for row in picture.heat.late_ms), default=0.0)
    return report.status == "slow" or latest >= LEAST_LATE_MS


def _bars(picture: Picture, words: _Words) -> dict[str, list[Any]]:
    """Columns; a label without its number, which makes each its own, and the number."""
    labels = [_NUMBER.search(bar.label) for bar in picture.bars]
    return {
        "rank": [bar.rank for bar in picture.bars],
        "begin": [bar.begin_ms for bar in picture.bars],
        "end": [bar.end_ms for bar in picture.bars],
        "state": [_STATES.index(bar.state) for bar in picture.bars],
        "label": [words.of(_NUMBER.sub("#", bar.label, count=1)) for bar in picture.bars],
        "number": [int(found[1]) if found else None for found in labels],
    }


def _branch(branch: Branch) -> list[Any]:
    below = [_branch(child) for child in branch.children]
    return [branch.name, branch.place, _ranks(branch.ranks), below]


def embedded(value: object) -> str:
    """Write JSON that no HTML parser can mistake for markup."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
