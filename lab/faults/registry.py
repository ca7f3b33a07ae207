"""The table of fault classes: name, best code, what it needs, and how to inject it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from lab.faults.scene import Judge, Scene

Inject: TypeAlias = Callable[[Scene], Judge]

COLLECTIVE = ("ddp", "zero", "fsdp", "hsdp", "tp", "moe", "megatron")
EVERY = (*COLLECTIVE, "pp", "pp-interleaved", "cp", "uneven", "mixed")


@dataclass(frozen=True, slots=True)
class Fault:
    """One class of faults (or of healthy jobs, or of near misses).

    Attributes:
        code: The best code of its verdict, or "" for a healthy job.
        near: Codes that it resembles and must not trigger.
        layouts: Where it makes sense.
        history: It can only be told from finished calls: no active-only dumps, no small rings.
        recordings: Keys of the corpus' recording conditions; empty means its usual mixture.
        smallest, largest: Numbers of ranks.
        weight: How many times the usual number of cases it gets.
        loses: The culprit's file may be lost without making the class pointless.
        meaning: The docstring: what happens, and what the files allow to know.
    """

    name: str
    code: str
    inject: Inject
    meaning: str
    near: tuple[str, ...] = ()
    layouts: tuple[str, ...] = EVERY
    history: bool = False
    recordings: tuple[str, ...] = ()
    smallest: int = 4
    largest: int = 131_072
    weight: int = 1
    loses: bool = False


FAULTS: Final[dict[str, Fault]] = {}


def fault(
    name: str,
    code: str = "",
    **needs: object,
) -> Callable[[Inject], Inject]:
    """Register a class of faults; `needs` are further fields of `Fault`."""

    def register(inject: Inject) -> Inject:
        meaning = (inject.__doc__ or "").strip()
        FAULTS[name] = Fault(name, code, inject, meaning, **needs)  # type: ignore[arg-type] # fields of Fault, as its callers know
        return inject

    return register
