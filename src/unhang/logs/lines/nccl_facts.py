"""What NCCL and Gloo say of themselves, as facts that can be compared between ranks or told."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from unhang.model import UNKNOWN_RANK, Fact, Note
from unhang.wording import rank_phrase

_TAKEN = {
    "socket interface": "NCCL took",
    "socket interfaces": "NCCL took",
    "own address": "Gloo took",
}
_MOST = 8

_PATTERNS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("NCCL version", "NCCL version", re.compile(r"NCCL version (\d[\w.+-]+)")),
    ("NCCL version", "using nccl==", re.compile(r"using nccl==(\d[\w.+-]+)")),
    ("torch version", "PyTorch version: ", re.compile(r"^PyTorch version: (\d[\w.+-]+)")),
    ("driver version", "river version: ", re.compile(r"^N\w{5} driver version: (\d[\d.]+)")),
    ("driver version", "Driver Version: ", re.compile(r"\bDriver Version: (\d[\d.]+)")),
    ("network", "Using network", re.compile(r"Using network (\w[\w ./-]*)")),
    (
        "socket interface",
        "Bootstrap : Using",
        re.compile(r"Bootstrap : Using (?:\[0\])?([\w.-]+):"),
    ),
    ("socket interface", "Bootstrap: Using", re.compile(r"Bootstrap: Using (?:\[0\])?([\w.-]+):")),
    ("socket interfaces", "NET/Socket : Using", re.compile(r"NET/Socket : Using \[0\]([\w.-]+):")),
    ("IB devices", "NET/IB : Using", re.compile(r"NET/IB : Using (\[0\]\S+)")),
    (
        "setting",
        "set by environment to",
        re.compile(r"(NCCL_\w+) set by environment to (\S+)"),
    ),
    ("own address", "local=[", re.compile(r"\blocal=\[([0-9a-fA-F.:]+)\]:\d+, remote=")),
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
        if fact.rank >= 0 and fact.name != "own address":
            values[fact.name][fact.value].add(fact.rank)
    return {
        name: {value: tuple(sorted(ranks)) for value, ranks in said.items()}
        for name, said in values.items()
        if len(said) > 1
    }


def interfaces_taken(facts: Iterable[Fact]) -> Iterator[Note]:
    """Which interfaces and addresses NCCL and Gloo took, by their own lines."""
    taken: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for fact in facts:
        if fact.name in _TAKEN:
            taken[_TAKEN[fact.name]][fact.value].add(fact.rank)
    for who, values in taken.items():
        told = [f"{value}{_by(ranks)}" for value, ranks in list(values.items())[:_MOST]]
        yield Note("info", "interfaces", f"{who} {', '.join(told)}")


def _by(ranks: set[int]) -> str:
    known = sorted(ranks - {UNKNOWN_RANK})
    return f" ({rank_phrase(known)})" if known else ""
