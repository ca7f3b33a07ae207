"""The catalogue of finding kinds: everything that is known of a kind, whatever case it is found in.

A kind stands in the file of its finding (`unhang.analysis.rules`); those of several are rows here.
Rules make claims of it; what asks what a kind is like (does it explain an absence, may a bad node
be behind it) asks for a trait. No other module holds a set of codes. Log rules and the doctor's
checks are rows of tables and carry their `Kind` there; `unhang.catalogue` knows all of them.

Codes are never renumbered and never reused. They may have four digits; new kinds are known by
their slug.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, Flag, auto
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

Role: TypeAlias = Literal["cause", "consequence", "observation"]
Family: TypeAlias = Literal[
    "absent",
    "disagreement",
    "deadlock",
    "transport",
    "device",
    "program",
    "failure",
    "slow",
    "environment",
    "evidence",
]

FAMILIES: Final[dict[Family, str]] = {
    "absent": "a rank did not enter a call in which its peers wait",
    "disagreement": "ranks made different calls, or calls that do not fit",
    "deadlock": "ranks wait for each other",
    "transport": "data do not get from rank to rank: network, addresses, links, library",
    "device": "a GPU, its driver or its memory",
    "program": "the code of a process: where it is, what it asks for",
    "failure": "a process failed, ended, or computed something wrong",
    "slow": "the job makes progress, but slower than it should",
    "environment": "settings, versions, limits and storage around the job",
    "evidence": "what the evidence shows, and what it lacks",
}
"""What each family is about."""


class Trait(Flag):
    """What other rules ask of a kind."""

    NONE = 0
    ABSENCE = auto()
    """Its culprits did not come to a call in which others wait."""
    FROM_FAILURE = auto()
    """It may follow from the failure of one rank; without this a kind stands by itself."""
    FROM_BAD_NODE = auto()
    """A bad node, GPU or process of its culprit may be the reason."""
    OPEN = auto()
    """It names no rank by itself, and leaves room for an explanation from elsewhere."""
    NOTHING_FOUND = auto()
    """It says that nothing was found, which any cause makes pointless."""
    LAST_RESORT = auto()
    """It is suspected only where nothing else explains the hang."""
    ONE_MISTAKE = auto()
    """One mistake shows in several places: told once, victims together."""
    ENDING = auto()
    """It says that a process ended, and no more."""
    ENDED = auto()
    """Its culprits' processes are gone: whatever else is said of these ranks comes of that."""
    SIZES = auto()
    """It is about sizes of one call, which heartbeats know even of a rank that left no dump."""
    COUNTERS = auto()
    """Its line tells at which call of a group a rank was."""
    REPORTED_LATER = auto()
    """It says that an error of its rank may have happened at an earlier call than the one shown."""
    OF_A_KERNEL = auto()
    """An error of a kernel, which shows at a later call: the same again, otherwise, tells more."""
    CHECKED = auto()
    """A check looked for it: it is known independently of what a job left behind."""
    ON_THE_WAY = auto()
    """It is about what data pass between ranks: network, GPU, link, library."""
    UNDECIDED = auto()
    """A rank may be stuck although nothing else shows it: without a cause, no health."""
    AWAITED = auto()
    """Peers wait in a call to which its culprits have not come."""
    MAY_COME = auto()
    """Its culprits may come yet: one that is seen to move is slow rather than stuck."""
    OF_NOW = auto()
    """It is about ranks that stand still: over, where calls end again."""


class Remedy(Enum):
    """What helps against a kind, unless the facts of a case say otherwise."""

    WAIT = "nothing: the job goes on by itself"
    CODE = "a change of the program, or of what it is given: the same again ends the same way"
    RETRY = "the same again"
    REPLACE = "the same again without the host or GPU that the evidence names"
    LOOK = "what is looked at next decides"


_REMEDIES: Final[dict[Family, Remedy]] = {
    "disagreement": Remedy.CODE,
    "deadlock": Remedy.CODE,
    "slow": Remedy.WAIT,
}
"""What helps against all kinds of a family; against the others, what is looked at decides."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding.

    Attributes:
        code: "UH101".
        slug: The short name that stands next to it everywhere ("never-joined").
        family: What sort of trouble it is.
        meaning: One sentence.
        role: What a claim of it is unless judged otherwise.
        traits: What other rules may conclude from it.
        alternatives: What else it could be, whatever the case.
        actions: What to do next, whatever the case.
        remedy: What helps against it; None for what helps against its family.
    """

    code: str
    slug: str
    family: Family
    meaning: str
    role: Role = "cause"
    traits: Trait = Trait.NONE
    alternatives: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    remedy: Remedy | None = None

    @property
    def helps(self) -> Remedy:
        """What helps against it, or else against its family."""
        return self.remedy or _REMEDIES.get(self.family, Remedy.LOOK)

    def has(self, trait: Trait) -> bool:
        """Whether it has a trait (all of them, if several are asked for)."""
        return trait in self.traits


ABSENT: Final = Trait.ABSENCE | Trait.AWAITED | Trait.MAY_COME | Trait.FROM_FAILURE | Trait.OF_NOW

FIRST_FAILURE: Final = Kind(
    "UH700",
    "first-failure",
    "failure",
    "The earliest failure in the logs.",
)
INSUFFICIENT_EVIDENCE: Final = Kind(
    "UH901",
    "insufficient-evidence",
    "evidence",
    "What there is does not allow a verdict.",
    role="observation",
    traits=Trait.OPEN | Trait.NOTHING_FOUND | Trait.UNDECIDED,
    actions=(
        (
            "For next time record more: TORCH_FR_BUFFER_SIZE=20000, TORCH_NCCL_DUMP_ON_TIMEOUT=1,"
            " or run under unhang run."
        ),
    ),
)


_ALL: Final = (
    FIRST_FAILURE,
    INSUFFICIENT_EVIDENCE,
)


def _kind_from(row: dict[str, Any]) -> Kind:
    """The kind of a row of kinds.json."""
    traits = Trait.NONE
    for name in row["traits"]:
        traits |= Trait[name]
    remedy = Remedy[row["remedy"]] if row["remedy"] else None
    texts = {name: tuple(row[name]) for name in ("alternatives", "actions")}
    return Kind(**{**row, **texts, "traits": traits, "remedy": remedy})


_ROWS: Final = map(_kind_from, json.loads(Path(__file__).with_name("kinds.json").read_bytes()))

KINDS: Final[dict[str, Kind]] = {
    kind.code: kind for kind in sorted((*_ALL, *_ROWS), key=lambda kind: int(kind.code[2:]))
}
"""All kinds by code, but for those of log rules and of checks, which stand in their rows.

kinds.json has the kinds that files of findings declare (`unhang.analysis.rules`), so that a reader
of a code needs no analysis; `python docs/refresh.py` makes it.
"""
