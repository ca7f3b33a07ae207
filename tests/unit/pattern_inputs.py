"""Texts on which a regular expression works hardest, made of its own parts.

What takes quadratic time begins often, goes on long, and fails late: so each part that may repeat
is repeated, behind what leads to it, and ended with something that does not fit.
"""

# ruff: noqa: ANN401, PLR0911 - the parts of a parsed pattern have no types of their own

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

if sys.version_info >= (3, 11):
    from re import _compiler as sre_compile  # type: ignore[attr-defined]
    from re import _constants as c  # type: ignore[attr-defined]
    from re import _parser as sre_parse  # type: ignore[attr-defined]
else:
    import sre_compile
    import sre_constants as c
    import sre_parse

MANY = 16
"""A part that may repeat so often counts as unbounded."""
_CATEGORIES = {
    c.CATEGORY_DIGIT: "7", c.CATEGORY_SPACE: " ", c.CATEGORY_WORD: "w",
    c.CATEGORY_NOT_DIGIT: "x", c.CATEGORY_NOT_SPACE: "x", c.CATEGORY_NOT_WORD: "-",
}  # fmt: skip
_PROBES = "aZ7 ._-/:=@\"'\\,;+%~(["


def worst_inputs(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """What is to be repeated, and what to stand before all of it."""
    seen = set()
    for lead, pump in _pumps(_parsed(pattern), ""):
        for each in ((pump, lead), (lead + pump, ""), (pump + lead, ""), (lead, "")):
            if each[0] and each not in seen:
                seen.add(each)
                yield each


def _parsed(pattern: re.Pattern[Any]) -> Any:
    source = pattern.pattern
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    return sre_parse.parse(text, pattern.flags & ~re.UNICODE)


def _pumps(parsed: Any, lead: str) -> Iterator[tuple[str, str]]:
    """Each part that may repeat, with an example of what stands before it."""
    for op, argument in parsed:
        if op in (c.MAX_REPEAT, c.MIN_REPEAT):
            least, most, body = argument
            if most is c.MAXREPEAT or most >= MANY:
                for example in _examples(body):
                    yield lead, example
            yield from _pumps(body, lead)
            lead += _example(body) * max(int(least), 1 if len(lead) < 200 else 0)
            continue
        for inner in _inner(op, argument):
            yield from _pumps(inner, lead)
        if op is not c.ASSERT_NOT:
            lead += _example([(op, argument)])


def _inner(op: Any, argument: Any) -> list[Any]:
    if op is c.BRANCH:
        return list(argument[1])
    if op is c.SUBPATTERN:
        return [argument[-1]]
    return [argument[1]] if op in (c.ASSERT, c.ASSERT_NOT) else []


def _examples(parsed: Any) -> list[str]:
    """Some texts that fit a part: of a set of characters one of each sort."""
    if len(parsed) == 1 and parsed[0][0] in (c.IN, c.NOT_LITERAL, c.ANY):
        op, argument = parsed[0]
        fit = [char for char in _PROBES if op is c.ANY or _fits(op, argument, char)][:6] or ["x"]
        return [*fit, fit[0] + fit[-1]]
    found = [_example(parsed)]
    for op, argument in parsed:
        if op is c.BRANCH:
            found += [_example(branch) for branch in argument[1]]
    return [text for text in dict.fromkeys(found) if text]


def _fits(op: Any, argument: Any, char: str) -> bool:
    one = sre_parse.SubPattern(sre_parse.State(), [(op, argument)])
    return re.fullmatch(_compiled(one), char) is not None


def _compiled(parsed: Any) -> re.Pattern[str]:
    parsed.state.str = ""
    return sre_compile.compile(parsed)


def _example(parsed: Any) -> str:
    return "".join(_one(op, argument) for op, argument in parsed)


def _one(op: Any, argument: Any) -> str:
    if op is c.LITERAL:
        return chr(argument)
    if op is c.NOT_LITERAL:
        return "x" if argument != ord("x") else "y"
    if op is c.ANY:
        return "x"
    if op is c.IN:
        return _member(argument)
    if op is c.BRANCH:
        return _example(argument[1][0])
    if op is c.SUBPATTERN:
        return _example(argument[-1])
    if op in (c.MAX_REPEAT, c.MIN_REPEAT):
        return _example(argument[2]) * int(argument[0])
    if op is c.ASSERT and argument[0] < 0:
        return _example(argument[1])
    return ""


def _member(items: Any) -> str:
    if items[0][0] is c.NEGATE:
        return next(char for char in "x7 -~" if _fits(c.IN, items, char))
    op, argument = items[0]
    if op is c.RANGE:
        return chr(argument[0])
    return _CATEGORIES.get(argument, "w") if op is c.CATEGORY else chr(argument)
