"""A link that takes its time: carries frames between two taps, each some milliseconds late.

    python slow_link.py TAP TAP MILLISECONDS

Stands in for `tc … netem delay`, which kernels may lack. Says "ready" when both taps are there.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress

TUNSETIFF = 0x400454CA
TAP_WITHOUT_HEADER = 0x1002


def open_tap(name: str) -> int:
    """A tap of this name, as a file to read and write frames."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), TAP_WITHOUT_HEADER))
    return tap


def main(names: list[str], late_s: float) -> None:
    """Carry frames for ever."""
    a, b = (open_tap(name) for name in names)
    other = {a: b, b: a}
    waiting: deque[tuple[float, int, bytes]] = deque()
    print("ready", flush=True)
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for tap in select.select([a, b], [], [], wait)[0]:
            waiting.append((time.monotonic() + late_s, other[tap], os.read(tap, 1 << 16)))
        while waiting and waiting[0][0] <= time.monotonic():
            _, tap, frame = waiting.popleft()
            with suppress(OSError):  # a tap that is down swallows frames
                os.write(tap, frame)


if __name__ == "__main__":
    main(sys.argv[1:3], float(sys.argv[3]) / 1000)
