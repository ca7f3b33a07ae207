"""Checks of GPUs: pure functions over what agents/gpu.py and the kernel's log said."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from unhang.checks import (
    ACS_ON,
    FABRIC_MANAGER,
    GPU_ECC,
    GPU_MEMORY_LEFT,
    GPU_MIG,
    GPU_MISSING,
    GPU_PERSISTENCE,
    GPU_THROTTLED,
    GPU_XID,
    HARD_XIDS,
    NVLINK_DOWN,
    P2P_MISSING,
    PCIE_NARROW,
    Check,
)
from unhang.doctor.asking.nodes import NodeAnswer
from unhang.doctor.checks.results import CheckResult, Level, host_subject, of_host
from unhang.report import Subject
from unhang.wording import count_of, printable

MIN_LEFT_BYTES = 512 << 20
MAX_NOTES = 20
# NVML clocks throttle reasons: hardware slow-down, hardware thermal, hardware power brake.
HARD_THROTTLE = 0x8 | 0x40 | 0x80
FABRIC_NOT_READY = (1, 2)  # not started, in progress (NVML_GPU_FABRIC_STATE_*)
_MAY_BE_UNTOLD = ("ecc", "temperature", "pcie_width", "persistence")
Seen: TypeAlias = tuple[Check, Level, str]
"""What one check saw of one GPU, whose name goes before it."""
_XID = re.compile(r"Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")


def check_gpus(answers: Sequence[NodeAnswer]) -> list[CheckResult]:
    """All checks of the GPUs of all nodes that answered."""
    results: list[CheckResult] = []
    looked = [a for a in answers if not a.error and a.data["looked"]]
    counts = {a.node.name: len(a.data["gpus"]) + len(a.data["lost"]) for a in looked}
    for answer in answers:
        if not answer.error:
            results += _node(answer.node.name, answer.data)
    most = max(counts.values(), default=0)
    for host, count in counts.items():
        if count < most:
            seen = f"{host} has {count} GPUs, where other nodes have {most}."
            results.append(CheckResult(GPU_MISSING, "fail", seen, host_subject(host)))
    return results


def _node(host: str, facts: Mapping[str, Any]) -> Iterator[CheckResult]:
    """The GPUs of one node, or why none could be looked at."""
    for lost in facts["lost"][:MAX_NOTES]:
        said = f"does not answer: {printable(lost['error'], 200)}"
        yield _of_gpu(host, lost["index"], (GPU_MISSING, "fail", said))
    if not facts["gpus"]:
        reason = printable(str(facts["error"] or "it has none"), 200)
        if not facts["lost"]:
            yield of_host(GPU_MISSING, "skip", host, f"no GPU to check: {reason}")
        return
    notes = [printable(note, 200) for note in facts["notes"][:MAX_NOTES]]
    yield from (CheckResult(GPU_MISSING, "skip", f"{host}: {note}.") for note in notes)
    yield of_host(GPU_MISSING, "ok", host, _told(facts["gpus"]))
    for gpu in facts["gpus"]:
        yield from (_of_gpu(host, gpu["index"], seen) for seen in _gpu(gpu, facts))
    yield from _between(host, facts)


def _of_gpu(host: str, index: int, seen: Seen) -> CheckResult:
    check, level, what = seen
    name = f"{host} gpu {index}"
    return CheckResult(check, level, f"{name}: {what}.", (Subject("gpu", name, host=host),))


def _told(gpus: Sequence[Mapping[str, Any]]) -> str:
    """How many answered, and what none of them tells: a check of that saw nothing."""
    untold = [name for name in _MAY_BE_UNTOLD if all(gpu.get(name) is None for gpu in gpus)]
    said = f"{count_of(len(gpus), 'GPU')} answered"
    return f"{said}; not told: {', '.join(untold)}" if untold else said


def _gpu(gpu: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Seen]:
    """What is wrong with one GPU."""
    yield from _memory(gpu, all_pids=facts["all_pids"])
    if gpu["ecc"]:
        yield GPU_ECC, "fail", f"{gpu['ecc']} uncorrectable memory errors"
    if gpu["remapped"] and len(gpu["remapped"]) > 3 and gpu["remapped"][3]:  # noqa: PLR2004 - correctable, uncorrectable, pending, failed
        yield GPU_ECC, "fail", "a memory row could not be remapped"
    yield from _brakes(gpu)
    yield from _links(gpu, "XGMI links" if facts["vendor"] == "AMD" else "NVLinks")
    if gpu["mig"]:
        yield GPU_MIG, "warn", "MIG is on"
    if gpu["persistence"] == 0:
        yield GPU_PERSISTENCE, "warn", "persistence mode is off"


def _memory(gpu: Mapping[str, Any], *, all_pids: bool) -> Iterator[Seen]:
    """Who holds its memory."""
    if gpu["memory_used"] > MIN_LEFT_BYTES and not gpu["pids"]:
        seen = f"{gpu['memory_used'] >> 20} MB are in use and no process"
        if all_pids:
            yield GPU_MEMORY_LEFT, "fail", f"{seen} owns them"
        else:  # in a container, or not as root, their owner may be out of sight
            yield GPU_MEMORY_LEFT, "warn", f"{seen} visible from there owns them"
    elif gpu["pids"]:
        yield GPU_MEMORY_LEFT, "warn", f"in use by pid {', '.join(map(str, gpu['pids'][:8]))}"


def _brakes(gpu: Mapping[str, Any]) -> Iterator[Seen]:
    """What slows it down besides the limit of its power, which is usual."""
    heat = f"at {gpu['temperature']} degrees C"
    if gpu["throttle"] and gpu["throttle"] & HARD_THROTTLE:
        yield GPU_THROTTLED, "fail", f"slowed down by the hardware {heat}"
    if gpu["slowed"] == ["unknown"]:  # it may be no more than its limit of power
        yield GPU_THROTTLED, "warn", "slowed down, for an unknown reason"
    elif gpu["slowed"]:
        brakes = printable(", ".join(gpu["slowed"][:4]), 100)
        yield GPU_THROTTLED, "fail", f"slowed down by the hardware ({brakes}) {heat}"


def _links(gpu: Mapping[str, Any], kind: str) -> Iterator[Seen]:
    """What connects a GPU: NVLink or XGMI, NVSwitch, PCIe."""
    if gpu["nvlinks"] and not all(gpu["nvlinks"]):
        down = gpu["nvlinks"].count(False)
        yield NVLINK_DOWN, "fail", f"{down} of {len(gpu['nvlinks'])} {kind} are down"
    if gpu["fabric"] in FABRIC_NOT_READY:
        yield FABRIC_MANAGER, "fail", "it is not in its NVSwitch fabric"
    width, widest = gpu["pcie_width"], gpu["pcie_width_max"]
    if width and widest and width < widest:
        yield PCIE_NARROW, "warn", f"PCIe x{width} of x{widest}"


def _between(host: str, facts: Mapping[str, Any]) -> Iterator[CheckResult]:
    if missing := facts["without_p2p"]:
        pairs = ", ".join(f"{a}-{b}" for a, b in missing[:8])
        yield of_host(P2P_MISSING, "warn", host, f"GPUs {pairs} cannot reach each other directly")
    if acs := facts["acs"]:
        seen = f"access control is on at {len(acs)} PCI bridges"
        yield of_host(ACS_ON, "warn", host, seen, "", *acs[:8])


def check_kernel_log(nodes: Mapping[str, Mapping[str, Any]]) -> list[CheckResult]:
    """Xid lines of all nodes, folded by host, card and number."""
    seen_already: set[tuple[str, str, str]] = set()
    results = []
    for host, facts in nodes.items():
        for line in facts.get("dmesg", []):
            found = _XID.search(line)
            if not found or (key := (host, found[1], found[2])) in seen_already:
                continue
            seen_already.add(key)
            hard = int(found[2]) in HARD_XIDS
            seen = f"{host}: Xid {found[2]} of the GPU at {found[1]}."
            subject = (Subject("gpu", f"{host} {found[1]}", host=host),)
            evidence = (printable(line, 200),)
            results.append(CheckResult(GPU_XID, "fail" if hard else "warn", seen, subject,
                                  evidence=evidence))  # fmt: skip
    return results
