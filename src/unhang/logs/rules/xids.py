"""What the numbers of NVIDIA's Xid table say: hardware, program, or an effect of another one.

After NVIDIA's "Xid Errors" catalogue; numbers that are not here are shown without a word.
"""

from __future__ import annotations

from typing import Final

from unhang.model import LogRole

_COPY_ENGINES = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))

XIDS: Final[dict[int, str]] = {
    8: "the GPU stopped processing a channel",
    11: "a corrupted command stream: driver, program, or PCIe",
    13: "an exception in a kernel of the program: usually an access out of range",
    31: "a page fault on the GPU: the program accessed memory that is not its own",
    32: "a corrupted command stream: driver, program, or PCIe",
    38: "the driver's firmware failed",
    **dict.fromkeys(
        _COPY_ENGINES, "a copy engine of the GPU failed: usually caused by the program"
    ),
    43: "the driver stopped a program after its own fault; the GPU is healthy",
    45: "cleanup after another fault: look for the Xid before it",
    46: "the GPU stopped processing: reset it",
    48: "two bits of the GPU's memory flipped and could not be corrected: hardware",
    54: "the GPU's extra power cable is not connected",
    61: "the GPU's power controller stopped: hardware or firmware",
    62: "the GPU's power controller halted: hardware or firmware",
    63: "a broken memory row is being retired; a reset of the GPU completes it",
    64: "a broken memory row could not be retired: hardware",
    66: "the driver made an illegal access",
    67: "the driver made an illegal access",
    68: "the video decoder failed",
    69: "an exception in the graphics engine: driver or program",
    74: "an NVLink failed: a cable, a bridge, or the GPU at either end",
    78: "a virtual GPU could not be started",
    79: "the GPU has fallen off the bus: power, heat, PCIe, or the GPU itself",
    80: "data on its way to the GPU was corrupted: driver, program, or PCIe",
    92: "many single-bit errors of the memory were corrected",
    93: "the GPU's settings memory was written too often",
    94: "an uncorrectable memory error that hit one program only: hardware",
    95: "an uncorrectable memory error that may have hit every program: hardware, reset the GPU",
    106: "a test of the management bus: harmless",
    107: "a test of the management bus: harmless",
    109: "the GPU did not switch its context in time",
    110: "a fault of the GPU's security engine: reset it",
    119: "the GPU's system processor (GSP) did not answer the driver in time: reset the GPU",
    120: "the GPU's system processor (GSP) failed: reset the GPU",
    121: "the link between GPU and CPU (C2C) had errors that were corrected",
    136: "a link training of NVLink failed",
    137: "a program reached over NVLink for memory that is not its own, or its peer was gone",
    140: "uncorrectable memory errors that the driver could not recover from: hardware",
    143: "the GPU could not be initialised",
    144: "an NVLink error in the system-address unit: hardware of a link or of its ends",
    145: "an NVLink error in the receiving link unit: hardware of a link or of its ends",
    146: "an NVLink error in the sending link unit: hardware of a link or of its ends",
    147: "an NVLink error in the exchange unit: hardware of a link or of its ends",
    148: "an NVLink error in the link's power unit: hardware of a link or of its ends",
    149: "an NVLink error in the network unit: hardware of a link or of its ends",
    150: "an NVLink error in the management unit: hardware of a link or of its ends",
    151: "the keys of confidential computing could not be rotated",
    154: "the recovery action for the GPU changed: read the rest of that line",
    155: "NVLink's software noticed that it went down",
    156: "a broken part was retired",
    157: "a broken part could not be retired",
    158: "a unit of the GPU did not answer in time: reset it",
    160: "a broken part of the memory is marked for repair; a reset of the GPU completes it",
    161: "a broken channel could not be retired",
    162: "power smoothing resumed",
    163: "power smoothing stopped",
    164: "the power-smoothing parts wear out",
    165: "the power-smoothing parts are worn out",
    167: "PCIe did not answer in time: hardware",
    168: "errors in protected memory reduced the GPU's memory",
    169: "the GPU's security processor halted: reset it",
    171: "an uncorrectable error in the GPU's DRAM: it comes with Xid 48",
    172: "an uncorrectable error in the GPU's SRAM: it comes with Xid 48",
}

_EFFECTS = frozenset({45, 154})
_WARNINGS = frozenset({63, 92, 93, 106, 107, 121, 156, 160, 162, 163, 164, 165})
_OF_LINKS = range(144, 151)


def role_of_xid(number: int, *, mild: bool = False) -> LogRole:
    """What an Xid is: a cause, an effect of another one, or a note about wear.

    Args:
        number: Of the catalogue.
        mild: The line calls it "Nonfatal", which of links means that traffic goes on.
    """
    if number in _EFFECTS:
        return "consequence"
    return "hint" if number in _WARNINGS or (mild and number in _OF_LINKS) else "cause"
