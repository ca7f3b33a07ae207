"""What the numbers of an NVSwitch's errors (SXid) say; sxids.toml has the rules of their lines.

After the tables of NVIDIA's Fabric Manager user guide (non-fatal, fatal, always fatal, other).
Where the driver's own word and the table differ the driver is believed, but for two numbers that
it calls non-fatal and that stall a GPU's traffic. Numbers that are not here are shown without a
word.
"""

from __future__ import annotations

import re
from typing import Final

_CORRECTED = "one bit flipped in the switch and was corrected: no effect"
_TWO_BITS = "two bits flipped in the switch and could not be corrected: hardware, its link stops"
_PARITY = "a parity error in the switch: hardware, its link stops"
_TRAFFIC = "traffic on the link broke the protocol: its link stops"
_ALL = "fatal to the whole fabric: reset all GPUs and switches, or restart the host"

_CORRECTED_NUMBERS = (
    *(11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055),
    *(19057, 19059, 19062, 19065, 19068, 19071, 24001, 24002, 24003),
)
_TWO_BITS_NUMBERS = (
    *(11013, 11018, 11019, 12022, 12024, 15009, 15012, 19047, 19048, 19054, 19056, 19058),
    *(19060, 19061, 19063, 19064, 19066, 19067, 19069, 19070, 24004, 24005, 24006),
)
_PARITY_NUMBERS = (11020, 12030, 12031, 15010, 15013)
_TRAFFIC_NUMBERS = (11001, 11009, 12001, 12002, 12025, 12026, 12027, 12032, 15001, 15006)
_TIMEOUT_NUMBERS = (14017, 24007)
_ALL_NUMBERS = (10003, 12020, 22003, 22011, *range(23001, 23018))
_STALLS = (11004, 12028)
_HARMLESS = frozenset({*_CORRECTED_NUMBERS, 20001, 20009, 22013})
_FATAL = frozenset(
    {
        *(*_TWO_BITS_NUMBERS, *_PARITY_NUMBERS, *_TRAFFIC_NUMBERS, *_TIMEOUT_NUMBERS),
        *(*_ALL_NUMBERS, 20034, 22012),
    }
)

SXIDS: Final[dict[int, str]] = {
    10001: "the host's access to the switch failed: a fatal error may follow",
    10002: "the switch did not answer the host in time: a fatal error may follow",
    10004: "the switch is too hot and may slow its links: check the cooling",
    10005: "the switch has cooled down again",
    11004: "a packet that the partitions forbid: that GPU's traffic stalls, its jobs hang",
    12028: "a packet to a forbidden address: that GPU's traffic stalls, its jobs hang",
    19084: "a link stopped answering: usually a fatal error next to it says more",
    20001: "a packet was sent again: the link may be slower",
    20009: "many bad bits on a link for a short time: the link may be slower",
    20012: "a link is broken at one end, or its peer was shut down: check cable and connector",
    20034: "a link went down: a cable, a connector, or the GPU or switch at either end",
    22012: "a link is broken at one end, or its peer was shut down: check cable and connector",
    22013: "harmless",
    **dict.fromkeys(_CORRECTED_NUMBERS, _CORRECTED),
    **dict.fromkeys(_TWO_BITS_NUMBERS, _TWO_BITS),
    **dict.fromkeys(_PARITY_NUMBERS, _PARITY),
    **dict.fromkeys(_TRAFFIC_NUMBERS, _TRAFFIC),
    **dict.fromkeys(_TIMEOUT_NUMBERS, "a request got no answer in time: its link stops"),
    **dict.fromkeys(_ALL_NUMBERS, _ALL),
}


def is_corrected(number: int, what: str) -> bool:
    """Whether a switch mended this by itself, and the driver does not call it fatal."""
    return number in _HARMLESS and not what.startswith("Fatal")


def is_fault(number: int, what: str) -> bool:
    """Whether GPUs behind the switch may be cut off: by the driver's word, or by the table."""
    if number in _STALLS or re.match(r"Fatal\b", what):
        return True
    return number in _FATAL and not what.startswith("Non-fatal")
