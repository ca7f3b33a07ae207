"""What the AMD GPUs of one node say of themselves, through `amd-smi`, else `rocm-smi`.

The names are those of AMD's documentation and of the tools' own sources (amd-smi of ROCm 6.1 to
7.x: amdsmi-cli-tool, the changelog, amdsmi_commands.py; rocm-smi: rocm_smi.py). Numbers stand as
they are or as {"value", "unit"}; "N/A" is what a GPU does not support and is left out. The tools'
answers are from outside: what has another shape is not used.
"""

from __future__ import annotations

import math
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from unhang.doctor.agents.programs import (
    NoAnswerError,
    documents,
    program,
    said_by,
    sees_all_processes,
)

FOLDERS = ("/opt/rocm/bin",)  # where ROCm's packages put both, with or without PATH
MAX_GPUS = 1024
MAX_PIDS = 4096
UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
# `metric`, "throttle": of these the hardware slows itself down; power limits (ppt) are normal.
HARD = ("prochot", "socket_thermal", "vr_thermal", "hbm_thermal")
AMD_SMI = {
    "list": ["list"],
    "static": ["static", "--asic", "--bus"],
    "metric": ["metric"],
    "process": ["process"],
    "links": ["xgmi", "--link-status"],
    "topology": ["topology", "--access"],
}
ROCM_SMI = ["--showmeminfo", "vram", "--showtemp", "--showpids", "--json"]
Rows = dict[int, dict[str, Any]]


def rows_of(found: list[Any]) -> Rows:
    """Rows by GPU: of lists, or of lists in an object, as later versions print them.

    The object's key is "gpu_data", next to "cpu_data" whose rows name no GPU; that of `xgmi`
    differs between versions.
    """
    rows: Rows = {}
    for document in found:
        lists = document.values() if isinstance(document, dict) else [document]
        for row in (row for listed in lists for row in items(listed)):
            index = row.get("gpu") if isinstance(row, dict) else None
            if type(index) is int and 0 <= index < MAX_GPUS:
                rows.setdefault(index, {}).update(row)
    return rows


def within(row: Any, *path: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """What stands at a path of names; None where it is cut short."""
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    return row


def items(value: Any) -> list[Any]:  # noqa: ANN401 - whatever JSON holds
    """A list; empty where something else stands."""
    return value if isinstance(value, list) else []


def number(value: Any) -> int | None:  # noqa: ANN401 - whatever JSON holds
    """A number, bare, as text or as {"value": …}; None for "N/A" and anything else."""
    value = value.get("value") if isinstance(value, dict) else value
    if isinstance(value, str):
        digits = re.fullmatch(r"\s*(\d{1,18})(?:\.\d+)?\s*[A-Za-z%°]*\s*", value, re.ASCII)
        return int(digits[1]) if digits else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if 0 <= value < 1 << 63 else None


def in_bytes(value: Any) -> int | None:  # noqa: ANN401 - whatever JSON holds
    """An amount of memory; a bare number is in MB."""
    unit = str(within(value, "unit") or "MB")
    amount = number(value)
    return None if amount is None or unit not in UNITS else amount * UNITS[unit]


def slowed(row: dict[str, Any]) -> list[str]:
    """Which of the hardware's own brakes are on; "unknown" where only that one is on is known."""
    brakes = [
        name for name in HARD if within(row, "throttle", f"{name}_violation_status") == "ACTIVE"
    ]
    known = [within(row, "throttle", f"{name}_violation_status") for name in HARD]
    told = within(row, "power", "throttle_status") == "THROTTLED"
    if told and not brakes and not any(state == "NOT ACTIVE" for state in known):
        return ["unknown"]
    return brakes


def links_of(row: dict[str, Any]) -> list[bool]:
    """Whether each XGMI link that is not switched off is up.

    A letter stands for each port (ROCm 6.4, 7.0), or all those to one peer with "/" between them
    (later). All of them down is what amd-smi said of GPUs that cannot tell, before this was mended
    (ROCm/rocm-systems, pull request 2053): then nothing is known.
    """
    letters = [x for s in items(row.get("link_status")) if isinstance(s, str) for x in s.split("/")]
    known = [letter == "U" for letter in letters if letter in ("U", "D")]
    return known[:64] if any(known) else []


def pids_of(row: dict[str, Any]) -> list[int]:
    """Processes of `amd-smi process`; a text stands there if there are none."""
    entries = [within(e, "process_info") or e for e in items(row.get("process_list"))[:MAX_PIDS]]
    return [pid for e in entries if (pid := number(within(e, "pid")))]


def without_access(rows: Rows) -> list[list[int]]:
    """Pairs of GPUs that `amd-smi topology` calls inaccessible, in either of its formats."""
    found = set()
    for index, row in rows.items():
        states = {
            number(within(x, "gpu")): within(x, "link_status") for x in items(row.get("links"))
        }
        older = row.get("link_accessibility")  # up to ROCm 6.1
        for name, state in older.items() if isinstance(older, dict) else ():
            states[number(str(name).removeprefix("gpu_"))] = state
        off = {other for other, state in states.items() if state == "DISABLED"}
        found |= {(index, other) for other in off if other is not None and index < other < MAX_GPUS}
    return [list(pair) for pair in sorted(found)]


def described(index: int, told: dict[str, Rows]) -> dict[str, Any]:
    """One GPU, as agents/gpu.py describes those of NVIDIA."""
    static, metric = told["static"].get(index, {}), told["metric"].get(index, {})
    return {
        "index": index,
        "name": str(within(static, "asic", "market_name") or "AMD GPU")[:100],
        "memory_used": in_bytes(within(metric, "mem_usage", "used_vram")) or 0,
        "memory_total": in_bytes(within(metric, "mem_usage", "total_vram")) or 0,
        "pids": pids_of(told["process"].get(index, {})),
        "ecc": number(within(metric, "ecc", "total_uncorrectable_count")),
        "remapped": None,
        "throttle": None,
        "slowed": slowed(metric),
        "temperature": number(within(metric, "temperature", "hotspot")),
        "nvlinks": links_of(told["links"].get(index, {})),
        "fabric": None,
        "pcie_width": number(within(metric, "pcie", "width")),
        "pcie_width_max": number(within(static, "bus", "max_pcie_width")),
        "mig": False,
        "persistence": None,
    }


def by_amd_smi(tool: str, until: float) -> dict[str, Any]:
    """Facts of all GPUs; each question that gave no answer is a note."""
    told: dict[str, Rows] = {}
    notes = []
    for question, words in AMD_SMI.items():
        told[question] = {}
        try:
            told[question] = rows_of(documents(said_by([tool, *words, "--json"], until)))
        except NoAnswerError as error:
            notes.append(str(error))
        else:
            if not told[question]:
                notes.append(f"amd-smi {words[0]} names no GPU")
    indices = sorted(told["list"] | told["metric"])
    notes += [
        f"amd-smi metric reports nothing about GPU {i}" for i in indices if i not in told["metric"]
    ]
    return {
        "gpus": [described(index, told) for index in indices],
        "without_p2p": without_access(told["topology"]),
        "all_pids": all(
            isinstance(within(told["process"].get(i), "process_list"), list) for i in indices
        )
        and all_pids(),
        "notes": notes,
    }


def by_rocm_smi(tool: str, until: float) -> dict[str, Any]:
    """Facts of all GPUs as far as rocm-smi prints them as JSON; processes it knows of the node."""
    try:
        found = documents(said_by([tool, *ROCM_SMI], until))
    except NoAnswerError as error:
        return {"gpus": [], "notes": [str(error)]}
    whole = {k: v for document in found if isinstance(document, dict) for k, v in document.items()}
    system = whole.get("system")
    pids = [int(m[1]) for name in (system if isinstance(system, dict) else ())
            if (m := re.fullmatch(r"PID ?(\d{1,10})", name, re.ASCII))]  # fmt: skip
    empty: dict[str, Rows] = {question: {} for question in AMD_SMI}
    cards = {int(m[1]): card for name, card in whole.items()
             if (m := re.fullmatch(r"card(\d{1,3})", name, re.ASCII))}  # fmt: skip
    gpus = [
        {
            **described(index, empty),
            "memory_used": number(within(card, "VRAM Total Used Memory (B)")) or 0,
            "memory_total": number(within(card, "VRAM Total Memory (B)")) or 0,
            "temperature": number(within(card, "Temperature (Sensor junction) (C)")),
        }
        for index, card in sorted(cards.items())
    ]
    note = ("rocm-smi has no memory errors, throttling, PCIe widths or links in its JSON: with "
            "amd-smi they are checked")  # fmt: skip
    return {"gpus": gpus, "all_pids": not pids and all_pids(), "notes": [note]}


def all_pids() -> bool:
    """Whether every process that could hold a GPU's memory would have been listed.

    The tools list compute processes. Another one (a desktop's) has a device of /dev/dri open, which
    only root sees of others; and in a container the processes outside are not seen at all.
    """
    if os.geteuid() or not sees_all_processes():
        return False
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link).startswith(("/dev/dri/", "/dev/kfd")):  # noqa: PTH115 - of thousands
                return False
    return True


def examine(seconds: float) -> dict[str, Any] | None:
    """Facts of AMD's GPUs as agents/gpu.py gives them; None where AMD's tools are not installed."""
    until = time.monotonic() + seconds
    notes: list[str] = []
    for name, ask in (("amd-smi", by_amd_smi), ("rocm-smi", by_rocm_smi)):
        tool = program(name, *FOLDERS)
        if not tool:
            continue
        facts = ask(tool, until)
        notes += facts["notes"]
        if facts["gpus"]:
            return {"without_p2p": [], **facts, "notes": notes, "vendor": "AMD"}
    return {"gpus": [], "notes": notes} if notes else None
