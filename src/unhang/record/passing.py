"""What ranks print passes through their launcher, which `unhang run` has asked to keep it apart.

Torchrun reads its ranks' logs and writes the lines to its own output, as Python buffers it: into a
pipe or a file, kilobytes late, and never if it is killed. Only the launcher's own stream changes,
no variable: its ranks would inherit that.
"""

from __future__ import annotations

import io
import sys


def pass_lines_on(role: str) -> None:
    """Let a launcher write each line when it has it, also where there is no terminal."""
    if role == "launcher" and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
