"""What samplers write when they could not look: the process is there, its stack is not.

Kept as a sample without threads, so that a rank without a stack is not simply absent.
"""

from __future__ import annotations

import re

from unhang.model import UNKNOWN_RANK, ProcessSample

_PYSPY = re.compile(r"^Error: (.+)$", re.MULTILINE)
_PYSTACK = re.compile(r"^💀 (.+?) ?💀?$", re.MULTILINE)
_GDB = re.compile(r"^((?:ptrace|Could not attach to process).+)$", re.MULTILINE)
_LONGEST = 20_000  # a sampler's complaint with its back trace; anything longer is something else


def matches(text: str) -> bool:
    """Whether this is only a sampler's complaint."""
    return len(text) <= _LONGEST and any(p.search(text) for p in (_PYSPY, _PYSTACK, _GDB))


def parse(text: str) -> list[ProcessSample]:
    """One sample without threads, with the complaint as its error."""
    for tool, pattern in (("py-spy", _PYSPY), ("pystack", _PYSTACK), ("gdb", _GDB)):
        if found := pattern.search(text):
            return [
                ProcessSample(rank=UNKNOWN_RANK, host="", pid=-1, tool=tool, error=found[1].strip())
            ]
    return []
