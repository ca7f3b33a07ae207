"""The conditions under which a simulated job was recorded, and which are possible.

Values and presets; `recorder` applies them to one rank, `writer` to the folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

VERSIONS = ("list", "1.4", "2.1", "2.2", "2.4", "2.6", "2.7", "2.9", "2.10")
"""Format versions that the recorder can write; "list" is torch 2.2 and older."""

FILE_NAMES = {
    "plain": "rank_{rank}",
    "torch": "comm_lib_trace_rank_{rank}",
    "nccl": "nccl_trace_rank_{rank}",
    "host": "nccl_trace_rank_{host}_{rank}",
    "suffix": "{host}-trace-rank{rank}.pkl",
}


@dataclass(frozen=True, slots=True)
class Recording:
    """How a job was recorded and what became of its files.

    Attributes:
        version: Format version, of `VERSIONS`. Gloo's recorder exists in 2.10 only.
        buffer: Entries that the ring holds.
        stacks: Entries carry frames.
        active_only: Only entries without a noticed finish are written.
        timing: `TORCH_NCCL_ENABLE_TIMING`: starts and durations are noticed.
        json: JSON instead of pickle (never has frames).
        names: Key of `FILE_NAMES`.
        clock_skew_s: Largest offset of a host's clock from true time.
        timeout_s: How long after the last event the dumps are made.
        at_s: Dump at this moment of a running job instead.
        after_failure: On Gloo, dump only after the waiting calls have failed by timeout.
        described: Our own recorder wrote the files: they say who, when and where.
        missing, empty, truncated: Ranks whose file was lost, has no byte, was cut.
    """

    version: str = "2.10"
    buffer: int = 2000
    stacks: bool = True
    active_only: bool = False
    timing: bool = False
    json: bool = False
    names: str = "plain"
    clock_skew_s: float = 0.0
    timeout_s: float = 600.0
    at_s: float | None = None
    after_failure: bool = False
    described: bool = False
    missing: frozenset[int] = frozenset()
    empty: frozenset[int] = frozenset()
    truncated: frozenset[int] = frozenset()

    @property
    def silent(self) -> frozenset[int]:
        """Ranks without any readable entry. A cut file may still hold some, so it is not here."""
        return self.missing | self.empty

    @property
    def shows_dtypes(self) -> bool:
        """Whether entries hold dtypes."""
        return at_least(self.version, "2.1")

    @property
    def shows_frames(self) -> bool:
        """Whether a reader can see call sites."""
        return self.stacks and not self.json


@cache
def at_least(version: str, other: str) -> bool:
    """Whether a format version is another one or newer; "list" is older than all."""
    if "list" in (version, other):
        return other == "list"
    return tuple(map(int, version.split("."))) >= tuple(map(int, other.split(".")))
