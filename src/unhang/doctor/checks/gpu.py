"""Checks of GPUs: pure functions over what agents/gpu.py and the kernel's log said."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
)
from unhang.doctor.checks.results import CheckResult
from unhang.doctor.nodes import NodeAnswer
from unhang.report import Subject
from unhang.wording import count_of, printable

__all__ = ["check_gpus", "check_kernel_log"]

MIN_LEFT_BYTES = 512 << 20
MAX_NOTES = 20
# NVML clocks throttle reasons: hardware slow-down, hardware thermal, hardware power brake.
HARD_THROTTLE = 0x8 | 0x40 | 0x80
FABRIC_NOT_READY = (1, 2)  # not started, in progress (NVML_GPU_FABRIC_STATE_*)
_MAY_BE_UNTOLD = ("ecc", "temperature", "pcie_width", "persistence")
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
            results.append(
                CheckResult(GPU_MISSING, "fail", seen, (Subject("host", host, host=host),))
            )
    return results


def _node(host: str, facts: Mapping[str, Any]) -> Iterator[CheckResult]:
    """The GPUs of one node, or why none could be looked at."""
    for lost in facts["lost"][:MAX_NOTES]:
        subject = (Subject("gpu", f"{host} gpu {lost['index']}", host=host),)
        said = printable(lost["error"], 200)
        yield CheckResult(
            GPU_MISSING, "fail", f"{host} gpu {lost['index']}: does not answer: {said}.", subject
        )
    if not facts["gpus"]:
        reason = printable(str(facts["error"] or "it has none"), 200)
        if not facts["lost"]:
            about = (Subject("host", host, host=host),)
            yield CheckResult(GPU_MISSING, "skip", f"{host}: no GPU to check: {reason}.", about)
        return
    notes = [printable(note, 200) for note in facts["notes"][:MAX_NOTES]]
    yield from (CheckResult(GPU_MISSING, "skip", f"{host}: {note}.") for note in notes)
    yield CheckResult(
        GPU_MISSING, "ok", f"{host}: {_told(facts['gpus'])}.", (Subject("host", host, host=host),)
    )
    for gpu in facts["gpus"]:
        yield from _gpu(host, gpu, facts)
    yield from _between(host, facts)


def _told(gpus: Sequence[Mapping[str, Any]]) -> str:
    """How many answered, and what none of them tells: a check of that saw nothing."""
    untold = [name for name in _MAY_BE_UNTOLD if all(gpu.get(name) is None for gpu in gpus)]
    said = f"{count_of(len(gpus), 'GPU')} answered"
    return f"{said}; not told: {', '.join(untold)}" if untold else said


def _gpu(host: str, gpu: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[CheckResult]:
    name = f"{host} gpu {gpu['index']}"
    subject = (Subject("gpu", name, host=host),)
    yield from _memory(name, subject, gpu, all_pids=facts["all_pids"])
    if gpu["ecc"]:
        yield CheckResult(
            GPU_ECC, "fail", f"{name}: {gpu['ecc']} uncorrectable memory errors.", subject
        )
    if gpu["remapped"] and len(gpu["remapped"]) > 3 and gpu["remapped"][3]:  # noqa: PLR2004 - correctable, uncorrectable, pending, failed
        yield CheckResult(GPU_ECC, "fail", f"{name}: a memory row could not be remapped.", subject)
    yield from _brakes(name, subject, gpu)
    yield from _links(name, subject, gpu, "XGMI links" if facts["vendor"] == "AMD" else "NVLinks")
    if gpu["mig"]:
        yield CheckResult(GPU_MIG, "warn", f"{name}: MIG is on.", subject)
    if gpu["persistence"] == 0:
        yield CheckResult(GPU_PERSISTENCE, "warn", f"{name}: persistence mode is off.", subject)


def _memory(
    name: str, subject: tuple[Subject, ...], gpu: Mapping[str, Any], *, all_pids: bool
) -> Iterator[CheckResult]:
    """Who holds its memory."""
    if gpu["memory_used"] > MIN_LEFT_BYTES and not gpu["pids"]:
        seen = f"{name}: {gpu['memory_used'] >> 20} MB are in use and no process"
        if all_pids:
            yield CheckResult(GPU_MEMORY_LEFT, "fail", f"{seen} owns them.", subject)
        else:  # in a container, or not as root, their owner may be out of sight
            yield CheckResult(
                GPU_MEMORY_LEFT, "warn", f"{seen} that is seen from there owns them.", subject
            )
    elif gpu["pids"]:
        pids = ", ".join(map(str, gpu["pids"][:8]))
        yield CheckResult(GPU_MEMORY_LEFT, "warn", f"{name}: in use by pid {pids}.", subject)


def _brakes(
    name: str, subject: tuple[Subject, ...], gpu: Mapping[str, Any]
) -> Iterator[CheckResult]:
    """What slows it down besides the limit of its power, which is usual."""
    if gpu["throttle"] and gpu["throttle"] & HARD_THROTTLE:
        seen = f"{name}: slowed down by the hardware at {gpu['temperature']} degrees C."
        yield CheckResult(GPU_THROTTLED, "fail", seen, subject)
    if gpu["slowed"] == ["unknown"]:  # it may be no more than its limit of power
        yield CheckResult(
            GPU_THROTTLED, "warn", f"{name}: slowed down, it does not say why.", subject
        )
    elif gpu["slowed"]:
        brakes = printable(", ".join(gpu["slowed"][:4]), 100)
        seen = f"{name}: slowed down by the hardware ({brakes}) at {gpu['temperature']} degrees C."
        yield CheckResult(GPU_THROTTLED, "fail", seen, subject)


def _links(
    name: str, subject: tuple[Subject, ...], gpu: Mapping[str, Any], kind: str
) -> Iterator[CheckResult]:
    """What connects a GPU: NVLink or XGMI, NVSwitch, PCIe."""
    if gpu["nvlinks"] and not all(gpu["nvlinks"]):
        down = gpu["nvlinks"].count(False)
        seen = f"{name}: {down} of {len(gpu['nvlinks'])} {kind} are down."
        yield CheckResult(NVLINK_DOWN, "fail", seen, subject)
    if gpu["fabric"] in FABRIC_NOT_READY:
        seen = f"{name}: it has not joined its NVSwitch fabric."
        yield CheckResult(FABRIC_MANAGER, "fail", seen, subject)
    width, widest = gpu["pcie_width"], gpu["pcie_width_max"]
    if width and widest and width < widest:
        yield CheckResult(PCIE_NARROW, "warn", f"{name}: PCIe x{width} of x{widest}.", subject)


def _between(host: str, facts: Mapping[str, Any]) -> Iterator[CheckResult]:
    missing = facts["without_p2p"]
    subject = (Subject("host", host, host=host),)
    if missing:
        pairs = ", ".join(f"{a}-{b}" for a, b in missing[:8])
        seen = f"{host}: GPUs {pairs} cannot reach each other directly."
        yield CheckResult(P2P_MISSING, "warn", seen, subject)
    if facts["acs"]:
        seen = f"{host}: access control is on at {len(facts['acs'])} PCI bridges."
        yield CheckResult(ACS_ON, "warn", seen, subject, evidence=tuple(facts["acs"][:8]))


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
