"""What a simulated job consists of: groups, and one program of steps per rank.

Layouts write plans, faults change them, the engine runs them. Values only: nothing here knows time,
files or findings. Steps are frozen and shared between ranks, so that a plan of 131,072 ranks fits
in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from unhang.model import Group
from unhang.rehearse.matching.issue import Bundle, Issue, Shapes
from unhang.rehearse.matching.issue import IssueSite as Site

__all__ = [
    "Bundle",
    "Compute",
    "DeviceStop",
    "HostSync",
    "Issue",
    "Join",
    "Plan",
    "Shapes",
    "Site",
    "Step",
    "Stop",
]


@dataclass(frozen=True, slots=True)
class Compute:
    """Work that is no communication, in seconds of the host and of the device."""

    host_s: float = 0.0
    device_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Join:
    """Later work on the device waits for every asynchronous call issued so far."""


@dataclass(frozen=True, slots=True)
class HostSync:
    """The host waits until all that it issued has finished (`loss.item()`)."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The host never goes on from here: a data loader, a lock, a dead process."""


@dataclass(frozen=True, slots=True)
class DeviceStop:
    """The rank's device runs nothing that is issued from here on; the host does not notice.

    Attributes:
        blind: How many already finished calls the host never sees finish, as after a device error.
    """

    blind: int = 0


Step: TypeAlias = Issue | Bundle | Compute | Join | HostSync | Stop | DeviceStop


@dataclass(slots=True)
class Plan:
    """A whole job before it runs. Mutable: faults are edits of it.

    Attributes:
        layout: Name of the layout that wrote it.
        groups: Process groups in order of creation; `Issue.group` points here.
        programs: One list of steps per global rank.
        ranks_per_host: Ranks r with equal r // ranks_per_host share a host and its clock.
        frozen: (group, seq) of collectives whose data stop flowing once everybody is there, with
            the ranks that come out all the same.
        tolerant: Mismatched sizes finish (corrupting data), as small messages do on NCCL.
        slow: Factor on a rank's host and device compute.
        pace: Relative jitter of all durations.
        replica_size: Ranks per fault-tolerant replica; 0 for one single job.
        ends: The program ends after its last step; otherwise its ranks stay between two steps.
    """

    layout: str
    groups: list[Group]
    programs: list[list[Step]]
    ranks_per_host: int = 8
    frozen: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)
    tolerant: bool = False
    slow: dict[int, float] = field(default_factory=dict)
    pace: float = 0.05
    replica_size: int = 0
    ends: bool = True

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.programs)
