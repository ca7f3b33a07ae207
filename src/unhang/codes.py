"""The catalogue of finding codes: the one place that says which codes exist.

Codes are never renumbered and never reused. The UH7xx rules of the log table and the UH8xx checks
of the doctor have tables of their own, which register here by their families; their pages live
beside these in docs/codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["CODES", "Code"]


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of finding.

    Attributes:
        code: "UH101".
        slug: The short name that stands beside it everywhere ("never-joined").
        meaning: One sentence.
    """

    code: str
    slug: str
    meaning: str


_ALL: Final = (
    Code("UH101", "never-joined", "Ranks never called a collective in which the others wait."),
    Code(
        "UH102",
        "skipped-call",
        "A rank's calls lack, or have too many of, a call that its peers made, some time before "
        "the hang.",
    ),
    Code("UH103", "silent-rank", "The rank that others wait for left no usable dump."),
    Code(
        "UH104",
        "inside-enqueue",
        "The call is recorded but was never launched: stuck inside the library's enqueue.",
    ),
    Code(
        "UH105",
        "device-behind",
        "The host went on enqueueing while its device finishes nothing.",
    ),
    Code(
        "UH106",
        "rank-ended",
        "A rank's process ended, by a signal, an error or an early exit, while its peers went on.",
    ),
    Code("UH201", "op-mismatch", "Members made different calls under one sequence number."),
    Code("UH202", "shape-mismatch", "Members disagree about the shapes of one call."),
    Code("UH203", "dtype-mismatch", "Members disagree about the dtypes of one call."),
    Code("UH204", "split-mismatch", "Send and receive sizes of an all-to-all do not add up."),
    Code("UH205", "membership-mismatch", "Ranks disagree about who is in a group."),
    Code("UH301", "wait-cycle", "Groups entered in crossed order: a deadlock among ranks."),
    Code("UH302", "p2p-unmatched", "A send or a receive has no counterpart."),
    Code("UH303", "p2p-cycle", "Sends and receives wait for each other in a circle."),
    Code("UH304", "p2p-mismatch", "A send and its receive disagree about size, dtype or peer."),
    Code(
        "UH401",
        "joined-not-progressing",
        "All members are in the call and it does not move.",
    ),
    Code("UH402", "partly-finished", "Only some members came out of the call."),
    Code("UH501", "late-rank", "Not stuck but slow: the same ranks arrive last."),
    Code("UH601", "idle", "No call is in flight anywhere: idle or finished."),
    Code(
        "UH602",
        "host-program-stuck",
        "No call is in flight, and stacks or logs show that the program does not move.",
    ),
    Code("UH603", "last-traced-call", "A process made its last traced call before the others."),
    Code("UH604", "waits-in-syscall", "A thread waited in one system call all the time."),
    Code("UH605", "spins-in-syscalls", "A thread makes system calls without end."),
    Code("UH606", "busy-without-syscalls", "A thread never sleeps and makes no system calls."),
    Code("UH700", "first-failure", "The earliest failure in the logs."),
    Code(
        "UH795",
        "ranks-differ",
        "Ranks report different versions, interfaces or settings.",
    ),
    Code("UH796", "core-crash", "A core file shows a crash in native code."),
    Code("UH797", "core-abort", "A core file shows a process that ended itself."),
    Code("UH798", "core-alive", "A core file shows where a living process stood."),
    Code("UH870", "numbers-differ", "Two settings give numbers that differ too much."),
    Code("UH871", "not-finite", "A module or operator gives NaN or infinity."),
    Code("UH872", "ranks-numbers-differ", "Ranks hold different values of one tensor."),
    Code("UH901", "insufficient-evidence", "What there is does not allow a verdict."),
)

CODES: Final[dict[str, Code]] = {code.code: code for code in _ALL}
