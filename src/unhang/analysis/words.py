"""What else it could be, and what to do next: the standing sentences of each kind of finding.

Concrete commands and settings; facts of this case are added by whoever makes the finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unhang.wording import rank_phrase

__all__ = ["ACTIONS", "ALTERNATIVES", "subject", "waiting_for"]

_STACKS = "Look at the stacks of the culprits: unhang stacks (live), or the logs: unhang logs."
_NCCL_ENABLE = (
    "For next time record more: TORCH_FR_BUFFER_SIZE=20000, TORCH_NCCL_DUMP_ON_TIMEOUT=1, or run "
    "under unhang run."
)

ALTERNATIVES: Final[dict[str, tuple[str, ...]]] = {
    "UH101": (
        (
            "They may have skipped a call much earlier that looks like all others (same op, sizes "
            "and line), so that their count is short by one."
        ),
    ),
    "UH102": ("A branch taken by one rank only, or loops of different lengths over uneven data.",),
    "UH103": (
        (
            "The rank may be alive and merely unable to write its dump (full disk, GIL held, dump "
            "written to a folder of its own host)."
        ),
    ),
    "UH104": (
        "The library may be creating a communicator or waiting for a full launch queue.",
        "The counters may have been read a moment before the launch returned.",
    ),
    "UH105": (
        "The watchdog of that process may be stuck, so that finished calls are not seen as such.",
    ),
    "UH201": ("A call that one side skipped or repeated earlier makes unlike calls meet here.",),
    "UH202": (
        "A call that one side skipped or repeated earlier makes unlike calls meet here.",
        "Batches of uneven size, or a last batch that was not dropped on one rank only.",
    ),
    "UH203": ("Autocast or a parameter left in another precision on some ranks.",),
    "UH204": ("Split sizes computed from data that differ from rank to rank, without exchange.",),
    "UH205": ("new_group called with other ranks, or in another order, on some ranks.",),
    "UH301": (
        "One side may have skipped the call in which the other waits, rather than swapped it.",
    ),
    "UH302": ("The other side may reach its call later: it may be slow rather than wrong.",),
    "UH303": (),
    "UH304": (),
    "UH401": (
        "Network or link down between some hosts; a GPU that hangs in its kernel; NCCL itself.",
        "The call was simply in flight when the dumps were taken.",
    ),
    "UH402": (
        "The dumps were taken while the call was just finishing.",
        "A link or a GPU of a rank that did not come out of the call.",
    ),
    "UH901": (),
}

ACTIONS: Final[dict[str, tuple[str, ...]]] = {
    "UH101": (_STACKS,),
    "UH102": (
        "Compare the code around both lines for conditions that depend on the rank or on its data.",
        "Reproduce with TORCH_DISTRIBUTED_DEBUG=DETAIL, which checks each call on all ranks.",
    ),
    "UH103": (
        (
            "Check whether the process lives: its exit code, the kernel log (dmesg | grep -i oom), "
            "the launcher's log."
        ),
        "Collect the missing dump from its host: unhang collect.",
    ),
    "UH104": (
        "Take native stacks of that rank: unhang stacks --native.",
        "Run with NCCL_DEBUG=INFO and look at its last line.",
    ),
    "UH105": (
        "Look for Xid errors on its host (dmesg | grep -i xid) and at nvidia-smi -q.",
        "Take the GPU out of service and run unhang doctor on that host.",
    ),
    "UH201": (
        "Make every rank issue the same calls in the same order; check what depends on the rank.",
        "Reproduce with TORCH_DISTRIBUTED_DEBUG=DETAIL, which checks each call on all ranks.",
    ),
    "UH202": (
        "Print the tensors' shapes just before this line on all ranks.",
        "Reproduce with TORCH_DISTRIBUTED_DEBUG=DETAIL, which checks each call on all ranks.",
    ),
    "UH203": ("Print the tensors' dtypes just before this line on all ranks.",),
    "UH204": (
        "Exchange the split sizes first, and check that sums of what is sent and received agree.",
    ),
    "UH205": ("Make every rank call new_group with the same ranks in the same order.",),
    "UH301": (
        "Issue calls of different groups in one order on all ranks.",
        "Where groups overlap on a GPU, do not leave calls of both in flight at once.",
    ),
    "UH302": ("Check that each send has one receive on the other side, also on the last step.",),
    "UH303": (
        "Let one side of each pair send first, or use batch_isend_irecv for both directions.",
    ),
    "UH304": ("Print shape, dtype and peer just before both lines.",),
    "UH401": (
        "Check links and GPUs: unhang doctor, nvidia-smi, ibstat, dmesg | grep -i xid.",
        (
            "Swap the transport to tell them apart: NCCL_P2P_DISABLE=1, then NCCL_IB_DISABLE=1, "
            "then NCCL_NET=Socket."
        ),
        "Switch on TORCH_NCCL_ENABLE_TIMING=1, which shows who started.",
    ),
    "UH402": (
        "Check the GPUs and links of the ranks that did not come out: dmesg | grep -i xid, ibstat.",
        "Switch on TORCH_NCCL_ENABLE_TIMING=1, which shows who started.",
    ),
    "UH601": (),
    "UH602": ("Take two stack samples a few seconds apart: unhang stacks --samples 2.",),
    "UH901": (_NCCL_ENABLE,),
}


def subject(ranks: Sequence[int]) -> str:
    """Ranks at the beginning of a sentence: "Ranks 3-5"."""
    phrase = rank_phrase(ranks)
    return phrase[:1].upper() + phrase[1:]


def waiting_for(number: int) -> str:
    """How many are kept waiting, as a sentence."""
    who = "1 rank waits" if number == 1 else f"{number:,} ranks wait"
    return f"{who} for this, directly or through others."
