"""What NCCL says of itself with NCCL_DEBUG=INFO, as facts that can be compared between ranks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from unhang.model import Fact

__all__ = ["FACT_ANCHORS", "differing", "fact_of"]


_PATTERNS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("NCCL version", "NCCL version", re.compile(r"NCCL version (\d[\w.+-]+)")),
    ("network", "Using network", re.compile(r"Using network (\w[\w ./-]*)")),
    ("socket interface", "Bootstrap : Using", re.compile(r"Bootstrap : Using ([\w.-]+):")),
    ("socket interface", "Bootstrap: Using", re.compile(r"Bootstrap: Using ([\w.-]+):")),
    ("socket interfaces", "NET/Socket : Using", re.compile(r"NET/Socket : Using \[0\]([\w.-]+):")),
    ("IB devices", "NET/IB : Using", re.compile(r"NET/IB : Using (\[0\]\S+)")),
    (
        "setting",
        "set by environment to",
        re.compile(r"(NCCL_\w+) set by environment to (\S+)"),
    ),
    ("driver", "cudaDriverVersion", re.compile(r"cudaDriverVersion (\d+)")),
)

FACT_ANCHORS = tuple(anchor for _, anchor, _ in _PATTERNS)


def fact_of(text: str) -> Fact | None:
    """The fact that a line states, or None."""
    for name, anchor, pattern in _PATTERNS:
        if anchor in text:
            match = pattern.search(text)
            if match:
                groups = match.groups()
                return Fact(groups[0] if len(groups) > 1 else name, groups[-1].rstrip("."))
    return None


def differing(facts: Iterable[Fact]) -> dict[str, dict[str, tuple[int, ...]]]:
    """Facts about which ranks disagree: name -> value -> ranks; those without a rank left out."""
    values: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for fact in facts:
        if fact.rank >= 0:
            values[fact.name][fact.value].add(fact.rank)
    return {
        name: {value: tuple(sorted(ranks)) for value, ranks in said.items()}
        for name, said in values.items()
        if len(said) > 1
    }
