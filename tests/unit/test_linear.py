"""No pattern that meets text from outside takes more than linear time for it."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pattern_inputs import worst_inputs

import unhang.logs
import unhang.stacks
from unhang import ras, redact, telltale
from unhang.logs.rules import RULES
from unhang.logs.rules.base import compiled
from unhang.redact import Redactor
from unhang.telltale import harmless_log

SIZE = 3_000
ENOUGH_S = 0.02
"""Of CPU. Quadratic work on twice SIZE characters is 18 million steps, ten times as long."""
RATIO = 2.9
"""Twice the text takes twice as long where the work is linear, four times where it is quadratic."""


def constants() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """The patterns of the modules that read logs and stacks, and of those that clean texts."""
    modules = [redact, telltale, ras]
    for package in (unhang.logs, unhang.stacks):
        found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        modules += [importlib.import_module(each.name) for each in found]
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                yield f"{module.__name__}.{name}", value


def patterns() -> dict[str, re.Pattern[Any]]:
    """All of them, by where they stand."""
    found = dict(constants())
    found |= {rule.code: compiled(rule.pattern) for rule in RULES}
    found |= {f"{r.code} below": re.compile(r.below.pattern) for r in RULES if r.below}
    found |= {f"line {n}": p for n, p in enumerate(telltale._lines())}
    found |= {f"name {n}": p for n, p in enumerate(telltale._named())}
    blocks = enumerate(telltale._blocks())
    return found | {f"block {n} {part}": p for n, both in blocks for part, p in enumerate(both)}


PATTERNS = patterns()


def cost(work: Callable[[Any], object], text: str | bytes) -> float:
    """The least CPU time of three."""
    took = []
    for _ in range(3):
        begin = time.thread_time()
        work(text)
        took.append(time.thread_time() - begin)
        if took[-1] < ENOUGH_S:
            break
    return min(took)


def is_linear(work: Callable[[Any], object], make: Callable[[int], str | bytes]) -> bool:
    """Whether work on twice as much takes about twice as long, where it takes long at all."""
    return any(  # a busy machine may upset one comparison, not three
        (twice := cost(work, make(2))) < ENOUGH_S or twice < RATIO * cost(work, make(1))
        for _ in range(3)
    )


def text_of(pump: str, lead: str) -> Callable[[int], str]:
    """Makes texts of a pattern's parts, of one size or of several."""
    return lambda times: lead + pump * (times * SIZE // len(pump)) + "\x00"


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_a_pattern_is_linear(name: str) -> None:
    """On the worst that can be made of its own parts, searched and replaced."""
    pattern = PATTERNS[name]
    bad = []
    for pump, lead in worst_inputs(pattern):
        make: Callable[[int], Any] = text_of(pump, lead)
        if isinstance(pattern.pattern, bytes):
            text = make
            make = lambda times, text=text: text(times).encode()  # noqa: E731
        if not is_linear(lambda text: pattern.sub(lambda m: m[0], text), make):
            bad.append((lead[:40], pump[:40]))
    assert bad == []


def test_a_quadratic_pattern_is_found() -> None:
    """The e-mail pattern that cost a line of 120 KB minutes."""
    pattern = re.compile(r"\b([\w.+-]+)@([\w-]+(?:\.[\w-]+)+)\b")
    assert any(  # on a busy machine one comparison of several may pass for linear
        not is_linear(pattern.findall, text_of(pump, lead))
        for _ in range(3)
        for pump, lead in worst_inputs(pattern)
    )


@pytest.mark.parametrize(
    "pump", ["a.", "1", "a-", "a_", "/a", "-a", "a@", ":", "key ", "\"'", "eyJ-", "=", "a:", "n1-"]
)
def test_cleaning_is_linear(pump: str) -> None:
    """Whole texts with words that have every pattern tried."""

    def clean(text: str) -> None:
        redactor = Redactor()
        redactor.learn(hosts=["n1", "n1-a-a"], users=["me"])
        redactor.text(text)
        harmless_log(text.encode())

    assert is_linear(clean, lambda times: pump * (2_000 * times // len(pump)) + " password key @")
