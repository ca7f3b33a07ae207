"""Checks of settings, limits and versions: pure functions over what the nodes said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.checks import (
    CLOCKS_APART,
    CORES_OFF,
    GROUP_STARVED,
    IOMMU_TRANSLATES,
    LOCKED_MEMORY_LOW,
    OPEN_FILES_LOW,
    PTRACE_RESTRICTED,
    RECORDER_SWITCHED_OFF,
    SETTING_DEPRECATED,
    SETTING_UNKNOWN,
    SETTINGS_CONTRADICT,
    SETTINGS_DIFFER,
    SHM_SMALL,
    VERSION_KNOWN_BAD,
    VERSIONS_DIFFER,
    Check,
)
from unhang.doctor.checks.machine import check_machine, unset_clocks
from unhang.doctor.checks.results import CheckResult, Level, host_subject, judged, of_host
from unhang.doctor.checks.variables import CONTRADICTIONS, DEPRECATED, misspelt
from unhang.faults import faults_of, library_of
from unhang.incoming import overlaid
from unhang.model import Room
from unhang.report import Subject
from unhang.torchenv import warned_of
from unhang.wording import printable

Facts = Mapping[str, Any]
"""What agents/facts.py prints of one node."""

MIN_OPEN_FILES = 8_192
MIN_SHM = 1 << 30
MIN_SHM_FREE = 256 << 20
THROTTLED = 0.25
NEAR_LIMIT = 0.9
MAX_CLOCK_NS = 2 * 10**9
# Differ between nodes by their nature.
_OWN = ("RANK", "LOCAL_RANK", "SLURM_", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL",
        "OMPI_COMM_WORLD_NODE", "CUDA_VISIBLE_DEVICES", "NCCL_HOSTID", "UNHANG_")  # fmt: skip
_COMPARED = ("NCCL_", "TORCH_NCCL_", "TORCH_FR_", "GLOO_", "MASTER_", "WORLD_SIZE")
_OFF = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")


def check_env(
    nodes: Mapping[str, Facts], asked_ns: int = 0, *, measured: bool = False
) -> list[CheckResult]:
    """All checks of part env.

    Args:
        nodes: Facts by node name.
        asked_ns: Wall clock here when the facts were asked for; 0 leaves the clocks out.
        measured: Part net compares the clocks, over open connections.
    """
    results = []
    for name, facts in nodes.items():
        results += [*_settings(name, facts), *_limits(name, facts), *_versions(name, facts)]
        results += [_group(name, facts), _iommu(name, facts), *check_machine(name, facts)]
    results += _differences(nodes)
    if asked_ns and len(nodes) > 1:
        results.append(_clocks(nodes, measured=measured))
    return results


def _of_settings(check: Check, host: str, seen: str, *names: str) -> CheckResult:
    subjects = tuple(Subject("setting", name, host=host) for name in names)
    return CheckResult(check, "warn", f"{host}: {seen}.", subjects)


def _settings(host: str, facts: Facts) -> list[CheckResult]:
    settings: Mapping[str, str] = facts.get("settings", {})
    torch = str(facts.get("versions", {}).get("torch", ""))
    old, results = warned_of(settings, torch), []
    for (a, a_value), (b, b_value), what in CONTRADICTIONS:
        if _has(settings, a, a_value) and _has(settings, b, b_value):
            seen = f"{a}={_show(settings, a)} and {b}={_show(settings, b)}: {what}"
            results.append(_of_settings(SETTINGS_CONTRADICT, host, seen, a, b))
    for name in settings:
        meant = misspelt(name)
        if meant:
            seen = f"{name} is no known variable; {meant} is"
            results.append(_of_settings(SETTING_UNKNOWN, host, seen, name))
        if name in old:
            seen = f"{name} is an old name for {old[name]}, as torch {torch} warns"
            results.append(_of_settings(SETTING_DEPRECATED, host, seen, name))
        if name in DEPRECATED:
            seen = f"{name} is an old name for {DEPRECATED[name]}"
            results.append(_of_settings(SETTING_DEPRECATED, host, seen, name))
    off = [name for name in _OFF if settings.get(name) == "0"]
    seen = f"{off[0]}=0 turns the Flight Recorder off" if off else "it is on"
    results.append(judged(RECORDER_SWITCHED_OFF, host, seen, bad=bool(off)))
    return results


def _has(settings: Mapping[str, str], name: str, value: str) -> bool:
    return bool(settings.get(name)) and value in ("*", settings[name])


def _show(settings: Mapping[str, str], name: str) -> str:
    return printable(settings[name], 60)


def _limits(host: str, facts: Facts) -> list[CheckResult]:
    limits: Mapping[str, int] = facts.get("limits", {})
    fabric = any(i.get("kind") == "infiniband" for i in facts.get("interfaces", []))
    files, locked = limits.get("open_files", -1), limits.get("locked_memory", -1)
    core = limits.get("core", -1)
    scope = str(facts.get("ptrace_scope", ""))
    return [
        judged(OPEN_FILES_LOW, host, f"open files are limited to {files}",
               bad=0 <= files < MIN_OPEN_FILES),
        judged(LOCKED_MEMORY_LOW, host, f"locked memory is limited to {locked} bytes",
               bad=fabric and locked >= 0),
        _shared_memory(host, limits),
        _cores(host, str(facts.get("core_pattern", "")), off=core == 0),
        judged(PTRACE_RESTRICTED, host, f"kernel.yama.ptrace_scope is {scope or 0}",
               bad=scope in ("2", "3")),
    ]  # fmt: skip


def _shared_memory(host: str, limits: Mapping[str, int]) -> CheckResult:
    """Whether /dev/shm is too small, or filled by what other jobs left there."""
    size, free = limits.get("shm", 0), limits.get("shm_free", MIN_SHM_FREE)
    seen = f"/dev/shm has {size >> 20:,} MB, {free >> 20:,} MB of them free"  # noqa: S108 - its name
    bad = 0 < size < MIN_SHM or (size > 0 and free < MIN_SHM_FREE)
    result = judged(SHM_SMALL, host, seen, bad=bad)
    if size < MIN_SHM:
        return result
    left = "du -ah /dev/shm | sort -h | tail names what fills it; fuser FILE lists its users."
    return replace(result, action=left)


def _group(host: str, facts: Facts) -> CheckResult:
    """Whether the cgroup of this shell was kept from cores or memory since it was made."""
    room, _ = overlaid(Room(), facts.get("room", {}))
    kept = list(_kept_from(room))
    cores = f"{room.cores:g} cores" if room.cores else "all cores"
    memory = f"{room.memory_limit >> 20:,} MB" if room.memory_limit else "all memory"
    seen = "; ".join(kept) or f"its cgroup may use {cores} and {memory}"
    return judged(GROUP_STARVED, host, seen, bad=bool(kept))


def _kept_from(room: Room) -> Iterator[str]:
    if room.cores and room.throttled > THROTTLED * room.periods:
        told = f"{room.throttled:,} of {room.periods:,} periods so far"
        yield f"its cgroup may use {room.cores:g} cores, and was throttled in {told}"
    if room.pushed_back and room.memory_held >= NEAR_LIMIT * room.memory_limit > 0:
        told = f"{room.memory_held >> 20:,} of {room.memory_limit >> 20:,} MB without page cache"
        yield f"its cgroup holds {told}, and hit its limit {room.pushed_back:,} times"
    if room.oom_kills:
        yield f"{room.oom_kills:,} processes of its cgroup were killed: out of memory"


def _iommu(host: str, facts: Facts) -> CheckResult:
    """Whether an IOMMU stands between GPUs; of a node without any it does not matter."""
    types: Sequence[str] = facts.get("iommu_types", ())
    options = " ".join(facts.get("kernel_options", ())) or "nothing"
    translates = any(kind.startswith("DMA") for kind in types)
    has_gpus = bool(facts.get("gpus"))
    how = (
        "the IOMMU is off" if not facts.get("iommu_groups")
        else "the IOMMU translates what devices send" if translates
        else "the IOMMU passes devices through"
    )  # fmt: skip
    seen = f"{how} (the kernel's command line says {printable(options, 80)} of it)"
    return judged(IOMMU_TRANSLATES, host, seen, bad=translates and has_gpus)


def _cores(host: str, pattern: str, *, off: bool) -> CheckResult:
    """Whether a crash leaves a core file, and where; unhang core reads it."""
    said = printable(pattern, 80)
    action = "ulimit -c unlimited in the shell that launches; "
    if pattern.startswith("|"):
        action += f"the kernel hands cores to {said[1:]}: coredumpctl dump PID, then unhang core."
    else:
        action += f"they are written to {said or 'core'}, then: unhang core FILE."
    seen = f"core files are {'off (ulimit -c is 0)' if off else f'on, as {said}'}"
    return of_host(CORES_OFF, "warn" if off else "ok", host, seen, action)


def _versions(host: str, facts: Facts) -> list[CheckResult]:
    versions: Mapping[str, str] = facts.get("versions", {})
    machine, results = versions.get("machine", ""), []
    for package, version in versions.items():
        for fault in faults_of(library_of(package), version, machine):
            helps = f"; until then: {fault.helps}" if fault.helps else ""
            seen = f"{package} {printable(version, 40)}: {fault.what} ({fault.thread}){helps}"
            results.append(of_host(VERSION_KNOWN_BAD, "warn", host, seen))
    return results


def _differences(nodes: Mapping[str, Facts]) -> list[CheckResult]:
    if len(nodes) <= 1:
        return []
    versions = _by_value(nodes, "versions")
    settings = {
        name: values
        for name, values in _by_value(nodes, "settings").items()
        if name.startswith(_COMPARED) and not name.startswith(_OWN)
    }
    return [
        *_compare(VERSIONS_DIFFER, {k: v for k, v in versions.items() if k != "kernel"}, "warn"),
        *_compare(SETTINGS_DIFFER, settings, "warn"),
    ]


def _by_value(nodes: Mapping[str, Facts], key: str) -> dict[str, dict[str, list[str]]]:
    """Name -> value -> hosts; a host that lacks the name has the value ""."""
    names = sorted({name for facts in nodes.values() for name in facts.get(key, {})})
    table: dict[str, dict[str, list[str]]] = {name: defaultdict(list) for name in names}
    for host, facts in nodes.items():
        for name in names:
            table[name][str(facts.get(key, {}).get(name, ""))].append(host)
    return table


def _compare(
    check: Check, table: Mapping[str, Mapping[str, Sequence[str]]], level: Level
) -> list[CheckResult]:
    results = []
    for name, values in table.items():
        if len(values) > 1:
            said = "; ".join(
                f"{', '.join(hosts[:6])}: {printable(value, 40) or '(not set)'}"
                for value, hosts in values.items()
            )
            most = max(values.values(), key=len)
            odd = [h for hosts in values.values() if hosts is not most for h in hosts]
            seen = f"{name} differs between nodes: {said}."
            results.append(CheckResult(check, level, seen, host_subject(*odd)))
    return results or [CheckResult(check, "ok", f"the {len(table)} compared values agree.")]


def _clocks(nodes: Mapping[str, Facts], *, measured: bool) -> CheckResult:
    times = {host: int(facts.get("time_ns", 0)) for host, facts in nodes.items()}
    first, last = min(times.values()), max(times.values())
    apart = last - first > MAX_CLOCK_NS and not measured
    hosts = [host for host, time in times.items() if time in (first, last)] if apart else []
    unset = unset_clocks(nodes)
    seen = f"the nodes' clocks are up to {(last - first) / 1e9:.1f} s apart, query time included"
    if unset:
        seen += f"; no daemon sets the clocks of {', '.join(unset[:6])} (kernel: unsynchronised)"
    subjects = host_subject(*dict.fromkeys((*hosts, *unset)))
    level: Level = "warn" if apart or unset else "ok"
    doubt = "unhang asks the nodes one after the other, so the difference includes the query time"
    return CheckResult(CLOCKS_APART, level, f"{seen}.", subjects, doubt=doubt)
