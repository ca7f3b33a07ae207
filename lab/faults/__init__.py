"""Fault classes: edits of healthy plans, each with the truth that the files allow to know.

Importing this package fills `FAULTS`. A class's docstring says what happens and what can be known;
the judge that it returns refuses (UnfitError) jobs in which the fault did not do what it says.
"""

from __future__ import annotations

from lab.faults import calls, device, host, order, p2p, quiet, sequence
from lab.faults.registry import FAULTS, Fault
from lab.faults.scene import Judge, Scene, UnfitError

__all__ = [
    "FAULTS",
    "Fault",
    "Judge",
    "Scene",
    "UnfitError",
    "calls",
    "device",
    "host",
    "order",
    "p2p",
    "quiet",
    "sequence",
]
