"""Find the few lines of a log that are worth looking at, at the speed of reading.

An Aho-Corasick automaton over the anchors of all rules (ahocorasick_rs) passes over a block once;
what a line means is decided elsewhere, from the rules that its anchors announce.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from unhang.logs.lines.elastic import ENTRY_ANCHOR
from unhang.logs.lines.nccl_facts import FACT_ANCHORS
from unhang.logs.lines.tracebacks import HEADER
from unhang.logs.lines.wrappers import WRAPPER_ANCHORS
from unhang.logs.rules import RULES, LogRule

_Search = Callable[[bytes], list[tuple[int, int, int]]]


@lru_cache(maxsize=1)
def _automaton() -> tuple[_Search, tuple[tuple[int, ...], ...]]:
    """The search function and, per anchor, the places in the table of the rules it announces."""
    from ahocorasick_rs import BytesAhoCorasick

    by_anchor: dict[bytes, list[int]] = {}
    for place, rule in enumerate(RULES):
        for anchor in rule.anchors:
            by_anchor.setdefault(anchor.encode(), []).append(place)
    for anchor in (HEADER, *FACT_ANCHORS, ENTRY_ANCHOR, *WRAPPER_ANCHORS):
        by_anchor.setdefault(anchor.encode(), [])
    search = BytesAhoCorasick(list(by_anchor))
    return (
        lambda data: search.find_matches_as_indexes(data, overlapping=True),
        tuple(tuple(places) for places in by_anchor.values()),
    )


def candidates(data: bytes) -> Iterator[tuple[int, int, tuple[LogRule, ...]]]:
    """Lines with at least one anchor: (start, end, rules in table order)."""
    search, _ = _automaton()
    line_end = -1
    start = 0
    hits: set[int] = set()
    # They come in the order of their ends; no anchor goes over the end of a line.
    for anchor, position, _ in search(data):
        if position >= line_end:
            if line_end >= 0:
                yield start, line_end, _announced(frozenset(hits))
            start = data.rfind(b"\n", 0, position) + 1
            line_end = data.find(b"\n", position) + 1 or len(data)
            hits.clear()
        hits.add(anchor)
    if line_end >= 0:
        yield start, line_end, _announced(frozenset(hits))


def wanted_by(text: str) -> tuple[LogRule, ...]:
    """The rules that may match a line that was put together from several, in table order."""
    search, _ = _automaton()
    hits = search(text.encode("utf-8", "surrogatepass"))
    return _announced(frozenset(anchor for anchor, _, _ in hits))


@lru_cache(maxsize=4_096)
def _announced(anchors: frozenset[int]) -> tuple[LogRule, ...]:
    """The rules of these anchors, in table order: logs repeat few sets of them."""
    _, places = _automaton()
    found = {place for anchor in anchors for place in places[anchor]}
    return tuple(RULES[place] for place in sorted(found))


def lines_above(data: bytes, start: int, most: int, stop: int = 0) -> Iterator[bytes]:
    """The lines above a position, nearest first, down to the place `stop`."""
    for _ in range(most):
        if start <= stop:
            return
        above = data.rfind(b"\n", 0, start - 1) + 1
        yield data[above:start]
        start = above
