"""What surrounds a job on one node: environment, limits, versions. Secrets stay outside.

Of the environment only variables that matter to a distributed job are taken, by prefix, and of
these none whose name or value looks like a secret: a case is made to be shown to others.
"""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from unhang.telltale import REMOVED, is_secret_name, is_secret_value, without_secrets

__all__ = ["Room", "describe_node", "harmless_environment", "kept_from", "room_of"]

_PREFIXES = (
    "CUDA_", "GLOO_", "GOMP_", "HIP_", "HSA_", "JOB_ID", "KMP_", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "LOCAL_", "LSB_", "MASTER_", "MKL_", "MPI", "NCCL_", "NUMEXPR_", "NVIDIA_", "OMP_",
    "OMPI_", "PBS_", "PET_", "PMI", "PYTHON", "RANK", "RAY_", "RCCL_", "ROCR_", "ROLE_", "SLURM_",
    "TORCH", "TP_SOCKET_", "TRITON_", "UCC_", "UCX_", "UNHANG_", "VIRTUAL_ENV", "WORLD_SIZE",
    "GROUP_", "FI_", "ACCELERATE_", "DS_", "FSDP_", "HOSTNAME",
)  # fmt: skip

_LIMITS = ("NOFILE", "MEMLOCK", "NPROC", "STACK", "CORE", "AS", "FSIZE")


def harmless_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter to a distributed job, by name, secrets replaced by a word."""
    return {
        name: REMOVED if is_secret_name(name) or is_secret_value(value) else without_secrets(value)
        for name, value in sorted(env.items())
        if name.startswith(_PREFIXES)
    }


def describe_node(env: Mapping[str, str], torch: str = "") -> dict[str, object]:
    """Host, kernel, limits, versions and environment of this node as plain values."""
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load": list(os.getloadavg()),
        "python": platform.python_version(),
        "torch": torch,
        "limits": dict(_limits(_LIMITS)),
        "environment": harmless_environment(env),
    }


def _limits(names: Iterable[str]) -> Iterable[tuple[str, list[int | str]]]:
    for name in names:
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is not None:
            soft, hard = resource.getrlimit(number)
            yield (
                name.lower(),
                ["unlimited" if x == resource.RLIM_INFINITY else x for x in (soft, hard)],
            )


# ------------------------------------------------------------------ what limits a process

THROTTLED = 0.25
"""Share of scheduling periods in which it used up its share, from which on it is told."""
FEWEST_PERIODS = 3
NEAR_LIMIT = 0.95
_UNLIMITED = 1 << 60
_MOST_TEXT = 1 << 16


@dataclass(frozen=True, slots=True)
class Room:
    """One reading; 0 where nothing tells or nothing limits.

    Attributes:
        cores: Cores' worth of time that its group may use.
        periods, throttled: Scheduling periods of its group so far, and those in which it had to
            stop before their end.
        memory_used, memory_limit: Bytes of its group; the limit is the lower of `memory.high` and
            `memory.max`.
        pushed_back: How often its group met that limit.
        oom_kills: Processes of its group that were killed for memory.
        swapped: Bytes of the process itself that are swapped out.
    """

    cores: float = 0.0
    periods: int = 0
    throttled: int = 0
    memory_used: int = 0
    memory_limit: int = 0
    pushed_back: int = 0
    oom_kills: int = 0
    swapped: int = 0


def room_of(pid: int | str, proc: Path = Path("/proc")) -> Room:
    """Read what limits a process ("self" is this one)."""
    groups = dict(_groups(_text(proc / str(pid) / "cgroup")))
    unified, mounts = groups.get("", ""), _mounts(_text(proc / "self" / "mounts"))
    cpu, memory = _place(mounts, groups, "cpu", unified), _place(mounts, groups, "memory", unified)
    stat = _pairs(cpu / "cpu.stat")
    events = _pairs(memory / "memory.events")
    limit = min(
        _number(memory / "memory.max"),
        _number(memory / "memory.high"),
        _number(memory / "memory.limit_in_bytes"),
    )
    used = _number(memory / "memory.current", _number(memory / "memory.usage_in_bytes", 0))
    pushed = events.get("high", 0) + events.get("max", 0) + _number(memory / "memory.failcnt", 0)
    status = _pairs(proc / str(pid) / "status")
    return Room(
        cores=_cores(cpu),
        periods=stat.get("nr_periods", 0),
        throttled=stat.get("nr_throttled", 0),
        memory_used=used,
        memory_limit=limit if limit < _UNLIMITED else 0,
        pushed_back=pushed,
        oom_kills=events.get("oom_kill", _pairs(memory / "memory.oom_control").get("oom_kill", 0)),
        swapped=status.get("VmSwap:", 0) * 1024,
    )


def kept_from(before: Room, after: Room) -> Iterator[tuple[str, float, str]]:
    """What a process was kept from between two readings: ("cpu" or "memory", share, sentence)."""
    periods = after.periods - before.periods
    throttled = after.throttled - before.throttled
    if periods >= FEWEST_PERIODS and throttled >= THROTTLED * periods:
        told = f"{throttled:,} of {periods:,} periods ({throttled / periods:.0%})"
        sentence = f"its cgroup may use {after.cores:g} cores, and had to stop in {told}"
        yield "cpu", throttled / periods, sentence
    used, limit = after.memory_used, after.memory_limit
    pushed = after.pushed_back - before.pushed_back
    if limit and used >= NEAR_LIMIT * limit and pushed > 0:
        told = f"{used >> 20:,} of {limit >> 20:,} MB"
        yield (
            "memory",
            used / limit,
            f"its cgroup uses {told}, and was pushed back {pushed:,} times",
        )


def _groups(text: str) -> Iterator[tuple[str, str]]:
    """Controller -> path, of /proc/PID/cgroup; "" is the unified hierarchy (version 2)."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for name in names.split(",") if number != "0" else [""]:
            yield name, path


def _mounts(text: str) -> dict[str, str]:
    """Controller -> where its hierarchy is mounted; "" is the unified one."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) > 3 and words[2] == "cgroup2":  # noqa: PLR2004 - device, place, type, options
            found.setdefault("", words[1])
        elif len(words) > 3 and words[2] == "cgroup":  # noqa: PLR2004 - the same
            for option in words[3].split(","):
                found.setdefault(option, words[1])
    return found


def _place(mounts: dict[str, str], groups: dict[str, str], name: str, unified: str) -> Path:
    """The folder of a process's group. In a container its path may be the host's: then the root."""
    mount, path = (mounts[name], groups[name]) if name in mounts and name in groups else (
        mounts.get("", "/sys/fs/cgroup"), unified
    )  # fmt: skip
    folder = Path(mount + path)
    return folder if folder.is_dir() else Path(mount)


def _cores(folder: Path) -> float:
    words = _text(folder / "cpu.max").split()
    if len(words) != 2:  # noqa: PLR2004 - quota and period
        words = [_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return 0.0
    return int(words[0]) / int(words[1])


def _number(path: Path, default: int = _UNLIMITED) -> int:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else default


def _pairs(path: Path) -> dict[str, int]:
    """The lines "name number" of a file."""
    words = (line.split() for line in _text(path).splitlines())
    return {w[0]: int(w[1]) for w in words if len(w) > 1 and w[1].isdecimal()}


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_TEXT)
    except OSError:
        return ""
