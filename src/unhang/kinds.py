"""The catalogue of finding kinds: everything that is known of a kind, whatever case it is found in.

A new kind stands in the file of its finding (`unhang.analysis.rules`), older ones are rows here.
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

__all__ = ["FAMILIES", "KINDS", "Family", "Kind", "Remedy", "Role", "Trait"]

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
    """It names nobody by itself, and leaves room for an explanation from elsewhere."""
    NOTHING_FOUND = auto()
    """It says that nothing was found, which any cause makes pointless."""
    LAST_RESORT = auto()
    """It is suspected only where nothing else explains the hang."""
    ONE_MISTAKE = auto()
    """One mistake shows in several places: told once, victims together."""
    ENDING = auto()
    """It says that a process ended, and no more."""
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
    """Somebody may be stuck although nothing else shows it: without a cause, no health."""
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
        slug: The short name that stands beside it everywhere ("never-joined").
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


_ABSENT: Final = Trait.ABSENCE | Trait.AWAITED | Trait.MAY_COME | Trait.FROM_FAILURE | Trait.OF_NOW

NEVER_JOINED: Final = Kind(
    "UH101",
    "never-joined",
    "absent",
    "Ranks never called a collective in which the others wait.",
    traits=_ABSENT | Trait.FROM_BAD_NODE,
    alternatives=(
        (
            "They may have skipped a call much earlier that looks like all others (same op, sizes"
            " and line), so that their count is short by one."
        ),
    ),
    actions=(
        "Look at the stacks of the culprits: unhang stacks (live), or the logs: unhang logs.",
    ),
)
SKIPPED_CALL: Final = Kind(
    "UH102",
    "skipped-call",
    "absent",
    "A rank's calls lack, or have too many of, a call that its peers made, some time "
    "before the hang.",
    traits=Trait.FROM_FAILURE | Trait.ONE_MISTAKE | Trait.OF_NOW,
    remedy=Remedy.CODE,
    alternatives=(
        "A branch taken by one rank only, or loops of different lengths over uneven data.",
    ),
    actions=(
        (
            "Compare the code around both lines for conditions that depend on the rank or on its "
            "data."
        ),
        "Reproduce with TORCH_DISTRIBUTED_DEBUG=DETAIL, which checks each call on all ranks.",
    ),
)
SILENT_RANK: Final = Kind(
    "UH103",
    "silent-rank",
    "absent",
    "The rank that others wait for left no usable dump.",
    traits=_ABSENT | Trait.FROM_BAD_NODE | Trait.LAST_RESORT,
    alternatives=(
        (
            "The rank may be alive and merely unable to write its dump (full disk, GIL held, dump"
            " written to a folder of its own host)."
        ),
    ),
    actions=(
        (
            "Check whether the process lives: its exit code, the kernel log (dmesg | grep -i "
            "oom), the launcher's log."
        ),
        "Collect the missing dump from its host: unhang collect.",
    ),
)
INSIDE_ENQUEUE: Final = Kind(
    "UH104",
    "inside-enqueue",
    "absent",
    "The call is recorded but was never launched: stuck inside the library's enqueue.",
    traits=Trait.FROM_FAILURE | Trait.FROM_BAD_NODE | Trait.MAY_COME | Trait.OF_NOW,
    alternatives=(
        "The library may be creating a communicator or waiting for a full launch queue.",
        "The counters may have been read a moment before the launch returned.",
    ),
    actions=(
        "Take native stacks of that rank: unhang stacks --native.",
        "Run with NCCL_DEBUG=INFO and look at its last line.",
    ),
)
DEVICE_BEHIND: Final = Kind(
    "UH105",
    "device-behind",
    "device",
    "The host went on enqueueing while its device finishes nothing.",
    traits=Trait.FROM_FAILURE | Trait.FROM_BAD_NODE | Trait.OF_NOW,
    alternatives=(
        ("The watchdog of that process may be stuck, so that finished calls are not seen as such."),
    ),
    actions=(
        "Look for Xid errors on its host (dmesg | grep -i xid) and at nvidia-smi -q.",
        "Take the GPU out of service and run unhang doctor on that host.",
    ),
)
RANK_ENDED: Final = Kind(
    "UH106",
    "rank-ended",
    "failure",
    "A rank's process ended, by a signal, an error or an early exit, while its peers went on.",
    traits=Trait.FROM_FAILURE | Trait.FROM_BAD_NODE,
)
OP_MISMATCH: Final = Kind(
    "UH201",
    "op-mismatch",
    "disagreement",
    "Members made different calls under one sequence number.",
    traits=Trait.OF_NOW,
    alternatives=(
        "A call that one side skipped or repeated earlier makes unlike calls meet here.",
    ),
    actions=(
        ("Make every rank issue the same calls in the same order; check what depends on the rank."),
        "Reproduce with TORCH_DISTRIBUTED_DEBUG=DETAIL, which checks each call on all ranks.",
    ),
)
SHAPE_MISMATCH: Final = Kind(
    "UH202",
    "shape-mismatch",
    "disagreement",
    "Members disagree about the shapes of one call.",
    traits=Trait.OF_NOW,
    alternatives=(
        "A call that one side skipped or repeated earlier makes unlike calls meet here.",
        "Batches of uneven size, or a last batch that was not dropped on one rank only.",
    ),
    actions=(
        "Print the tensors' shapes just before this line on all ranks.",
        "Reproduce with TORCH_DISTRIBUTED_DEBUG=DETAIL, which checks each call on all ranks.",
    ),
)
DTYPE_MISMATCH: Final = Kind(
    "UH203",
    "dtype-mismatch",
    "disagreement",
    "Members disagree about the dtypes of one call.",
    traits=Trait.OF_NOW,
    alternatives=("Autocast or a parameter left in another precision on some ranks.",),
    actions=("Print the tensors' dtypes just before this line on all ranks.",),
)
SPLIT_MISMATCH: Final = Kind(
    "UH204",
    "split-mismatch",
    "disagreement",
    "What members of an all-to-all, gather or scatter send and receive does not add up.",
    traits=Trait.OF_NOW,
    alternatives=(
        "Split sizes computed from data that differ from rank to rank, without exchange.",
    ),
    actions=(
        ("Exchange the split sizes first, and check that sums of what is sent and received agree."),
    ),
)
MEMBERSHIP_MISMATCH: Final = Kind(
    "UH205",
    "membership-mismatch",
    "disagreement",
    "Ranks disagree about who is in a group.",
    traits=Trait.OF_NOW,
    alternatives=("new_group called with other ranks, or in another order, on some ranks.",),
    actions=("Make every rank call new_group with the same ranks in the same order.",),
)
WAIT_CYCLE: Final = Kind(
    "UH301",
    "wait-cycle",
    "deadlock",
    "Groups entered in crossed order: a deadlock among ranks.",
    traits=Trait.OF_NOW,
    alternatives=(
        "One side may have skipped the call in which the other waits, rather than swapped it.",
    ),
    actions=(
        "Issue calls of different groups in one order on all ranks.",
        "Where groups overlap on a GPU, do not leave calls of both in flight at once.",
    ),
)
P2P_UNMATCHED: Final = Kind(
    "UH302",
    "p2p-unmatched",
    "absent",
    "A send or a receive has no counterpart.",
    traits=Trait.FROM_FAILURE | Trait.ONE_MISTAKE | Trait.AWAITED | Trait.MAY_COME | Trait.OF_NOW,
    alternatives=("The other side may reach its call later: it may be slow rather than wrong.",),
    actions=("Check that each send has one receive on the other side, also on the last step.",),
)
P2P_CYCLE: Final = Kind(
    "UH303",
    "p2p-cycle",
    "deadlock",
    "Sends and receives wait for each other in a circle.",
    traits=Trait.OF_NOW,
    actions=(
        "Let one side of each pair send first, or use batch_isend_irecv for both directions.",
    ),
)
P2P_MISMATCH: Final = Kind(
    "UH304",
    "p2p-mismatch",
    "disagreement",
    "A send and its receive disagree about size, dtype, tag or peer.",
    traits=Trait.OF_NOW,
    actions=("Print shape, dtype, tag and peer just before both lines.",),
)
JOINED_NOT_PROGRESSING: Final = Kind(
    "UH401",
    "joined-not-progressing",
    "transport",
    "All members are in the call and it does not move.",
    traits=Trait.FROM_FAILURE | Trait.OPEN | Trait.MAY_COME | Trait.OF_NOW,
    alternatives=(
        "Network or link down between some hosts; a GPU that hangs in its kernel; NCCL itself.",
        "The call was simply in flight when the dumps were taken.",
    ),
    actions=(
        "Check links and GPUs: unhang doctor, nvidia-smi, ibstat, dmesg | grep -i xid.",
        (
            "Swap the transport to tell them apart: NCCL_P2P_DISABLE=1, then NCCL_IB_DISABLE=1, "
            "then NCCL_NET=Socket."
        ),
        "Switch on TORCH_NCCL_ENABLE_TIMING=1, which shows who started.",
    ),
)
PARTLY_FINISHED: Final = Kind(
    "UH402",
    "partly-finished",
    "transport",
    "Only some members came out of the call.",
    traits=Trait.FROM_FAILURE | Trait.FROM_BAD_NODE | Trait.OPEN | Trait.OF_NOW,
    alternatives=(
        "The dumps were taken while the call was just finishing.",
        "A link or a GPU of a rank that did not come out of the call.",
    ),
    actions=(
        (
            "Check the GPUs and links of the ranks that did not come out: dmesg | grep -i xid, "
            "ibstat."
        ),
        "Switch on TORCH_NCCL_ENABLE_TIMING=1, which shows who started.",
    ),
)
TIMEOUTS_DIFFER: Final = Kind(
    "UH403",
    "timeouts-differ",
    "environment",
    "Members of a call that does not move have different time-outs for it.",
    role="observation",
    actions=("Give init_process_group and new_group the same timeout on all ranks.",),
)
IDLE: Final = Kind(
    "UH601",
    "idle",
    "evidence",
    "No call is in flight anywhere: idle or finished.",
    role="observation",
    traits=Trait.OPEN | Trait.NOTHING_FOUND,
)
HOST_PROGRAM_STUCK: Final = Kind(
    "UH602",
    "host-program-stuck",
    "program",
    "No call is in flight, and stacks or logs show that the program does not move.",
    traits=Trait.FROM_FAILURE | Trait.OF_NOW,
    actions=("Take two stack samples a few seconds apart: unhang stacks --samples 2.",),
)
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
    NEVER_JOINED,
    SKIPPED_CALL,
    SILENT_RANK,
    INSIDE_ENQUEUE,
    DEVICE_BEHIND,
    RANK_ENDED,
    OP_MISMATCH,
    SHAPE_MISMATCH,
    DTYPE_MISMATCH,
    SPLIT_MISMATCH,
    MEMBERSHIP_MISMATCH,
    WAIT_CYCLE,
    P2P_UNMATCHED,
    P2P_CYCLE,
    P2P_MISMATCH,
    JOINED_NOT_PROGRESSING,
    PARTLY_FINISHED,
    TIMEOUTS_DIFFER,
    IDLE,
    HOST_PROGRAM_STUCK,
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

kinds.json has the kinds that files of findings declare (`unhang.analysis.rules`), so that whoever
reads a code needs no analysis; `python docs/refresh.py` makes it.
"""
