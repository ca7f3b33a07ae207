"""The table of log rules: what a known message means, and what to do about it.

One code per rule, never reused. The order matters: the first rule that matches a line has it, so
a specific rule stands before a general one of the same family.
"""

from __future__ import annotations

from functools import lru_cache

from unhang.logs.rules.base import LogRule
from unhang.logs.rules.bootstrap import RULES as BOOTSTRAP
from unhang.logs.rules.cluster import RULES as CLUSTER
from unhang.logs.rules.devices import RULES as DEVICES
from unhang.logs.rules.endings import RULES as ENDINGS
from unhang.logs.rules.fabric import RULES as FABRIC
from unhang.logs.rules.interfaces import RULES as INTERFACES
from unhang.logs.rules.memory import RULES as MEMORY
from unhang.logs.rules.nccl import RULES as NCCL
from unhang.logs.rules.nccl_parts import RULES as NCCL_PARTS
from unhang.logs.rules.program import RULES as PROGRAM
from unhang.logs.rules.stores import RULES as STORES
from unhang.logs.rules.sxids import RULES as SXIDS
from unhang.logs.rules.unexplained import UNEXPLAINED_ERROR, UNHANDLED_EXCEPTION
from unhang.logs.rules.waiters import RULES as WAITERS
from unhang.logs.rules.watchdog import RULES as WATCHDOG

__all__ = ["RULES", "LogRule", "rule_of"]

RULES: tuple[LogRule, ...] = (
    *(*WATCHDOG, *STORES, *INTERFACES, *ENDINGS, *BOOTSTRAP, *WAITERS, *MEMORY, *FABRIC, *NCCL),
    *(*SXIDS, *DEVICES, *CLUSTER, *PROGRAM, *NCCL_PARTS, UNHANDLED_EXCEPTION, UNEXPLAINED_ERROR),
)


@lru_cache(maxsize=1)
def _by_code() -> dict[str, LogRule]:
    return {rule.code: rule for rule in RULES}


def rule_of(code: str) -> LogRule | None:
    """The rule of a code such as "UH701", or None."""
    return _by_code().get(code)
