"""Numbers that differ: one program on two devices, dtypes or ranks, and where they first part.

Needs torch, which is imported when it is used. `record` keeps what every module and operator gave,
`compare` finds the first difference beyond what the dtypes allow, `across_ranks` compares the
parameters and buffers of all ranks.
"""

from __future__ import annotations

from unhang.numerics.compare import Tolerance, compare
from unhang.numerics.ranks import compare_across_ranks
from unhang.numerics.recording import Setting, record

__all__ = ["Setting", "Tolerance", "compare", "compare_across_ranks", "record"]
