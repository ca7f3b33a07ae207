"""Core files of ranks: whose they are, which signal, every thread's stack, what that means.

Needs the extra `stacks` (pystack, pyelftools); gdb is the fall-back where it is installed. Nothing
in a core is executed, and no script next to it is loaded.
"""

from __future__ import annotations

from unhang.cores.judging import judge_cores, sample_of
from unhang.cores.reading import CoreReading, find_cores, read_core

__all__ = ["CoreReading", "find_cores", "judge_cores", "read_core", "sample_of"]
