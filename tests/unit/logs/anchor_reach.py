"""Which alternatives of a pattern match lines that no anchor announces.

A pattern is followed from its beginning with all that may stand before each place: the literal text
that ends there, as far as it is certain. Where an anchor is complete the line is announced, however
it goes on. What is left at the end are texts that match and have no anchor.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

if sys.version_info >= (3, 11):
    from re import _parser as parser
else:
    import sre_parse as parser

__all__ = ["unannounced"]

SMALL = 12
"""Characters of a class that are tried one by one."""
GAP = "~"
"""Shown where anything may stand."""

Texts = dict[str, str]
"""By what is certain right before a place: one of the texts that end so, from the beginning."""


def unannounced(pattern: str, anchors: Sequence[str]) -> list[str]:
    """Texts that match and have no anchor, one for each way to end; empty where all have one."""
    return sorted(_Walk(tuple(anchors)).through(parser.parse(pattern), {"": ""}).values())


class _Walk:
    def __init__(self, anchors: tuple[str, ...]) -> None:
        self.anchors = anchors

    def through(self, nodes: Iterable[Any], before: Texts) -> Texts:
        """The texts without an anchor that may stand at the end of some nodes."""
        for name, value in nodes:
            if before:
                before = self.past(str(name), value, before)
        return before

    def past(self, name: str, value: Any, before: Texts) -> Texts:  # noqa: ANN401
        """The same for one node."""
        if name in ("LITERAL", "IN"):
            return self.added(before, {chr(value)} if name == "LITERAL" else _characters(value))
        if name == "BRANCH":
            return self.of_all(self.through(nodes, before) for nodes in value[1])
        if name == "SUBPATTERN":
            return self.through(value[3], before)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            return self.repeated(*value, before)
        if name in ("AT", "ASSERT", "ASSERT_NOT"):
            return self.ahead(value[1], before) if name == "ASSERT" and value[0] > 0 else before
        return self.added(before, {""})

    def ahead(self, nodes: Iterable[Any], before: Texts) -> Texts:
        """The texts that have no anchor with what must follow them."""
        found = ((tail, self.through(nodes, {tail: text})) for tail, text in before.items())
        return {tail: before[tail] for tail, lacks in found if lacks}

    def repeated(self, least: int, most: int, nodes: Iterable[Any], before: Texts) -> Texts:
        """Not at all, once, or with anything between the first and the last time."""
        once = self.through(nodes, before)
        again = self.through(nodes, self.added(once, {""})) if most > 1 else {}
        return self.of_all((before if not least else {}, once, again))

    def added(self, before: Texts, characters: set[str]) -> Texts:
        """The texts with one character more, or anything (""), that still have no anchor."""
        after = {}
        for (tail, text), one in product(before.items(), sorted(characters)):
            end = tail + one if one else ""
            if not one or not end.endswith(self.anchors):
                after[end] = text + (one or GAP)
        return after

    def of_all(self, ways: Iterable[Texts]) -> Texts:
        """All texts of several ways."""
        return {tail: text for way in ways for tail, text in way.items()}


def _characters(members: Sequence[tuple[Any, Any]]) -> set[str]:
    """The characters of a class, if they are few; else anything."""
    found: set[str] = set()
    for name, value in members:
        if str(name) == "LITERAL":
            found.add(chr(value))
        elif str(name) == "RANGE":
            found |= {chr(code) for code in range(value[0], value[1] + 1)}
        else:
            return {""}
    return found if len(found) <= SMALL else {""}
