"""What the GPUs of one node say of themselves, through NVIDIA's management library or AMD's tools.

NVIDIA's needs nvidia-ml-py (module pynvml) on the node; where it finds no GPU, AMD's tools are
asked (amd.py); where there are none of either, it says so. What a GPU does not support is left out.
PCIe access control is read from sysfs, where root may.
"""

from __future__ import annotations

import ctypes
import struct
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

from unhang.doctor.agents import amd
from unhang.doctor.agents.programs import sees_all_processes

ACS_CAPABILITY = 0x000D
ACS_ON = 0x1D  # source validation, P2P request and completion redirect, upstream forwarding
PCI = Path("/sys/bus/pci/devices")


def acs_enabled(config: bytes) -> bool:
    """Whether a PCIe device redirects peer traffic, by its configuration space.

    Extended capabilities begin at 0x100: id 16 bits, version 4, next offset 12 (PCIe base
    specification, 7.6.3); the ACS control register lies 6 bytes behind the header (7.7.11).
    """
    offset, steps = 0x100, 0
    while 0x100 <= offset <= len(config) - 8 and steps < 64:  # noqa: PLR2004 - a chain has no more
        header = struct.unpack_from("<I", config, offset)[0]
        if header & 0xFFFF == ACS_CAPABILITY:
            control = struct.unpack_from("<H", config, offset + 6)[0]
            return bool(control & ACS_ON)
        offset, steps = header >> 20, steps + 1
    return False


def bridges_with_acs() -> list[str]:
    """Addresses of PCI bridges whose access control is on; empty where it cannot be read."""
    found = []
    for device in sorted(PCI.glob("*")):
        with suppress(OSError):
            is_bridge = (device / "class").read_text().startswith("0x0604")
            if is_bridge and acs_enabled((device / "config").read_bytes()):
                found.append(device.name)
    return found


def asked(nvml: Any, question: str, *words: Any) -> Any:  # noqa: ANN401 - NVML's answers
    """Ask NVML; None where this GPU, driver or version of the library does not know."""
    with suppress(Exception):  # pynvml.NVMLError is not known before the import
        return getattr(nvml, question)(*words)
    return None


def fabric_state(nvml: Any, gpu: Any) -> int | None:  # noqa: ANN401 - the module and a handle
    """State of a GPU in its NVSwitch fabric (0 none, 1 not started, 2 in progress, 3 completed)."""
    with suppress(Exception):
        info = nvml.c_nvmlGpuFabricInfo_t()
        nvml.nvmlDeviceGetGpuFabricInfo(gpu, ctypes.byref(info))
        return int(info.state)
    return None


def describe(nvml: Any, index: int) -> dict[str, Any]:  # noqa: ANN401 - the module
    """All that is asked of one GPU."""
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
    processes = [
        process
        for kind in ("Compute", "Graphics")
        for process in asked(nvml, f"nvmlDeviceGet{kind}RunningProcesses", gpu) or []
    ]
    mig = asked(nvml, "nvmlDeviceGetMigMode", gpu)
    name = nvml.nvmlDeviceGetName(gpu)
    links = [asked(nvml, "nvmlDeviceGetNvLinkState", gpu, link) for link in range(18)]
    throttle = asked(nvml, "nvmlDeviceGetCurrentClocksEventReasons", gpu)
    if throttle is None:  # its name up to driver 535
        throttle = asked(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", gpu)
    return {
        "index": index,
        "name": name.decode() if isinstance(name, bytes) else name,
        "memory_used": int(memory.used),
        "memory_total": int(memory.total),
        "pids": sorted({int(process.pid) for process in processes}),
        "ecc": asked(
            nvml,
            "nvmlDeviceGetTotalEccErrors",
            gpu,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        ),
        "remapped": asked(nvml, "nvmlDeviceGetRemappedRows", gpu),
        "throttle": throttle,
        "slowed": [],
        "temperature": asked(nvml, "nvmlDeviceGetTemperature", gpu, nvml.NVML_TEMPERATURE_GPU),
        "nvlinks": [bool(state) for state in links if state is not None],
        "fabric": fabric_state(nvml, gpu),
        "pcie_width": asked(nvml, "nvmlDeviceGetCurrPcieLinkWidth", gpu),
        "pcie_width_max": asked(nvml, "nvmlDeviceGetMaxPcieLinkWidth", gpu),
        "mig": bool(mig and mig[0]),
        "persistence": asked(nvml, "nvmlDeviceGetPersistenceMode", gpu),
    }


def described_or_lost(nvml: Any, index: int, facts: dict[str, Any]) -> None:  # noqa: ANN401 - the module
    """Add one GPU to the facts, or why it does not answer."""
    try:
        facts["gpus"].append(describe(nvml, index))
    except nvml.NVMLError as error:
        facts["lost"].append({"index": index, "error": str(error)})


def peers(nvml: Any, indices: list[int]) -> list[list[int]]:  # noqa: ANN401 - the module
    """Pairs of GPUs that cannot read each other directly."""
    handles = {index: nvml.nvmlDeviceGetHandleByIndex(index) for index in indices}
    missing = []
    for a, b in combinations(indices, 2):
        state = asked(nvml, "nvmlDeviceGetP2PStatus", handles[a], handles[b], 0)
        if state is not None and int(state) != 0:
            missing.append([a, b])
    return missing


def examine(order: dict[str, Any]) -> dict[str, Any]:
    """The facts of all GPUs of this node, or why there are none.

    Args:
        order: "seconds": how long AMD's tools may take together.
    """
    facts = by_nvml()
    if not (facts["gpus"] or facts["lost"]):
        found = amd.examine(float(order.get("seconds", 30)))
        facts["looked"] |= found is not None
        if found is None:
            facts["error"] += "; neither amd-smi nor rocm-smi is installed"
        elif found["gpus"]:
            facts |= {**found, "error": ""}
        else:
            facts["error"] = "; ".join(filter(None, [facts["error"], *found["notes"]]))
    if len(facts["gpus"]) > 1:
        facts["acs"] = bridges_with_acs()
    return facts


def by_nvml() -> dict[str, Any]:
    """The facts of NVIDIA's GPUs, or why there are none.

    "looked" says that the library was there to be asked; "lost" are GPUs that do not answer.
    """
    facts: dict[str, Any] = {
        "vendor": "NVIDIA", "gpus": [], "without_p2p": [], "acs": [],
        "all_pids": sees_all_processes(), "notes": [], "error": "", "looked": False, "lost": [],
    }  # fmt: skip
    try:
        import pynvml
    except ImportError:
        facts["error"] = "nvidia-ml-py is not installed"
        return facts
    facts["looked"] = True
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        facts["error"] = str(error)
        return facts
    for index in range(count):
        described_or_lost(pynvml, index, facts)
    with suppress(pynvml.NVMLError):
        facts["without_p2p"] = peers(pynvml, [gpu["index"] for gpu in facts["gpus"]])
    facts["error"] = "" if count else "the driver sees no GPU"
    return facts
