"""What else it could be, and what to do next: the standing sentences of each kind of finding.

Concrete commands and settings; facts of this case are added by whoever makes the finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unhang.kinds import KINDS
from unhang.wording import rank_phrase

__all__ = ["ACTIONS", "ALTERNATIVES", "subject", "waiting_for"]

ALTERNATIVES: Final = {kind.code: kind.alternatives for kind in KINDS.values()}
ACTIONS: Final = {kind.code: kind.actions for kind in KINDS.values()}


def subject(ranks: Sequence[int]) -> str:
    """Ranks at the beginning of a sentence: "Ranks 3-5"."""
    phrase = rank_phrase(ranks)
    return phrase[:1].upper() + phrase[1:]


def waiting_for(number: int) -> str:
    """How many are kept waiting, as a sentence."""
    who = "1 rank waits" if number == 1 else f"{number:,} ranks wait"
    return f"{who} for this, directly or through others."
