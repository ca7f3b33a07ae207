"""Draws small programs for the NCCL lab, each with what is right to say of it.

A program is data (`lab/nccl/jobs/programs.py` runs it): calls in a loop, on groups, and one rank
that does something else at one of them. The same seed gives the same programs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from lab.nccl.faults import NcclFault

_ALIKE = (
    *("all_reduce", "broadcast", "reduce", "gather", "scatter", "barrier"),
    *("all_gather", "all_gather_base", "reduce_scatter", "reduce_scatter_base"),
    *("all_to_all", "all_to_all_list"),
)
_UNEVEN = ("all_gather_uneven", "reduce_scatter_uneven", "all_to_all_uneven")
_BATCHED = ("coalesced", "coalesced_gather")
_P2P = ("ring", "turns", "chain", "there_and_back", "pairs")
_OPS = (_ALIKE, _ALIKE, _ALIKE, _UNEVEN, _BATCHED, _P2P, _P2P)
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_SIZED = tuple(sorted(set(_ALIKE) - {"barrier"}))
_ON = ("world", "world", "world", "copy", "halves", "strided", "upper", "pairs", "first")
_SIZES = (2, 3, 4, 4, 4, 4, 6, 8)

ABSENT = ("stall", "killed", "raises", "leaves")
APART = ("size", "dtype", "root", "op", "extra", "skip", "swap")
DEVICE = ("device", "kernel", "finish", "enqueue", "net")
HEALTHY = ("none", "moving", "slow")

_GONE = ("UH103", "UH106", "UH101", "UH302")
_COUNTED = ("UH102", "UH201", "UH202", "UH203", "UH302", "UH101")
_CODES = {
    "stall": ("UH101", "UH302"),
    "killed": _GONE,
    "raises": _GONE,
    "leaves": _GONE,
    "size": ("UH202", "UH102"),
    "dtype": ("UH203", "UH102"),
    "root": ("UH204", "UH401", "UH202"),
    "op": ("UH201", "UH102", "UH202"),
    "extra": _COUNTED,
    "skip": _COUNTED,
    "swap": ("UH301", "UH102", "UH201", "UH202", "UH302"),
    "device": ("UH105", "UH401", "UH402"),
    "kernel": ("UH402", "UH401", "UH105"),
    "finish": ("UH402", "UH105", "UH401"),
    "enqueue": ("UH104", "UH402", "UH401", "UH101"),
    "net": ("UH401",),
}


def draw(seed: int, count: int, faults: tuple[str, ...] = ()) -> Iterator[NcclFault]:
    """So many programs; faults in turn, all else by chance."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    kinds = faults or (*ABSENT, *APART, *DEVICE, *HEALTHY)
    for number in range(count):
        yield _one(chance, kinds[number % len(kinds)], f"drawn{seed}_{number:03}")


def _one(chance: random.Random, wrong: str, name: str) -> NcclFault:
    size = chance.choice(_SIZES)
    body = [_line(chance) for _ in range(chance.choice((1, 2, 2, 3)))]
    if wrong == "swap" and len(body) == 1:
        body.append(_line(chance))
    steps = chance.choice((3, 5, 5, 8))
    step, number = chance.randrange(steps - 1), chance.randrange(len(body))
    _fit(chance, wrong, body[number])
    rank = chance.choice(_members(body[number]["on"], size))
    spec = {
        "body": body, "fault": wrong, "rank": rank, "line": number, "steps": steps,
        "step": 0 if wrong in DEVICE else step, "warm": chance.choice((True, True, True, False)),
        "waits": chance.choice(("calls", "steps", "steps", "end")),
    }  # fmt: skip
    knobs = _knobs(chance, wrong, rank)
    if wrong == "moving":
        spec |= {"steps": 100_000, "pause_s": chance.choice((0.002, 0.02, 0.1))}
    if wrong == "slow":
        spec |= {"steps": 100_000, "slow": rank, "slow_s": chance.choice((0.05, 0.3))}
    return NcclFault(
        name,
        _says(spec),
        _CODES.get(wrong, ()),
        (rank,) if wrong in _CODES and wrong != "net" else (),
        _or_else(wrong, body[number]["on"], size),
        size,
        size - (wrong in ABSENT and wrong != "stall"),
        {"LAB_PROGRAM": json.dumps(spec), **knobs},
        ("UH501", "UH502", "UH601") if wrong == "slow" else ("UH601",),
    )


def _line(chance: random.Random) -> dict[str, Any]:
    return {
        "op": chance.choice(chance.choice(_OPS)),
        "on": chance.choice(_ON),
        "n": chance.choice((64, 256, 1024)),
        "root": chance.choice((0, 0, 1)),
    }


def _fit(chance: random.Random, wrong: str, line: dict[str, Any]) -> None:
    """Give the line that goes wrong an op that can go wrong so."""
    if wrong == "root":
        line["op"] = chance.choice(_ROOTED)
    if wrong in ("size", "dtype", "op") and line["op"] not in _SIZED:
        line["op"] = chance.choice(_SIZED)


def _members(kind: str, size: int) -> list[int]:
    ranks, half = list(range(size)), size // 2
    if kind == "upper":
        return ranks[half:]
    if kind in ("first", "pairs"):
        return ranks[:2]
    return ranks


def _knobs(chance: random.Random, wrong: str, rank: int) -> dict[str, str]:
    after = str(chance.randrange(3, 9))
    if wrong == "net":
        return {"FAKE_NET_AFTER": after}
    if wrong in DEVICE:
        return {"FAKE_FAULT": wrong, "FAKE_FAULT_RANK": str(rank), "FAKE_FAULT_AFTER": after}
    return {}


def _or_else(wrong: str, on: str, size: int) -> tuple[tuple[int, ...], ...]:
    """Who else may be named: of two sides nobody, of a stopped device nobody."""
    sides = {"halves": size // 2, "strided": (size + 1) // 2, "upper": size - size // 2}
    two = on in ("pairs", "first") or sides.get(on, size) <= 2  # noqa: PLR2004 - a pair
    return ((),) if (two and wrong in APART) or wrong in (*DEVICE, "root", "swap") else ()


def _says(spec: dict[str, Any]) -> str:
    calls = ", ".join(f"{line['op']} on {line['on']}" for line in spec["body"])
    where = f"call {spec['line']} of step {spec['step']}"
    return f"Rank {spec['rank']}: {spec['fault']} at {where} in {calls}; waits at {spec['waits']}."
